"""The parts of a training step, and whole steps, timed on one or two devices.

For the chapter on a simulator: its page forecasts steps from their parts, and compares
the forecasts with the steps. Here both are timed. All cases run in each round, one
after the other, so that whatever disturbs the machine disturbs all of them.
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu.checks import check_count, check_not_empty
from manygpu.scratch.data_parallel.collectives import (
    MessageLog,
    allreduce_with,
    ring_allreduce,
)
from manygpu.scratch.data_parallel.many_devices import split_batch
from manygpu.scratch.splitting.network import make_stages
from manygpu.scratch.splitting.pipeline import (
    Op,
    Plan,
    dense_chain,
    gpipe,
    one_forward_one_backward,
)
from manygpu.scratch.splitting.running_a_pipeline import run_plan
from manygpu.scratch.start.one_device import sgd
from manygpu.simulate.cluster import Cluster, Link
from manygpu.simulate.works import Agenda, Share, put_messages
from manygpu.trace.spans import clocked

WIDTH, LR = 192, 0.01  # of the four dense layers
MICRO_BATCHES = 4  # of GPipe and 1F1B
KNOWN = (48, 320, 1280)  # samples of a micro-batch whose parts are timed
SIZES = (256, 640, 1024)  # samples of a step that is to be forecast
WIDTHS = (64, 320)  # of the layers whose gradients are summed, to measure a link
UPDATE, CALL = "update", "the call"
Part = Any  # (kind, stage, whether it adds to gradients that are there), or UPDATE


@functools.cache
def chain() -> list:
    """The model; made when first asked for, since its tensors start TensorFlow."""
    return dense_chain(4, WIDTH)


def on_one_device(micro_batches: int) -> Plan:
    """GPipe's order of two stages, all on the first device."""
    slots = enumerate(gpipe(2, micro_batches))
    return [slot._replace(device=0, tick=i) for i, slot in slots]


ALONE, IN_TURNS = on_one_device(1), on_one_device(2)


def plans_for(count: int) -> dict[str, Plan]:
    """The plans whose steps are forecast, for one device or for two."""
    plans = {"one device": ALONE}
    if check_count("count", count) > 1:
        plans |= {"cut in two": gpipe(2, 1), "GPipe": gpipe(2, MICRO_BATCHES)}
        plans["1F1B"] = one_forward_one_backward(2, MICRO_BATCHES)
        plans["data parallel"] = ALONE
    return plans


def parts_of(plan: Plan) -> dict[Op, Part]:
    """What each operation of a plan is, in the order of its ticks.

    A part is (kind, stage, whether it adds to gradients that are there already).
    """
    parts: dict[Op, Part] = {}
    for slot in sorted(plan, key=lambda slot: slot.tick):
        kind, stage, _ = slot.op
        again = kind == "B" and (kind, stage, False) in parts.values()
        parts[slot.op] = kind, stage, again
    return parts


@dataclass
class Times:
    """What a forecast is made of, measured in one half of the rounds.

    Attributes:
        known: by samples of a micro-batch, seconds of each part on one device.
        share: by part, for each size of `known`, the part of the machine that it needs.
        link: a message of an all-reduce between the two devices.
        half_batch: by size, seconds until the second device has its half of a batch.
        hand_over: by size, seconds that a tensor takes from one stage to the next.
        calls: what a call takes beside all operations, by size: of two replicas; of
            two stages.
    """

    known: dict[int, dict[Part, float]]
    share: dict[Part, Sequence[float]]
    link: Link | None = None
    half_batch: Sequence[float] = ()
    hand_over: Sequence[float] = ()
    calls: dict[str, Sequence[float]] = field(default_factory=dict)

    def seconds(self, part: Part, samples: float) -> float:
        """What a part takes on one device, for so many samples."""
        return between_sizes(samples, [of[part] for of in self.known.values()])

    def shares(self, part: Part, samples: float) -> list[Share]:
        """Which part of the machine it needs meanwhile."""
        return [("machine", between_sizes(samples, self.share[part]))]

    def until_half(self, samples: float) -> float:
        """Seconds until the second device has its half of the batch."""
        return between_sizes(samples, self.half_batch)

    def handing_over(self, samples: float) -> tuple[float, float, list[Share]]:
        """Latency, seconds and shares of a tensor that goes to the next stage.

        To hand it over needs one of two cores.
        """
        return 0.0, between_sizes(samples, self.hand_over), [("machine", 0.5)]

    def call(self, samples: float, replicas: int = 1, stages: int = 1) -> float:
        """What the call of a compiled step takes beside its operations."""
        if replicas > 1:
            return between_sizes(samples, self.calls["replicas"])
        if stages > 1:
            return between_sizes(samples, self.calls["stages"])
        return self.seconds(CALL, samples)


def between_sizes(samples: float, values: Sequence[float]) -> float:
    """On the line between the nearest sizes that were measured."""
    return float(np.interp(samples, KNOWN, values))


def gradient_messages() -> list:
    """The messages of the rings that sum the chain's gradients; nothing is sent."""
    log = MessageLog()
    with tf.Graph().as_default(), tf.device("CPU:0"):
        shapes = [p.shape for layer in chain() for p in layer.params]
        grads = [[tf.zeros(shape) for shape in shapes] for _ in range(2)]
        allreduce_with(ring_allreduce, log)(grads)
    return log.messages


def end_of_step(
    agenda: Agenda, times: Times, last: dict[int, int], replicas: int, samples: float
) -> float:
    """Add the sums of gradients and the updates; return what the call takes besides.

    Args:
        agenda: has the operations of all devices already.
        times: what was measured.
        last: by device, the number of its last operation's work.
        replicas: 1, or 2 if each device has a copy of all layers.
        samples: of an operation.
    """
    stages, shares = len(last) // replicas, times.shares(UPDATE, samples)
    if replicas > 1:
        route = Cluster(1, 2, times.link, times.link).route
        last = put_messages(agenda, gradient_messages(), route, last)
    for device, work in last.items():
        seconds = times.seconds(UPDATE, samples) / stages
        agenda.put(UPDATE, [device], seconds, 0.0, shares, [work])
    return times.call(samples, replicas, stages)


class Measured:
    """What `measure` found: of each case, its seconds and all its times by round."""

    def __init__(self, found: dict[tuple[str, int], list]) -> None:
        self.found = found

    def middle(self, half: int, name: str, size: int) -> tuple[float, np.ndarray]:
        """The round in the middle of one half (0: even, 1: odd): seconds, times."""
        rounds = sorted(self.found[name, size][half::2], key=lambda result: result[0])
        return rounds[len(rounds) // 2]

    def seconds(self, half: int, name: str, size: int) -> float:
        """Of the round in the middle."""
        return self.middle(half, name, size)[0]

    def times(self, half: int, share: Callable[[float], float]) -> Times:
        """What a forecast is made of, from one half of the rounds.

        Args:
            half: 0 for the even rounds, 1 for the odd ones.
            share: from how many times longer a part takes while the other device does
                the same, to the part of the machine that each of them needs.
        """
        known = {n: self._parts(half, n) for n in KNOWN}
        found = Times(known, {part: [0.5] * len(KNOWN) for part in known[KNOWN[0]]})
        if any(name == "two at once" for name, _ in self.found):
            self._two(half, share, found)
            found.link = self._link(half)
            handed = [self._handed_over(half, n) for n in KNOWN]
            found.hand_over, found.calls["stages"] = zip(*handed, strict=True)
        return found

    def _parts(self, half: int, n: int) -> dict[Part, float]:
        """Seconds of each part of one device's call."""
        seconds, times = self.middle(half, "in turns", n)
        lengths = defaultdict(list)
        parts = [*parts_of(IN_TURNS).values(), UPDATE]
        for part, each in zip(parts, lasted(times), strict=True):
            lengths[part].append(each)
        found = {part: float(np.mean(each)) for part, each in lengths.items()}
        found[CALL] = seconds - np.ptp([times[0, 0], times[-1, 1]])
        if not min(found.values()) > 0:
            raise RuntimeError(f"a part took no time: {found}: run it again")
        return found

    def _two(self, half: int, share: Callable, found: Times) -> None:
        """Two devices that do the same at once: shares, the call, the second half."""
        parts = [*parts_of(ALONE).values(), UPDATE]
        shares = {part: [] for part in found.share}
        calls, later = [], []
        for n in KNOWN:
            seconds, times = self.middle(half, "two at once", n)
            calls.append(seconds - np.ptp(times))  # what cuts the batch is in it, too
            later.append(max(times[4, 0] - times[0, 0], 0.0))
            # Four operations per device, then an update each.
            both = [lasted(times[[*range(4 * d, 4 * d + 4), 8 + d]]) for d in range(2)]
            for part, took in zip(parts, np.mean(both, axis=0), strict=True):
                shares[part].append(share(took / found.known[n][part]))
            for s in range(2):  # adding up is taken to be like the rest of the pass
                shares["B", s, True].append(shares["B", s, False][-1])
        found.share |= {part: each for part, each in shares.items() if each}
        found.calls["replicas"], found.half_batch = calls, later

    def _link(self, half: int) -> Link:
        """Latency and bandwidth of a message, from two all-reduces."""
        less, more = (np.ptp(self.middle(half, "all-reduce", w)[1]) for w in WIDTHS)
        small, large = (16 * (w * w + w) for w in WIDTHS)  # 4 matrices, 4 biases
        # Where the larger took no longer, all is noise: 1% stands for the bytes.
        a_byte = max(more - less, 0.01 * more) / (large - small)
        # The ring of two sums 8 tensors in 2 steps each: 16 messages in a row.
        return Link(max(less - a_byte * small, 0.0) / 16, 1 / a_byte)

    def _handed_over(self, half: int, n: int) -> tuple[float, float]:
        """How much longer an operation waits for another device; the call's rest."""
        seconds, times = self.middle(half, "handed over", n)
        there, same, back = times[1:4, 0] - times[:3, 1]
        return max((there + back) / 2 - same, 0.0), seconds - np.ptp(times)


def lasted(times: np.ndarray) -> np.ndarray:
    """Seconds from the beginning of each part to that of the next, or to the end."""
    return np.diff([*times[:, 0], times[-1, 1]])


def measure(devices: Sequence[str], plans: dict[str, Plan], rounds: int) -> Measured:
    """Time the parts of a step, and the steps of all plans, round by round.

    Args:
        devices: names of one device or of two.
        plans: as `plans_for` makes them for as many devices.
        rounds: how many count; one more comes first, and makes the graphs.

    Raises:
        TypeError, ValueError: no devices, more than two, or `rounds` below 2.
    """
    check_not_empty("devices", devices)
    if len(devices) > 2:
        raise ValueError(f"devices must be 1 or 2, got {len(devices)}: name two")
    if check_count("rounds", rounds) < 2:
        raise ValueError(f"rounds must be at least 2, got {rounds}: halves need one")
    cases = [("in turns", n) for n in KNOWN]
    if len(devices) > 1:
        cases += [(what, n) for what in ("two at once", "handed over") for n in KNOWN]
        cases += [("all-reduce", width) for width in WIDTHS]
    cases += [(name, size) for name in plans for size in SIZES]
    runs = {case: _runner(*case, plans, devices) for case in cases}
    found = {case: [] for case in cases}
    for number in range(rounds + 1):
        for case, once in runs.items():
            result = once()
            if number:  # the first round makes the graphs
                found[case].append(result)
    return Measured(found)


def _runner(
    name: str, size: int, plans: dict[str, Plan], devices: Sequence[str]
) -> Callable[[], tuple[float, np.ndarray]]:
    """Return a function that runs a case once: its seconds, and all its times."""
    pair = (list(devices) * 2)[:2]
    rows = functools.partial(_rows, devices[0])
    if name == "all-reduce":
        step = _sums(size, pair)
    elif name == "two at once":
        step = _replicas(*rows(2 * size), pair)
    elif name == "data parallel":
        step = _replicas(*rows(size), pair, allreduce_with(ring_allreduce))
    elif name == "in turns":
        step = _pipeline(IN_TURNS, *rows(2 * size), pair)
    else:
        plan = gpipe(2, 1) if name == "handed over" else plans[name]
        step = _pipeline(plan, *rows(size), pair)
    step = tf.function(step, autograph=False)

    def once() -> tuple[float, np.ndarray]:
        start = time.perf_counter()
        times, _ = tf.nest.map_structure(lambda t: t.numpy(), step())
        seconds = time.perf_counter() - start
        return seconds, np.concatenate([np.reshape(t, (-1, 2)) for t in times])

    return once


def _rows(device: str, samples: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Random rows and a class for each."""
    rng = np.random.default_rng(0)
    with tf.device(device):
        X = tf.constant(rng.normal(size=(samples, WIDTH)), tf.float32)
        return X, tf.constant(rng.integers(0, WIDTH, samples), tf.int32)


def _clocked_update(stages: list, grads: list, samples: int) -> tuple:
    """Update a device's stages; return when, and one element of each parameter."""

    def update(*grads):
        params = [p for stage in stages for p in stage.params]
        sgd(params, list(grads), LR / samples)
        return [tf.reshape(p, [-1])[:1] for p in params]

    with tf.device(stages[0].device):
        elements, times = clocked(update, *grads)
    return times, elements


def _pipeline(plan: Plan, X: tf.Tensor, y: tf.Tensor, pair: list[str]) -> Callable:
    """A step by a plan of two stages: all its times, and elements of what it made."""
    devices = sorted({slot.device for slot in plan})
    stages = make_stages(chain(), [2], [pair[d] for d in devices])
    parts = [[0], [1]] if len(devices) > 1 else [[0, 1]]

    def step():
        done, times = run_plan(plan, stages, X, y, clock=True)
        updates = []
        for part in parts:
            grads = tf.nest.flatten([done.grads[s] for s in part])
            own = [stages[s] for s in part]
            updates.append(_clocked_update(own, grads, len(X)))
        return [times, *(when for when, _ in updates)], [made for _, made in updates]

    return step


def _replicas(
    X: tf.Tensor, y: tf.Tensor, pair: list[str], reduce: Callable | None = None
) -> Callable:
    """A step of two replicas; `reduce` sums their gradients, None leaves them alone."""
    replicas = [make_stages(chain(), [2], [device]) for device in pair]

    def step():
        grads, times = [], []
        shards = split_batch(X, y, pair)
        for stages, *shard in zip(replicas, *shards, strict=True):
            done, when = run_plan(ALONE, stages, *shard, clock=True)
            grads.append(tf.nest.flatten(done.grads))
            times.append(when)
        grads = reduce(grads) if reduce else grads
        pairs = zip(replicas, grads, strict=True)
        updates = [_clocked_update(*one, len(X)) for one in pairs]
        times += [when for when, _ in updates]
        return times, [made for _, made in updates]

    return step


def _sums(width: int, pair: list[str]) -> Callable:
    """An all-reduce of the gradients of a chain of this width, and its times."""
    tensors = []
    for device in pair:
        with tf.device(device):
            params = [p for layer in dense_chain(4, width) for p in layer.params]
            tensors.append([tf.Variable(tf.zeros(p.shape)) for p in params])

    def reduce(*flat):
        grads = []
        for device, some in zip(pair, (flat[:8], flat[8:]), strict=True):
            with tf.device(device):
                grads.append([tf.identity(t) for t in some])
        return tf.nest.flatten(allreduce_with(ring_allreduce)(grads))

    def run():
        found, times = clocked(reduce, *[v.read_value() for v in sum(tensors, [])])
        return [times], [tf.reshape(t, [-1])[:1] for t in found]

    return run
