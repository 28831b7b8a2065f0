"""Exercises of part 4: stages of a network, and batches whose samples depend."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.saying import all_off, off, other


def _placements(draw: random.Random) -> Iterator[tuple]:
    yield from (([0], [4]), ([0, 1], [4, 2]), ([0, 0, 1, 1], [5, 4, 3, 2]))
    yield from (([0, 1, 2], [9, 8, 7]), ([0, 1, 0], [9, 8, 7]))
    for _ in range(4):
        devices = [draw.randint(0, 2) for _ in range(draw.randint(2, 7))]
        yield devices, [draw.randint(1, 99) for _ in devices]


@exercise(
    "network/messages",
    '''
def my_messages(devices, sizes):
    """Return what a training step sends, as a list of (source, target, size).

    The messages are in the order in which they are sent. The loss is computed
    on the device of the last layer, which has the labels. The gradient of the
    first layer's input isn't needed.

    devices: for each layer, the device that has it and its parameters.
    sizes: for each layer, the bytes of its output.
    """
    raise NotImplementedError(
        "First go forward through the layers, then backward.",
    )
''',
    _placements,
)
def judge_messages(found, devices, sizes):
    found, ends = [tuple(one) for one in found], list(zip(devices, devices[1:]))
    at_home = [one for one in found if one[0] == one[1]]
    yield "a device sends itself nothing", at_home and f"{at_home[0]} is no message"
    there = [(a, b, size) for (a, b), size in zip(ends, sizes) if a != b]
    silent = bool(there) and found == there and "nothing comes back"
    yield "each output's gradient comes back", silent
    right = there + [(b, a, size) for a, b, size in there[::-1]]
    pairs = sorted(one[:2] for one in found) == sorted(one[:2] for one in right)
    size = pairs and sorted(found) != sorted(right) and f"they are {found}"
    yield "an output travels, and a gradient as large as it", size
    order = sorted(found) == sorted(right) and other(found, right)
    yield "the backward pass begins at the end", order
    yield "it is the list of all messages of a step", other(found, right)


def _rooms(draw: random.Random) -> Iterator[tuple]:
    yield from (([4], [1], 9), ([4, 4], [1, 1], 4), ([1, 1, 1], [2, 3, 1], 9))
    yield from (
        ([1, 1, 9], [5, 1, 2], 9),
        ([9, 1, 1], [5, 4, 2], 9),
        ([5, 5], [1, 1], 4),
    )
    yield from (([1, 1, 1, 1], [3, 2, 2, 1], 9), ([1, 1, 9], [1, 5, 2], 9))
    for _ in range(4):
        sizes = [draw.randint(1, 9) for _ in range(draw.randint(3, 8))]
        yield (
            sizes,
            [draw.randint(1, 9) for _ in sizes],
            draw.randint(9, sum(sizes) + 9),
        )


@exercise(
    "network/cut",
    '''
def my_cut(parameters, outputs, room):
    """Return the layer before which to cut a network for two devices, or None.

    Each device can hold `room` parameters, and must have at least one layer.
    Of the cuts that fit, take the one that sends the fewest numbers. If
    several send equally few, take the first of them. If no cut fits, return
    None.

    parameters: for each layer, how many parameters it has.
    outputs: for each layer, how many numbers it outputs per sample.
    """
    raise NotImplementedError(
        "Which numbers are sent if you cut before layer 3?",
    )
''',
    _rooms,
)
def judge_cut(found, parameters, outputs, room):
    cuts = range(1, len(parameters))
    fit = [c for c in cuts if max(sum(parameters[:c]), sum(parameters[c:])) <= room]
    if found is None:
        yield "a cut that fits is found", fit and f"before {fit[0]}, both parts fit"
        return
    yield "each device has a layer", found not in cuts and f"it is {found}"
    yield "both parts fit", found not in fit and f"it is {found}"
    least = min(outputs[c - 1] for c in fit)
    sends = outputs[found - 1]
    more = sends > least and f"{sends} numbers travel, not {least}"
    yield "the output of the layer before the cut travels", more
    first = next(c for c in fit if outputs[c - 1] == least)
    yield "of several equally good ones, it is the first", other(found, first)


def _normed(draw: random.Random) -> Iterator[tuple]:
    for counts in ([2], [2, 2], [3, 1], [4, 0, 2], [draw.randint(1, 9), 5]):
        gs, units = ([arrays(draw, n, 2) for n in counts] for _ in range(2))
        yield gs, units, arrays(draw, 2)


def _centred(gs: list, units: list, scale: np.ndarray) -> list[np.ndarray]:
    """The gradients of inputs that are normalized together."""
    n = max(1, sum(map(len, gs)))
    mean = sum(g.sum(0) for g in gs) / n
    along = sum((g * u).sum(0) for g, u in zip(gs, units)) / n
    return [scale * (g - mean - u * along) for g, u in zip(gs, units)]


@exercise(
    "batch-normalization/input-gradients",
    '''
def my_input_gradients(gs, units, scale):
    """Return each device's gradient of its inputs, as a list.

    The inputs of all devices are normalized together.

    gs: for each device, the gradient of its outputs, an array (samples,
        channels). A device may have no samples.
    units: for each device, its normalized inputs u, an array of the same
        shape.
    scale: gamma times s, an array with one number per channel.
    """
    raise NotImplementedError(
        "You need two sums over all samples: of g, and of g times u."
    )
''',
    _normed,
)
def judge_input_gradients(found, gs, units, scale):
    yield "one gradient per device", other(len(found), len(gs))
    right = _centred(gs, units, scale)
    wrong = all_off(found, right)
    one_by_one = list(zip(gs, units))
    alone = [_centred([g], [u], scale)[0] for g, u in one_by_one]
    local = wrong and not all_off(found, alone) and wrong
    yield "the sums are over all devices", local
    zeros = [0 * u for u in units]
    still = wrong and not all_off(found, _centred(gs, zeros, scale)) and wrong
    yield "an input also moves the spread", still
    means = [(g.mean(0), (g * u).mean(0)) for g, u in one_by_one if len(g)]
    mean, along = np.mean(means, axis=0)
    by_device = [scale * (g - mean - u * along) for g, u in one_by_one]
    shared = wrong and not all_off(found, by_device) and wrong
    yield "each sample weighs the same", shared
    unshifted = [
        a + scale * sum(g.sum(0) for g in gs) / sum(map(len, gs)) for a in right
    ]
    yield (
        "an input also moves the mean",
        wrong and not all_off(found, unshifted) and wrong,
    )
    yield "it is the gradient that the chain rule gives", wrong


def _gradients(draw: random.Random) -> Iterator[tuple]:
    for k, names in ((1, "W"), (2, "W"), (2, "g"), (3, "Wg"), (4, "WbgB")):
        done = [name for name in names if name in "gB"]
        same = {name: arrays(draw, 2) for name in done}
        own = [{n: same.get(n, arrays(draw, 2)) for n in names} for _ in range(k)]
        yield own, done


@exercise(
    "batch-normalization/summed-once",
    '''
def my_totals(grads, summed):
    """Return a dict with the gradient of the whole batch for each name.

    Some layers have already added up the gradients of all devices, so that all
    devices have the same. All other gradients come from the device's own
    samples only.

    grads: for each device, a dict from each parameter's name to its gradient.
    summed: the names of the parameters whose gradients have already been added
        up.
    """
    raise NotImplementedError(
        "Which gradients do you add up, and which do you take as they are?"
    )
''',
    _gradients,
)
def judge_summed_once(found, grads, summed):
    names = sorted(grads[0])
    yield "each parameter has a gradient", other(sorted(found), names)
    again = [n for n in summed if off(found[n], grads[0][n])]
    yield "summed gradients aren't summed again", again and f"{again[0]!r} is off"
    alone = [n for n in names if n not in summed]
    sums = {n: sum(own[n] for own in grads) for n in alone}
    less = [n for n in alone if off(found[n], sums[n])]
    yield (
        "gradients that differ per device are added up",
        less and f"{less[0]!r} is off",
    )
