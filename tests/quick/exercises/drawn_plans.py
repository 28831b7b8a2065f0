"""Right answers of each puzzle, drawn by chance: none may beat the proven bound."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

from manygpu.exercises.puzzles import (
    KNOWN,
    hall,
    memory,
    passes,
    placements,
    schedules,
)
from manygpu.exercises.puzzles.collectives import (
    GATHERED,
    PIECES,
    PIPED,
    RING,
    TOLD,
    WORLD,
)
from manygpu.scratch.splitting.pipeline import Op, needs


def spread(draw: Random, first: list[set], chunks: int, most: int) -> list[list[tuple]]:
    """Rounds in which random pairs send what the other lacks, until all have all."""
    has, rounds = [set(own) for own in first], []
    while any(len(own) < chunks for own in has):
        receivers = draw.sample(range(len(has)), len(has))
        sent = []
        for sender, receiver in enumerate(receivers):
            lacks = sorted(has[sender] - has[receiver]) if sender != receiver else []
            if lacks and draw.random() < 0.9:
                count = draw.randint(1, min(most, len(lacks)))
                sent.append((sender, receiver, draw.sample(lacks, count)))
        for _, receiver, new in sent:
            has[receiver] |= {*new}
        rounds.append(sent)
    return rounds


def broadcast(draw: Random) -> list:
    rounds = spread(draw, [{0}, *[set()] * (TOLD - 1)], 1, 1)
    return [[message[:2] for message in sent] for sent in rounds]


def relay(draw: Random) -> list:
    first = [set(range(PIECES)), *[set()] * (PIPED - 1)]
    rounds = spread(draw, first, PIECES, 1)
    return [[(s, r, own[0]) for s, r, own in sent] for sent in rounds]


def all_gather(draw: Random) -> list:
    return spread(draw, [{device} for device in range(GATHERED)], GATHERED, GATHERED)


def tree(draw: Random, nodes: int) -> list[tuple[int, int]]:
    """The edges of a random tree as (child, parent), each after all of its children."""
    order = draw.sample(range(nodes), nodes)
    edges = [(node, draw.choice(order[:i])) for i, node in enumerate(order) if i]
    return edges[::-1]


def all_reduce(draw: Random, devices: int, chunks: int) -> list:
    """Each chunk up one tree and down another, packed into as few rounds as may be."""
    ups = [tree(draw, devices) for _ in range(chunks)]
    jobs = []
    for chunk, up in enumerate(ups):
        root, down = up[-1][1], [(b, a) for a, b in tree(draw, devices)[::-1]]
        first = down[0][0]
        swap = {root: first, first: root}  # so that the second tree begins at the root
        down = [(swap.get(a, a), swap.get(b, b)) for a, b in down]
        jobs.append([(a, b, chunk) for a, b in up + down])
    rounds: list[list] = []
    for job in jobs:
        at = 0
        for sender, receiver, chunk in job:
            while at < len(rounds) and any(
                sender == s or receiver == r for s, r, _ in rounds[at]
            ):
                at += 1
            if at == len(rounds):
                rounds.append([])
            rounds[at].append((sender, receiver, chunk))
            at += 1
    return rounds


def pipeline(draw: Random, of: passes.Pipeline, room: int, last: str) -> list:
    """Orders that run: again and again a random pass that can be done, and has room."""
    left = {
        Op(kind, stage, m)
        for kind in of.cost
        for stage in range(of.stages)
        for m in range(of.micro_batches)
    }
    done: set[Op] = set()
    held, orders = [0] * of.devices, [[] for _ in range(of.devices)]
    eager = draw.random()
    while left:
        can = [p for p in sorted(left) if {*needs(p, of.stages)} <= done]
        freeing = [p for p in can if p.kind != "F"]
        can = [p for p in can if p.kind != "F" or held[p.stage % of.devices] < room]
        pool = freeing if freeing and draw.random() < eager else can
        one = draw.choice(pool)
        left.remove(one)
        done.add(one)
        device = one.stage % of.devices
        held[device] += (one.kind == "F") - (one.kind == last)
        orders[device].append((one.kind, one.micro_batch))
    return orders


def near(draw: Random, name: str) -> list:
    """The start or the best answer, with neighbours swapped here and there."""
    one = KNOWN[name]
    source = draw.choice([one.start, hall.best(name).answer])
    orders = [[*own] for own in hall.answer_of(source)]
    for _ in range(draw.randint(0, 6)):
        own = draw.choice(orders)
        at = draw.randrange(len(own) - 1)
        own[at], own[at + 1] = own[at + 1], own[at]
    return orders


def scheduled(draw: Random, name: str, of: passes.Pipeline, room: int = 99) -> list:
    """One of both."""
    last = "W" if "W" in of.cost else "B"
    return near(draw, name) if draw.random() < 0.7 else pipeline(draw, of, room, last)


def composition(draw: Random, whole: int, count: int | None = None) -> list[int]:
    """Numbers from 1 up whose sum is `whole`."""
    count = draw.randint(1, whole) if count is None else count
    ends = [0, *sorted(draw.sample(range(1, whole), count - 1)), whole]
    return [b - a for a, b in pairwise(ends)]


def experts(draw: Random) -> list:
    """Each expert somewhere, then copies where there is room."""
    slots = [gpu for gpu in range(placements.GPUS) for _ in range(placements.SLOTS)]
    draw.shuffle(slots)
    found: list[list] = [[] for _ in range(placements.GPUS)]
    for expert, gpu in enumerate(slots[: len(placements.LOADS)]):
        found[gpu].append(expert)
    for gpu in slots[len(placements.LOADS) :]:
        others = [e for e in range(len(placements.LOADS)) if e not in found[gpu]]
        found[gpu].append(draw.choice(others[: draw.randint(1, len(others))]))
    return found


def mesh(draw: Random) -> list:
    """Any axis innermost, or anything at all."""
    data, tensor, pipe = (range(size) for size in placements.AXES)
    places = [(d, t, p) for d in data for t in tensor for p in pipe]
    if draw.random() < 0.3:
        return draw.sample(places, len(places))
    axes = draw.sample(range(3), 3)
    return sorted(places, key=lambda place: [place[axis] for axis in axes])


def subset(draw: Random, count: int) -> list[int]:
    """Some of the first numbers."""
    return [i for i in range(count) if draw.random() < 0.5]


DRAWN: dict[str, Callable[[Random], object]] = {
    "broadcast": broadcast,
    "relay": relay,
    "all-gather": all_gather,
    "ring": lambda draw: all_reduce(draw, RING, RING),
    "two-machines": lambda draw: all_reduce(draw, WORLD, WORLD),
    "bubble": lambda draw: scheduled(draw, "bubble", schedules.PLAIN),
    "in-flight": lambda draw: scheduled(draw, "in-flight", schedules.PLAIN),
    "split-backward": lambda draw: scheduled(
        draw, "split-backward", schedules.APART, schedules.P
    ),
    "interleaved": lambda draw: near(draw, "interleaved"),
    "stages": lambda draw: composition(draw, len(placements.COSTS), placements.STAGES),
    "experts": experts,
    "mesh": mesh,
    "recompute": lambda draw: [0, *(i + 1 for i in subset(draw, memory.LAYERS - 1))],
    "sharded": lambda draw: subset(draw, len(memory.SIZES)),
    "buckets": lambda draw: composition(draw, len(memory.GRADIENTS)),
}
