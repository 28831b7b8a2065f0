"""Exercises of part 4: how a pipeline runs, and what is left of its bubble."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from manygpu.exercises.asked.splitting_pipelines import gpipe, in_turns
from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import off, other


def _orders(draw: random.Random) -> Iterator[tuple]:
    yield from ((gpipe(1, 1),), (gpipe(1, 2),), (in_turns(2, 2),), (in_turns(3, 4),))
    yield (gpipe(2, draw.randint(2, 5)),)
    yield (in_turns(draw.randint(2, 5), draw.randint(1, 8)),)


@exercise(
    "running-a-pipeline/controls",
    '''
def my_controls(orders):
    """Return the pairs (before, after) that need a control dependency.

    Each operation must wait for the one before it on its stage. It needs no
    control dependency if it reads the result of that operation anyway. A
    backward pass reads what its own forward pass kept, and no other result of
    its stage.

    orders: for each stage, what it does, in order: ("F", i) and ("B", i).

    The result is one list of pairs per stage.
    """
    raise NotImplementedError(
        "Compare each operation in an order with the one before it."
    )
''',
    _orders,
)
def judge_controls(found, orders):
    yield "one list per stage", other(len(found), len(orders))
    for s, (own, order) in enumerate(zip(found, orders)):
        pairs = [tuple(map(tuple, pair)) for pair in own]
        near = list(zip(order, order[1:]))
        far = [pair for pair in pairs if pair not in near]
        yield (
            "an operation waits for the one right before it",
            far and f"{far[0]} isn't so",
        )
        read = [
            ((a, i), (b, j)) for (a, i), (b, j) in near if (a, b, i) == ("F", "B", j)
        ]
        known = [pair for pair in pairs if pair in read]
        yield (
            "a dependency through a tensor isn't repeated",
            known and f"{known[0]} is there",
        )
        left = [pair for pair in near if pair not in pairs and pair not in read]
        said = left and f"stage {s} lacks {left[0]}"
        yield "an order must be stated if nothing is read", said
        yield "each pair is present once", len(set(pairs)) < len(pairs) and f"{pairs}"


def _processes(draw: random.Random) -> Iterator[tuple]:
    yield from ((0, 1, gpipe(1, 1)[0]), (0, 2, gpipe(2, 1)[0]), (1, 2, gpipe(2, 1)[1]))
    yield 1, 3, in_turns(3, 2)[1]
    for _ in range(3):
        stages = draw.randint(2, 5)
        stage = draw.randrange(stages)
        yield stage, stages, in_turns(stages, draw.randint(1, 6))[stage]


def program(stage: int, stages: int, order: list[tuple[str, int]]) -> list[tuple]:
    """Receives, passes and sends of the process of one stage."""
    done = []
    for kind, i in order:
        source, target = (stage - 1, stage + 1)[:: 1 if kind == "F" else -1]
        done += [("receive", i, source)] * (0 <= source < stages) + [(kind, i)]
        done += [("send", i, target)] * (0 <= target < stages)
    return done


def _astray(found: list[tuple], stage: int) -> tuple | None:
    """A message with the wrong neighbour, and the pass beside it."""
    for before, one, behind in zip([(), *found], found, [*found[1:], ()]):
        beside = behind if one[0] == "receive" else before
        if len(one) == 3 and len(beside) == 2:
            from_above = (beside[0] == "F") == (one[0] == "receive")
            if one[2] != (stage - 1 if from_above else stage + 1):
                return one, beside
    return None


@exercise(
    "running-a-pipeline/messages",
    '''
def my_program(stage, stages, order):
    """Return what one stage's process does: receives, passes and sends.

    Insert ("receive", i, other stage) immediately before the pass that needs
    the message, and ("send", i, other stage) immediately after the pass that
    made it. The loss is computed on the last stage, which has the labels.

    order: the stage's passes, ("F", i) and ("B", i), in the plan's order.
    """
    raise NotImplementedError(
        "Which neighbour sends the input of an F? And of a B?",
    )
''',
    _processes,
)
def judge_messages(found, stage, stages, order):
    found = [tuple(one) for one in found]
    passes = [one for one in found if one[0] in "FB"]
    yield "passes keep their order", passes != order and f"they are {passes}"
    nobody = [one for one in found if len(one) > 2 and not 0 <= one[2] < stages]
    yield "there is a stage at the other end", nobody and f"{nobody[0]} has none"
    right = program(stage, stages, order)
    moved = sorted(found) == sorted(right) and [one[:2] for one in found] != [
        one[:2] for one in right
    ]  # the right messages, in another place
    astray = not moved and _astray(found, stage)
    said = astray and f"{astray[0]} is at {astray[1]}"
    yield "activations go down the stages, gradients up", said
    less = [one for one in right if one not in found]
    yield "each message has a receive or a send", less and f"there is no {less[0]}"
    yield (
        "it receives immediately before a pass, and sends immediately after one",
        other(found, right),
    )


def _updates(draw: random.Random) -> Iterator[tuple]:
    yield from ((in_turns(1, 2)[0],), (in_turns(2, 2)[0],), (in_turns(3, 4)[0],))
    yield from ((in_turns(4, 8)[0],), (gpipe(2, 4)[0],))
    yield (list(zip("FFBFFBBB", (0, 1, 0, 2, 3, 2, 1, 3))),)  # B's in another order
    for _ in range(3):
        stages = draw.randint(2, 6)
        yield (in_turns(stages, draw.randint(2, 12))[draw.randrange(stages)],)


def versions(order: list[tuple[str, int]]) -> tuple[int, int, int]:
    """Most versions of the weights at once; also without the newest; and of passes."""
    used, newest, most = {}, 0, [(1, 0, 0)]
    for kind, i in order:
        if kind == "F":
            used[i] = newest
        else:
            del used[i]
            newest += 1
        old = set(used.values())
        most.append((len(old | {newest}), len(old), len(used)))
    return tuple(map(max, zip(*most)))


@exercise(
    "running-a-pipeline/versions",
    '''
def my_versions(order):
    """Return how many versions of its weights a stage must hold at most.

    The pipeline isn't flushed. Each B ends with an update, which makes a new
    version. A B needs the version that its F used. A version that isn't the
    newest, and isn't needed by any later B, is dropped immediately, even in
    the update that makes it old.

    order: the passes of the stage, ("F", i) and ("B", i).
    """
    raise NotImplementedError("For each F, note which version was the newest.")
''',
    _updates,
)
def judge_versions(found, order):
    right, old, passes = versions(order)
    wrong = found != right and f"it is {found}"
    updates = 1 + sum(kind == "B" for kind, _ in order)
    yield "a version that isn't needed any more is dropped", found == updates and wrong
    shared = passes > old and found in (passes, passes + 1) and found > right
    yield "micro-batches that used the same weights share them", shared and wrong
    yield "a version counts once, while it is needed", found > right and wrong
    yield "the newest version is held, too", found == old and wrong
    yield "it is the most at the same time", wrong


def _chunks(draw: random.Random) -> Iterator[tuple]:
    yield from ((2, 4, 1), (4, 4, 1), (4, 8, 2), (1, 4, 2))
    for _ in range(3):
        stages = draw.randint(2, 16)
        yield stages, stages * draw.randint(1, 8), draw.randint(1, 8)


@exercise(
    "smaller-bubble/interleaved",
    '''
def my_interleaved(devices, micro_batches, chunks):
    """Return the share of the total time in which a device waits.

    The order is interleaved 1F1B. Each device has `chunks` stages. A pass of
    such a stage takes 1 / chunks of the time that it would take with one stage
    per device. Messages take no time.
    """
    raise NotImplementedError(
        "How long do devices wait now, at the start and at the end?"
    )
''',
    _chunks,
)
def judge_interleaved(found, devices, micro_batches, chunks):
    right = (devices - 1) / (chunks * micro_batches + devices - 1)
    plain = (devices - 1) / (micro_batches + devices - 1)
    same = chunks > 1 and devices > 1 and not off(found, plain) and f"it is {found}"
    yield "chunks make the waits shorter", same
    share = (devices - 1) / (chunks * micro_batches)
    busy = devices > 1 and not off(found, share) and f"it is {found}"
    yield "it is a share of all time", busy
    yield "it is the share that the picture shows", off(found, right)


def _put_off(draw: random.Random) -> Iterator[tuple]:
    yield from ((in_turns(1, 1)[0], 0), (in_turns(2, 2)[1], 1), (in_turns(2, 3)[0], 0))
    for _ in range(4):
        stages = draw.randint(3, 5)
        s = draw.randrange(1, stages)
        yield in_turns(stages, draw.randint(s + 1, 9))[s], s
    yield in_turns(2, 2)[1], 3  # later than the last


@exercise(
    "smaller-bubble/put-off",
    '''
def my_order(order, late):
    """Return a stage's order with the passes ("W", i) inserted.

    ("W", i) computes the gradients of the weights for micro-batch i. It comes
    immediately after the B of micro-batch i + late. The passes that remain
    come at the end, in order.

    order: ("F", i) and ("B", i). The B's are in the order 0, 1, 2, ...
    """
    raise NotImplementedError("Which W comes after the B of micro-batch i?")
''',
    _put_off,
)
def judge_put_off(found, order, late):
    found = [tuple(one) for one in found]
    passes = [one for one in found if one[0] != "W"]
    yield "F and B keep their order", passes != order and f"they are {passes}"
    done = sorted(i for kind, i in found if kind == "W")
    count = len(order) // 2
    yield "each W is present once", done != list(range(count)) and f"they are of {done}"
    at = {one: place for place, one in enumerate(found)}
    soon = [i for i in range(count) if at["W", i] < at["B", i]]
    yield "a W comes after its own B", soon and f"that of {soon[0]} doesn't"
    behind = [i for i in range(count - late) if at["W", i] != at["B", i + late] + 1]
    yield (
        "a W is late by that many micro-batches",
        behind and f"that of {behind[0]} isn't",
    )
    rest = [("W", i) for i in range(max(0, count - late), count)]
    yield (
        "the remaining passes come at the end, in order",
        other(found[len(found) - len(rest) :], rest),
    )


def _turns(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 1), (2, 1), (2, 2), (3, 2), (3, 3))
    for _ in range(3):
        yield draw.randint(2, 8), draw.randint(1, 5)


@exercise(
    "smaller-bubble/zigzag",
    '''
def my_places(devices, ways):
    """Return the device of each stage: down the devices, up again, and so on.

    Where the direction changes, a micro-batch stays on its device.

    ways: how many times the stages go through all devices. For example, 2 is
        the V of ZB-V, with 2 * devices stages.
    """
    raise NotImplementedError("Every second way is the first one, reversed.")
''',
    _turns,
)
def judge_zigzag(found, devices, ways):
    found, each = list(found), range(devices)
    few = [d for d in each if found.count(d) != ways]
    turns = [i for i in range(devices, devices * ways, devices) if i < len(found)]
    moved = devices > 1 and [i for i in turns if found[i] != found[i - 1]]
    said = moved and f"stage {moved[0]} lies elsewhere than stage {moved[0] - 1}"
    yield "where it turns, nothing is sent", said
    yield (
        "each device has a stage of each way",
        few and f"device {few[0]} has {found.count(few[0])}",
    )
    right = [d for way in range(ways) for d in (each if way % 2 == 0 else each[::-1])]
    yield "it goes down first, then up", other(found, right)


def _rounds(draw: random.Random) -> Iterator[tuple]:
    yield from ((0, 1, 1, 1), (0, 2, 1, 2), (1, 2, 2, 2), (0, 2, 2, 4), (0, 2, 2, 3))
    for _ in range(3):
        devices = draw.randint(2, 5)
        yield draw.randrange(devices), devices, draw.randint(2, 3), draw.randint(3, 12)


@exercise(
    "smaller-bubble/rounds",
    '''
def my_rounds(device, devices, chunks, micro_batches):
    """Return a device's forward passes in interleaved 1F1B, in order.

    The device has `chunks` stages: device, device + devices, and so on. The
    micro-batches form groups of as many as there are devices, and the last
    group may be smaller. A group goes through all of the device's stages
    before the next group begins.

    The result is a list of (stage, i) for micro-batch i.
    """
    raise NotImplementedError("Three loops: which is the outer one?")
''',
    _rounds,
    hunted=True,
)
def judge_rounds(found, device, devices, chunks, micro_batches):
    stages = [device + r * devices for r in range(chunks)]
    foreign = [s for s, _ in found if s not in stages]
    has = foreign and f"it has no stage {foreign[0]}"
    yield "a device's stages lie as far apart as there are devices", has
    wanted = sorted(itertools.product(stages, range(micro_batches)))
    odd = sorted(found) != wanted and f"there are {len(found)}, not {len(wanted)}"
    yield "each pass is present once", odd
    groups = range(0, micro_batches, devices)
    right = [
        (s, i)
        for g in groups
        for s in stages
        for i in range(g, min(g + devices, micro_batches))
    ]
    wrong = [k for k, (a, b) in enumerate(zip(found, right)) if a != b]
    said = wrong and f"pass {wrong[0]} is {found[wrong[0]]}"
    yield "a group goes through all stages before the next begins", said


flaw(
    "smaller-bubble/rounds",
    """
def my_rounds(device, devices, chunks, micro_batches):
    order = []
    for chunk in range(chunks):
        stage = device + chunk * devices
        for i in range(micro_batches):
            order.append((stage, i))
    return order
""",
    lambda f: (
        f"with 4 devices and 32 micro-batches, device 0 begins its second stage after "
        f"{[s for s, _ in f(0, 4, 2, 32)].index(4)} forward passes"
    ),
    "a group goes through all stages before the next begins",
)
flaw(
    "smaller-bubble/rounds",
    """
def my_rounds(device, devices, chunks, micro_batches):
    order = []
    for first in range(0, micro_batches, devices):
        for chunk in range(chunks):
            stage = device * chunks + chunk
            for i in range(first, min(first + devices, micro_batches)):
                order.append((stage, i))
    return order
""",
    lambda f: (
        f"of 8 stages on 4 devices, the second device has "
        f"{sorted({s for s, _ in f(1, 4, 2, 4)})}; its first pass comes after those "
        f"of {f(1, 4, 2, 4)[0][0]} stages"
    ),
    "a device's stages lie as far apart as there are devices",
)
flaw(
    "smaller-bubble/rounds",
    """
def my_rounds(device, devices, chunks, micro_batches):
    order = []
    for first in range(0, micro_batches, devices):
        for chunk in range(chunks):
            stage = device + chunk * devices
            for i in range(first, first + devices):
                order.append((stage, i))
    return order
""",
    lambda f: (
        f"4 devices have 6 micro-batches, and device 0 takes number "
        f"{max(i for _, i in f(0, 4, 2, 6))}, but the last one is 5"
    ),
    "each pass is present once",
)
