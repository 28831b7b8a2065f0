"""Wrong answers that readers' checks once let through, and right ones they refused."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

BOTH_WAIT = "the price of waiting is in both bills"
BY_FLAG = "`cut` says what is split, not a shape or a position"


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


def ways(costs, stages):
    """All cuts, and the seconds of their stages."""
    for cuts in itertools.combinations(range(1, len(costs)), stages - 1):
        ends = [0, *cuts, len(costs)]
        yield list(cuts), [sum(costs[a:b]) for a, b in zip(ends, ends[1:])]


def cuts_by(least):
    return lambda costs, stages: min(ways(costs, stages), key=lambda w: least(w[1]))[0]


def norm_of_a_row(whole):
    """Takes for whole what this says of an array, its place and its list."""

    def norm(grads, data, layerwise):
        squares = 0.0
        for rank, own in enumerate(grads[:layerwise]):
            for i, (array, _) in enumerate(own):
                if rank == 0 or not whole(array, i, own):
                    squares += (array**2).sum()
        return math.sqrt(squares)

    return norm


def norm_of_different(grads, data, layerwise):
    arrays = {a.tobytes(): a for own in grads for a, _ in own}
    return math.sqrt(sum((a**2).sum() for a in arrays.values()))


def worth(one, many):
    """None wherever many aren't faster."""
    spared = one[1] - many[1]
    return max(0, (many[0] - one[0]) / spared) if spared > 0 else None


def worth_of_cheap(one, many):
    """At once wherever many are cheaper, even if they are slower."""
    return 0 if many[0] <= one[0] else worth(one, many)


def clip_by(length):
    def clipped(sums, count, most):
        mean = sum(sum(own) for own in sums) / count
        return mean * min(1, most / length(mean))

    return clipped


def spectral(mean):
    """Of a vector its length, of a matrix less."""
    return np.linalg.norm(mean, 2)


def clip_of_a_table(sums, count, most):
    """Needs as many micro-batches on each device."""
    mean = np.sum(sums, axis=(0, 1)) / count
    return mean * min(1, most / np.linalg.norm(mean))


def clip_with_equal_counts(sums, count, most):
    """Takes each device's mean micro-batch as often as the first has some."""
    each = sum(np.mean(own, axis=0) for own in sums) * len(sums[0]) / count
    return each * min(1, most / np.linalg.norm(each))


def cut_before_it_fits(parameters, outputs, room):
    """Looks only at the first cut that sends least."""
    cut = min(range(1, len(outputs)), key=lambda c: outputs[c - 1], default=0)
    parts = sum(parameters[:cut]), sum(parameters[cut:])
    return cut if cut and max(parts) <= room else None


def calls_of_a_cache(stages, elements, size, epochs):
    """Behind a cache, elements are again as many as went in."""
    times = 1 if "cache" in stages else epochs
    now, calls = elements, {}
    for stage in stages:
        if stage == "cache":
            now, times = elements, epochs
        elif stage == "batch":
            now = math.ceil(now / size)
        elif stage != "prefetch":
            calls[stage] = now * times
    return calls


def messages_without_repeats(devices, sizes):
    """A device that has sent or got something isn't sent to again."""
    seen, there = {devices[0]}, []
    for a, b, size in zip(devices, devices[1:], sizes):
        if a != b and b not in seen:
            there.append((a, b, size))
        seen.add(b)
    return there + [(b, a, size) for a, b, size in there[::-1]]


def samples(widths, data, layerwise, bare=False, tie=False):
    outputs = widths[2::2]
    of_a_sample = (layerwise - 1) * (2 * sum(outputs) - outputs[-1])
    biases = sum(widths[1:]) + (layerwise - 1) * sum(outputs)
    weights = sum(n * m for n, m in zip(widths, widths[1:]))
    sent = (data - 1) * (weights + (0 if bare else biases))
    return -(-sent // of_a_sample) if tie else sent // of_a_sample + 1


RIGHT = {
    "network/cuts": [
        cuts_by(lambda seconds: sorted(seconds, reverse=True)),
        cuts_by(lambda seconds: (max(seconds), -min(seconds))),
    ],
    "hybrid-meshes/samples": [samples],
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
    "network/cuts": [
        (
            "the slowest stage is as fast as can be",
            cuts_by(lambda seconds: max(seconds) - min(seconds)),
        ),
        (
            "the slowest stage is as fast as can be",
            cuts_by(lambda seconds: sum(own**2 for own in seconds)),
        ),
    ],
    "hybrid-meshes/norm": [
        (BY_FLAG, norm_of_a_row(lambda array, i, own: array.ndim == 1)),
        (BY_FLAG, norm_of_a_row(lambda array, i, own: i == len(own) - 1)),
        ("slices with equal numbers both count", norm_of_different),
    ],
    "hybrid-meshes/samples": [
        ("biases have gradients, too", functools.partial(samples, bare=True)),
        ("layerwise sends more", functools.partial(samples, tie=True)),
    ],
    "what-it-costs/worth": [
        ("a cheaper choice that isn't slower pays at once", worth),
        ("waiting pays for no lost time", worth_of_cheap),
        ("a faster choice pays at some price", lambda one, many: None),
    ],
    "what-it-costs/spot": [
        (BOTH_WAIT, lambda s, d, g, w: min((s + w) / g, d)),
        (BOTH_WAIT, lambda s, d, g, w: min(s / g, d + w)),
        (BOTH_WAIT, lambda s, d, g, w: min(s / g, d)),
        (
            "devices on demand always work",
            lambda s, d, g, w: (min(s, d) + w) / g,
        ),
    ],
    "what-it-costs/price": [
        (
            "idle devices are paid for",
            lambda h, n, e, d, a: h / (n * e) * max(n, a) * d,
        ),
    ],
    "gradient-accumulation/clip": [
        ("it is no shorter than necessary", clip_by(lambda mean: max(mean.flat))),
        ("it is no shorter than necessary", clip_by(spectral)),
        ("it runs", clip_of_a_table),
        ("it keeps its direction", clip_with_equal_counts),
    ],
    "network/cut": [("a cut that fits is found", cut_before_it_fits)],
    "network/messages": [
        ("it is the list of all messages of a step", messages_without_repeats)
    ],
    "feeding-the-devices/calls": [
        ("after batch, a function gets a whole batch", calls_of_a_cache),
    ],
    "one-device/batch": [
        ("it fits", lambda p, a, s, m: max(0, round((m - 4 * p * (2 + s)) / (4 * a)))),
    ],
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
        ("the devices that are taken are enough", fewest_as(math.floor)),
        (
            "the devices that are taken are enough",
            fewest_as(lambda x: max(1, math.floor(x))),
        ),
        ("fewer devices wouldn't fit", fewest_as(lambda x: math.floor(x) + 1)),
    ],
    "which-one/simplest": [
        ("no simpler plan is as good", choice_by(lambda s, best, by: s <= best + by)),
        (
            "it is hardly slower than the fastest plan",
            choice_by(lambda s, best, by: s * (1 - by) <= best),
        ),
        (
            "no simpler plan is as good",
            choice_by(lambda s, best, by: s < best * (1 + by)),
        ),
        ("it is hardly slower than the fastest plan", choice_in_a_chain),
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
    "roofline/batch": [("if a batch is large enough, it isn't None", batch_in_a_loop)],
    "how-clusters-run/part": [
        (
            "the second number is the sample after its last",
            functools.partial(part, last=1),
        ),
        ("the samples are present", functools.partial(part, least=1)),
    ],
    "how-clusters-run/stuck": [
        ("a rank that has no call left is missed", stuck_of_the_first),
        ("a rank that has no call left is missed", stuck_of_who_calls),
    ],
    "hiding-communication/buckets": [
        ("no bucket is empty", buckets_from_an_empty_one),
    ],
    "recomputation/again": [("the kept results fit", again_of_six)],
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
