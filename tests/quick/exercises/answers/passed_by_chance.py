"""Wrong answers that readers' checks once let through, and right ones they refused."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np


def fewest_below(parameters, memory, share, devices):
    """Never takes all devices."""
    room = memory * (1 - share)
    return next((n for n in range(1, devices) if 16 * parameters / n <= room), None)


def fewest_as(rounded):
    def fewest(parameters, memory, share, devices):
        found = rounded(16 * parameters / (memory * (1 - share)))
        return found if found <= devices else None

    return fewest


def choice_by(good):
    """The simplest of what is good beside the best."""

    def choice(plans, slower):
        best = min(plans)[0]
        near = [plan for plan in plans if good(plan[0], best, slower)]
        return plans.index(min(near or plans, key=lambda plan: plan[::-1]))

    return choice


def choice_in_a_chain(plans, slower):
    """Each simpler one is hardly slower than the one before, not than the best."""
    now = min(plans)
    for plan in sorted(plans):
        if plan[1] < now[1] and plan[0] <= now[0] * (1 + slower):
            now = plan
    return plans.index(now)


def step(forward, backward, sending, update, turned=True, reversed_=True):
    device, link, sums = sum(forward), 0.0, {}
    layers = list(range(len(update)))
    for i in layers[::-1] if turned else layers:
        device += backward[i]
        link = sums[i] = max(link, device) + sending[i]
    for i in layers[::-1] if reversed_ else layers:
        device = max(device, sums[i]) + update[i]
    return device


def step_sent_late(forward, backward, sending, update):
    device = link = sum(forward) + sum(backward)
    for own, took in zip(sending[::-1], update[::-1]):
        link += own
        device = max(device, link) + took
    return device


def flops_with_a_centre(batch, size, kernel, channels, filters, padded):
    """As many numbers on both sides of the filter's middle: it must be odd."""
    side = size if padded else size - 2 * (kernel // 2)
    return 2 * batch * side**2 * kernel**2 * channels * filters


def batch_in_a_loop(inputs, outputs, ridge, most=50_000):
    """Gives up too early."""
    both = inputs * outputs
    for b in range(1, most):
        if 2 * b * both >= 4 * ridge * (b * (inputs + outputs) + both):
            return b
    return None


def part(samples, rank, world, last=0, least=0):
    each, left = divmod(samples, world)
    start = rank * each + min(rank, left)
    return start, start + max(least, each + (rank < left)) - last


def part_walked(samples, rank, world):
    stop = 0
    for own in range(rank + 1):
        start, stop = stop, stop + -(-(samples - stop) // (world - own))
    return start, stop


def stuck_of_the_first(calls):
    """Its own calls are all that it looks at."""
    for turn, name in enumerate(calls[0]):
        if any(own[turn : turn + 1] != [name] for own in calls):
            return turn
    return None


def stuck_of_who_calls(calls):
    return stuck_of_the_first([own for own in calls if own] or [[]])


def buckets_from_an_empty_one(sizes, limit):
    made = [[]]
    for i in reversed(range(len(sizes))):
        if sum(sizes[j] for j in made[-1]) + sizes[i] > limit:
            made.append([])
        made[-1].append(i)
    return made


def buckets_cleaned(sizes, limit):
    return [bucket for bucket in buckets_from_an_empty_one(sizes, limit) if bucket]


def again_of_six(sizes, seconds, room):
    """Tries no choice of all seven."""
    each, best = range(len(sizes)), (math.inf, [])
    for own in itertools.chain(*(itertools.combinations(each, n) for n in range(7))):
        if sum(sizes[i] for i in each if i not in own) <= room:
            best = min(best, (sum(seconds[i] for i in own), list(own)))
    return best[1]


def sticks_out(ready, sizes, first, later, end=0.0):
    free = 0.0
    for i, (there, size) in enumerate(zip(ready, sizes)):
        free = max(free, there) + (later if i else first) + size
    return free + end - ready[-1]


def micro_batches_of(share):
    """As many as this share has samples, at most."""

    def micro_batches(batch, devices, sample, gradients, room):
        largest = -(-batch // devices)
        for m in range(1, share(batch, devices) + 1):
            if -(-largest // m) * sample + gradients * (m > 1) <= room:
                return m
        return None

    return micro_batches


RIGHT = {
    "which-one/fewest": [fewest_as(lambda x: max(1, math.ceil(x)))],
    "which-one/step": [step],
    "roofline/batch": [functools.partial(batch_in_a_loop, most=200_000)],
    "how-clusters-run/part": [part, part_walked],
    "hiding-communication/buckets": [buckets_cleaned],
    "recomputation/segments": [
        lambda n: min(range(1, n + 1), key=lambda s: (-(-n // s) + s, s)),
        lambda n: min(range(1, n + 1), key=lambda s: (-(-n // s) + s, -s)),
    ],
    "transformer/heads": [lambda x, heads, k: np.stack(_heads(x, k))],
}
WRONG = {
    "gradient-accumulation/micro-batches": [
        (
            "each device has a sample in each micro-batch",
            micro_batches_of(lambda batch, devices: -(-batch // devices)),
        ),
        (
            "something fits",
            micro_batches_of(lambda batch, devices: batch // devices - 1 or 1),
        ),
    ],
    "which-one/fewest": [
        ("all devices may be taken", fewest_below),
        ("what is taken is enough", fewest_as(math.floor)),
        ("what is taken is enough", fewest_as(lambda x: max(1, math.floor(x)))),
        ("fewer wouldn't do", fewest_as(lambda x: math.floor(x) + 1)),
    ],
    "which-one/simplest": [
        ("no simpler one is as good", choice_by(lambda s, best, by: s <= best + by)),
        (
            "it is hardly slower than the best",
            choice_by(lambda s, best, by: s * (1 - by) <= best),
        ),
        (
            "no simpler one is as good",
            choice_by(lambda s, best, by: s < best * (1 + by)),
        ),
        ("it is hardly slower than the best", choice_in_a_chain),
    ],
    "which-one/step": [
        (
            "the backward pass begins with the last layer",
            functools.partial(step, turned=False),
        ),
        (
            "the backward pass begins with the last layer",
            functools.partial(step, turned=False, reversed_=False),
        ),
        (
            "updates go in the order of their sums, each waits for its own",
            functools.partial(step, reversed_=False),
        ),
        ("the link works while the device computes", step_sent_late),
    ],
    "roofline/convolution": [
        ("a kernel may have an even size, too", flops_with_a_centre),
    ],
    "roofline/batch": [("where one is large enough, it is said", batch_in_a_loop)],
    "how-clusters-run/part": [
        (
            "the second is the first one after its own",
            functools.partial(part, last=1),
        ),
        ("the samples are there", functools.partial(part, least=1)),
    ],
    "how-clusters-run/stuck": [
        ("who has no call left is missed", stuck_of_the_first),
        ("who has no call left is missed", stuck_of_who_calls),
    ],
    "hiding-communication/buckets": [
        ("no bucket is empty", buckets_from_an_empty_one),
    ],
    "recomputation/again": [("what is kept fits", again_of_six)],
    "hiding-communication/sticks-out": [
        ("each message pays alpha", lambda r, s, a, b: sticks_out(r, _by(s, b), a, 0)),
        ("each message pays alpha", lambda r, s, a, b: sticks_out(r, _by(s, b), 0, 0)),
        (
            "each message pays alpha",
            lambda r, s, a, b: sticks_out(r, _by(s, b), 0, 0, end=a),
        ),
    ],
}


def _by(sizes, beta):
    return [beta * size for size in sizes]


def _heads(qkv, k):
    parts = qkv.reshape(len(qkv), 3, k, -1)
    return [parts[:, :, d].reshape(len(qkv), -1) for d in range(k)]
