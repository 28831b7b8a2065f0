"""Answers to the first exercises of part 2: right ones, and mistakes."""

from __future__ import annotations

import copy
import functools
import heapq
import itertools

import numpy as np

from tests.quick.exercises.answers.start import hunted


def overlap(x, y, device=True):
    same = x[0] == y[0] or not device
    return same and max(x[1], y[1]) < min(x[1] + x[2], y[1] + y[2])


def shared(replicas, device=True):
    pairs = itertools.combinations(replicas, 2)
    return any(overlap(x, y, device) for a, b in pairs for x in a for y in b)


def shared_by_bytes(replicas):
    held = [{(d, i) for d, a, n in own for i in range(a, a + n)} for own in replicas]
    return len(set().union(*held)) < sum(map(len, held))


def shared_by_sorting(replicas):
    places = sorted(
        (d, a, a + n, r) for r, own in enumerate(replicas) for d, a, n in own
    )
    return any(
        x[0] == y[0] and y[1] < x[2] and x[3] != y[3]
        for x, y in itertools.combinations(places, 2)
    )


def same_place(replicas):
    pairs = itertools.combinations(replicas, 2)
    return any(x == y for a, b in pairs for x in a for y in b)


def any_two(replicas):
    return any(overlap(x, y) for x, y in itertools.combinations(sum(replicas, []), 2))


def touching(replicas):
    def meet(x, y):
        return x[0] == y[0] and x[1] <= y[1] + y[2] and y[1] <= x[1] + x[2]

    pairs = itertools.combinations(replicas, 2)
    return any(meet(x, y) for a, b in pairs for x in a for y in b)


def parted(replicas, equal=lambda a, b: a.tobytes() == b.tobytes()):
    return [
        i
        for i, whole in enumerate(replicas[0])
        if not all(equal(own[i], whole) for own in replicas)
    ]


def parted_by_integers(replicas):
    def bits(p):
        return np.frombuffer(p.tobytes(), np.uint32)

    return parted(replicas, lambda a, b: (bits(a) == bits(b)).all())


def states_by_stacks(params, slots, devices):
    own = [[np.tile(p, (devices, 1)) for p in each] for each in (params, slots)]
    return [tuple([p[d] for p in each] for each in own) for d in range(devices)]


def chain(n, last=None):
    end = n - 1 if last is None else last
    back = [(i, i - 1, "take") for i in range(end, 0, -1)]
    return [(i, i + 1, "add") for i in range(end)] + back


def chain_from_the_end(n):
    return [(n - 1 - i, n - 1 - j, what) for i, j, what in chain(n)]


def chain_from_both_ends(n):
    half = n // 2
    plan = [(i, i + 1, "add") for i in range(half)]
    plan += [(i, i - 1, "add") for i in range(n - 1, half, -1)]
    plan += [(i, i - 1, "take") for i in range(half, 0, -1)]
    return plan + [(i, i + 1, "take") for i in range(half, n - 1)]


def chain_that_adds_back(n):
    return [(i, j, "add") for i, j, _ in chain(n)]


def star(n):
    return [(i, 0, "add") for i in range(1, n)] + [(0, i, "take") for i in range(1, n)]


def by_queue(samples, speeds):
    shares = [0] * len(speeds)
    queue = [(1 / speed, d) for d, speed in enumerate(speeds)]
    heapq.heapify(queue)
    for _ in range(samples):
        _, d = heapq.heappop(queue)
        shares[d] += 1
        heapq.heappush(queue, ((shares[d] + 1) / speeds[d], d))
    return shares


def by_deadline(samples, speeds):
    """The earliest end by which all samples can be done."""
    ends = sorted((n + 1) / s for s in speeds for n in range(samples))
    end = ends[samples - 1] if samples else 0
    shares = [int(end * s * (1 + 1e-12)) for s in speeds]
    for d in range(len(shares)):
        shares[d] -= min(shares[d], sum(shares) - samples)
    return shares


def rounded(samples, speeds):
    shares = [int(samples * s / sum(speeds)) for s in speeds]
    shares[0] += samples - sum(shares)
    return shares


def padded_by_modulo(samples, devices):
    total = -(-samples // devices) * devices
    positions = [i if i < samples else 0 for i in range(total)]
    return positions, (np.arange(total) < samples).astype(int)


def padded_one_by_one(samples, devices):
    positions, weights = list(range(samples)), [1.0] * samples
    while len(positions) % devices:
        positions.append(0)
        weights.append(0.0)
    return positions, weights


def padded(samples, devices, weight=0, extra=0, sample=0):
    more = -samples % devices + extra * devices
    return [*range(samples), *[sample] * more], [1] * samples + [weight] * more


def joined(sizes, call, rate):
    times = [call + size / rate for size in sizes]
    return sum(times) / (call + sum(sizes) / rate)


def start(shapes, slots, devices, to=-1, remembers=1, count=8):
    numbers = sum(int(np.prod(shape)) for shape in shapes)
    return (devices + to) * (4 * numbers * (1 + remembers * slots) + count)


RIGHT = {
    "parameters-and-devices/shared": [shared, shared_by_bytes, shared_by_sorting],
    "parameters-and-devices/parted": [parted, parted_by_integers],
    "parameters-and-devices/start": [
        start,
        lambda shapes, slots, k: sum(
            8 + sum(len(np.zeros(s).ravel()) * 4 * (slots + 1) for s in shapes)
            for _ in range(1, k)
        ),
    ],
    "parameters-and-devices/states": [
        states_by_stacks,
        lambda params, slots, k: [copy.deepcopy((params, slots)) for _ in range(k)],
    ],
    "all-reduce/chain": [chain, chain_from_the_end, chain_from_both_ends],
    "all-reduce/joined": [
        joined,
        lambda sizes, a, r: 1 + (len(sizes) - 1) * a / (a + sum(sizes) / r),
    ],
    "many-devices/by-speed": [by_queue, by_deadline],
    "many-devices/epoch": [
        lambda n, b, k: ((n + b - 1) // b, ((n - 1) % b + 1) // k),
        lambda n, b, k: (
            len(range(0, n, b)),
            len(range(0, n, b)[-1:]) and (n - range(0, n, b)[-1]) // k,
        ),
    ],
    "many-devices/padded": [padded_by_modulo, padded_one_by_one],
}
WRONG = {
    "parameters-and-devices/shared": [
        (
            "each device has a memory of its own",
            functools.partial(shared, device=False),
        ),
        ("one byte in common is enough", same_place),
        ("a replica may hold a variable twice", any_two),
        ("neighbours in memory share nothing", touching),
        ("a variable that is in both replicas is shared", lambda replicas: False),
    ],
    "parameters-and-devices/parted": [
        ("a NaN equals the same NaN", functools.partial(parted, equal=np.array_equal)),
        (
            "-0.0 isn't 0.0",
            lambda r: parted(r, lambda a, b: np.array_equal(a, b, equal_nan=True)),
        ),
        (
            "nearly equal isn't equal",
            lambda r: parted(r, lambda a, b: np.allclose(a, b, equal_nan=True)),
        ),
        ("all replicas are compared", lambda r: parted(r[:2])),
        ("all parameters that differ are named, in order", lambda r: parted(r)[:1]),
    ],
    "parameters-and-devices/start": [
        ("the first device has everything already", functools.partial(start, to=0)),
        (
            "the optimizer's state is copied, too",
            functools.partial(start, remembers=0),
        ),
        ("the step count is copied, too", functools.partial(start, count=0)),
        (
            "each number has its bytes",
            lambda s, m, k: (k - 1) * (4 * sum(map(sum, s)) * (1 + m) + 8),
        ),
    ],
    "parameters-and-devices/states": [
        *hunted("parameters-and-devices/states"),
        ("one state per device", lambda params, slots, k: [(params, slots)]),
    ],
    "all-reduce/chain": [
        ("nothing is added twice", chain_that_adds_back),
        ("only neighbours send to each other", star),
        ("all devices have the sum in the end", lambda n: chain(n)[: n - 1]),
        ("all devices have the sum in the end", lambda n: chain(n, last=max(0, n - 2))),
        ("no message is sent in vain", lambda n: chain(n) + chain(n)[n - 1 :]),
    ],
    "all-reduce/joined": [
        ("bytes take their time in both", lambda sizes, a, r: len(sizes)),
        ("each call costs its fixed time", lambda sizes, a, r: 1.0),
        ("many calls take longer than one", lambda *given: 1 / joined(*given)),
        (
            "it is the time of many calls, divided by the time of one",
            lambda sizes, a, r: len(sizes) * a + sum(sizes) / r,
        ),
    ],
    "many-devices/by-speed": [
        (
            "a faster device gets more",
            lambda n, s: [n // len(s) + (i < n % len(s)) for i in range(len(s))],
        ),
        ("no other split ends earlier", rounded),
        (
            "no sample is lost or doubled",
            lambda n, s: [round(n * v / sum(s)) for v in s],
        ),
        ("samples are whole", lambda n, s: [n * v / sum(s) for v in s]),
        (
            "no other split ends earlier",
            lambda n, s: [
                n * (v == max(s)) * (i == s.index(max(s))) for i, v in enumerate(s)
            ],
        ),
    ],
    "many-devices/epoch": [
        (
            "devices don't change the number of steps",
            lambda n, b, k: (-(-n // (b * k)), b),
        ),
        ("the last batch counts, too", lambda n, b, k: (n // b, b // k)),
        (
            "the last batch has the images that remain",
            lambda n, b, k: (-(-n // b), b // k),
        ),
        (
            "the smallest shard is rounded down",
            lambda n, b, k: (-(-n // b), -(-((n - 1) % b + 1) // k)),
        ),
    ],
    "many-devices/padded": [
        ("the added positions have no weight", functools.partial(padded, weight=1)),
        ("no more is added than needed", functools.partial(padded, extra=1)),
        ("the shards are equal", lambda n, k: ([*range(n)], [1] * n)),
        ("the added positions are sample 0", lambda n, k: padded(n, k, sample=n - 1)),
        (
            "the batch comes first",
            lambda n, k: ([*range(n - n % k)], [1] * (n - n % k)),
        ),
    ],
}
