"""Answers to exercises of part 2 from float32-parts-ways on: right ones, and wrong."""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque

import numpy as np


def flat(parts):
    return np.concatenate([np.ravel(np.asarray(p, float)) for p in parts])


# float32-parts-ways


def same_by_squares(start, one, other):
    apart = sum(np.sum((a - b) ** 2) for a, b in zip(one, other))
    step = sum(np.sum((a - b) ** 2) for a, b in zip(other, start))
    return bool(apart <= 1e-10 * step)


def same_by_hand(start, one, other):
    apart = step = 0.0
    for s, a, b in zip(start, one, other):
        for i in np.ndindex(s.shape):
            apart += (a[i] - b[i]) ** 2
            step += (b[i] - s[i]) ** 2
    return math.sqrt(apart) <= 1e-5 * math.sqrt(step)


def by_the_weights(start, one, other):
    return np.linalg.norm(flat(one) - flat(other)) <= 1e-5 * np.linalg.norm(flat(other))


def all_close(start, one, other):
    return np.allclose(flat(one), flat(other), rtol=1e-5)


def number_by_number(start, one, other):
    start, one, other = map(flat, (start, one, other))
    return np.all(abs(one - other) <= 1e-5 * abs(other - start))


def signed(start, one, other):
    apart = abs(np.sum(flat(one) - flat(other)))
    return apart <= 1e-5 * np.linalg.norm(flat(other) - flat(start))


def first_array_only(start, one, other):
    return same_by_squares(start[:1], one[:1], other[:1])


def leaper_by_groups(leapt):
    steps = sorted(s for s in leapt.values() if s is not None)
    if not steps:
        return None
    groups = [{n} for n in {n for pair in leapt for n in pair}]
    for (a, b), step in leapt.items():
        if step != steps[0]:
            joined = [g for g in groups if a in g or b in g]
            groups = [g for g in groups if g not in joined] + [set().union(*joined)]
    small = [g for g in groups if len(g) == 1]
    return min(small[0]) if len(small) == 1 and len(groups) == 2 else None


def leaper_by_counting(leapt):
    first = min((s for s in leapt.values() if s), default=None)
    count = Counter(n for pair, s in leapt.items() if s and s == first for n in pair)
    ranked = [*count.most_common(2), (None, 0), (None, 0)]
    sole = len({n for p in leapt for n in p}) > 2 and ranked[1][1] == 1 < ranked[0][1]
    rest = len({n for p in leapt for n in p}) - 1
    return ranked[0][0] if sole and ranked[0][1] == rest else None


def from_the_first(leapt):
    """Whoever leaves the run that was listed first."""
    reference = sorted({n for pair in leapt for n in pair})[0]
    if len(leapt) == 1:
        return None
    away = {max(p): s for p, s in leapt.items() if reference in p and s is not None}
    return min(away, key=away.get) if away else None


def most_pairs(leapt):
    """Whoever is in most pairs that are ever apart, the last of them."""
    if len(leapt) == 1 or not any(leapt.values()):
        return None
    first = min(s for s in leapt.values() if s)
    if sum(s == first for s in leapt.values()) > len({n for p in leapt for n in p}) - 1:
        return None
    count = {
        n: sum(s for p, s in leapt.items() if s and n in p) for p in leapt for n in p
    }
    return max(count, key=count.get)


def in_most_of_the_first(leapt):
    """Whoever is in most pairs of the first step, even if others are in as many."""
    first = min((s for s in leapt.values() if s), default=None)
    if first is None or len(leapt) == 1:
        return None
    count = Counter(n for pair, s in leapt.items() if s == first for n in pair)
    return count.most_common(1)[0][0]


def anyone(leapt):
    first = min((s for s in leapt.values() if s), default=0)
    return next((p[1] for p, s in leapt.items() if s and s == first), None)


def distance_by_products(found, right):
    apart = flat(found) - flat(right)
    return math.sqrt(apart @ apart / (flat(right) @ flat(right)))


def distance_in_a_loop(found, right):
    apart = length = 0.0
    for a, b in zip(found, right):
        for x, y in zip(a.ravel().tolist(), b.ravel().tolist()):
            apart, length = apart + (x - y) ** 2, length + y**2
    return (apart / length) ** 0.5


def distance_in_float32(found, right):
    apart = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(found, right)))
    return float(apart / np.linalg.norm(flat(right)))


# why-slower


def rate_kind(rate):
    return "tensor" if isinstance(rate, tuple) else rate


def traces(calls, kind=lambda n, rate: (n, rate_kind(rate))):
    kinds = [kind(*call) for call in calls]
    return [len(set(kinds[: i + 1])) for i in range(len(kinds))]


def traces_by_search(calls):
    kinds, out = [], []
    for n, rate in calls:
        new = (n, rate_kind(rate)) not in kinds
        kinds.append((n, rate_kind(rate)))
        out.append((out[-1] if out else 0) + new)
    return out


def traces_summed(calls):
    kinds = [(n, rate_kind(rate)) for n, rate in calls]
    return list(itertools.accumulate(kinds.index(k) == i for i, k in enumerate(kinds)))


def only_the_last(calls):
    kinds = [(n, rate_kind(rate)) for n, rate in calls]
    return list(itertools.accumulate(a != b for a, b in zip(kinds, [None, *kinds])))


def best_devices(fixed, sample, batch, message, most, share=lambda b, k: -(-b // k)):
    times = [sample * share(batch, k) + message * k for k in range(1, most + 1)]
    return 1 + times.index(min(times))


def devices_in_a_loop(fixed, sample, batch, message, most):
    best, least = 1, fixed + sample * batch
    for k in range(2, most + 1):
        time = fixed + sample * math.ceil(batch / k) + message * (k - 1)
        if time < least:
            best, least = k, time
    return best


def the_last_best(fixed, sample, batch, message, most):
    return max(
        range(1, most + 1), key=lambda k: (-sample * -(-batch // k) - message * k, k)
    )


def verdict(one, again, many, noise=None, ratio=None):
    a, b, c = map(np.asarray, (one, again, many))
    noise = noise or np.exp(np.max(np.abs(np.log(b / a))))
    ratio = ratio or np.median(a / c)
    if abs(np.log(ratio)) <= np.log(noise):
        return "noise"
    return "faster" if ratio > 1 else "slower"


def verdict_by_sorting(one, again, many):
    noise = max(max(a / b, b / a) for a, b in zip(one, again))
    ratios = sorted(a / b for a, b in zip(one, many))
    middle = len(ratios) // 2
    ratio = (ratios[middle] + ratios[~middle]) / 2
    return "faster" if ratio > noise else "slower" if ratio * noise < 1 else "noise"


# collectives, trees and hierarchies, hiding communication


def packing_in_full(sizes, n, a, b):
    def ring(s):
        return 2 * (n - 1) * (a + b * s / n)

    return sum(map(ring, sizes)) / ring(sum(sizes))


def both_ways_from_chunks(n):
    plan = [[] for _ in range(n // 2)]
    for chunk in range(n):
        for s in range(n // 2):
            at = (chunk + s) % n
            plan[s].append((at, (at + 1) % n, chunk))
        for s in range((n - 1) // 2):
            at = (chunk - s) % n
            plan[s].append((at, (at - 1) % n, chunk))
    return plan


def both_ways_by_search(n):
    """Breadth first from each chunk's owner, each device visited once."""
    plan = [[] for _ in range(n // 2)]
    for chunk in range(n):
        seen, todo = {chunk}, deque([(chunk, 0)])
        while todo:
            at, step = todo.popleft()
            for to in ((at + 1) % n, (at - 1) % n):
                if to not in seen:
                    seen.add(to)
                    plan[step].append((at, to, chunk))
                    todo.append((to, step + 1))
    return plan


def one_way(n):
    return [[(i, (i + 1) % n, (i - s) % n) for i in range(n)] for s in range(n - 1)]


def far_ways(n):
    return [[(i, j, i) for i in range(n) for j in range(n) if i != j]][: n - 1]


def without_left(n):
    return one_way(n)[: n // 2]


def both_in_vain(n):
    steps = range(n // 2)
    ways = [(i, d) for i in range(n) for d in ((1, -1) if n > 2 else (1,))]
    return [[(i, (i + d) % n, (i - d * s) % n) for i, d in ways] for s in steps]


def too_early(n):
    return [
        [(i, (i + 1) % n, (i - s - 1) % n) for i in range(n)] for s in range(n // 2)
    ]


def leaving_by_arrays(n, size, distances):
    i = np.arange(n)
    parts = 0.5 ** np.arange(1, len(distances) + 1)
    return sum(
        p * np.sum(i // size != (i ^ d) // size) for p, d in zip(parts, distances)
    )


def leaving_by_messages(n, size, distances, inside=False, part=0.5, both=True):
    total, length = 0.0, 0.5
    for far in distances:
        for i in range(n):
            if (inside or i // size != (i ^ far) // size) and (both or i < i ^ far):
                total += length
        length *= part
    return total


def levels(groups, members, size, inside, outside):
    def message(link, part):
        return link[0] + link[1] * part

    scatter = (members - 1) * message(inside, size / members)
    ring = 2 * (groups - 1) * message(outside, size / members / groups)
    return scatter + ring + scatter


def levels_step_by_step(groups, members, size, inside, outside):
    parts = [(inside, size / members)] * (members - 1)
    parts += [(outside, size / (members * groups))] * (2 * groups - 2) + parts
    return sum(a + b * part for (a, b), part in parts)


def sticks_out(ready, sizes, a, b, since=-1):
    ends = itertools.accumulate(
        zip(ready, sizes), lambda end, m: max(end, m[0]) + a + b * m[1], initial=0.0
    )
    return list(ends)[-1] - (ready[-1] if since else 0)


def sticks_out_by_paths(ready, sizes, a, b):
    """The wire never rests from some message on: the worst of these."""
    took = [a + b * s for s in sizes]
    return max(t + sum(took[i:]) for i, t in enumerate(ready)) - ready[-1]


def order_by_ticks(ready, seconds):
    order, now, busy, left = [], 0, 0, set(range(len(ready)))
    while left:
        waits = [i for i in left if ready[i] <= now]
        if now >= busy and waits:
            order.append(min(waits))
            left.remove(min(waits))
            busy = now + seconds
        now += 1
    return order


def order_by_sorting(ready, seconds):
    left, order, now = sorted(range(len(ready)), key=lambda i: ready[i]), [], 0
    while left:
        now = max(now, ready[left[0]])
        waits = [i for i in left if ready[i] <= now]
        order.append(min(waits))
        left = [i for i in left if i != order[-1]]
        now += seconds
    return order


# gradient accumulation, large batches


def micro_batches(batch, devices, sample, gradients, room, up=True, extra=True):
    share = math.ceil(batch / devices)
    for m in range(1, batch // devices + 1):
        largest = math.ceil(share / m) if up else share // m
        if largest * sample <= room - (gradients if m > 1 and extra else 0):
            return m
    return None


def micro_batches_by_size(batch, devices, sample, gradients, room):
    share = (batch + devices - 1) // devices
    if share * sample <= room:
        return 1
    size = (room - gradients) // sample
    counts = range(2, batch // devices + 1)
    return next((m for m in counts if -(-share // m) <= size), None)


def clipped(g, most):
    return g * min(1.0, most / np.linalg.norm(g))


def clipped_sums(sums, count, most):
    return clipped(np.sum([np.sum(own, axis=0) for own in sums], axis=0) / count, most)


def clipped_in_a_loop(sums, count, most):
    total = 0
    for own in sums:
        for each in own:
            total = total + each / count
    squares = float(np.sum(total**2))
    return total if squares <= most**2 else total * most / math.sqrt(squares)


def critical_by_solving(one, other):
    A = [[1, 1 / one[0]], [1, 1 / other[0]]]
    least, product = np.linalg.solve(A, [one[1], other[1]])
    return least, product / least


def critical_by_ratio(one, other):
    (b, s), (c, t) = one, other
    crit = b * c * (s - t) / (t * c - s * b)
    return s / (1 + crit / b), crit


def way(gradients, rates, momentum, change=lambda old, new: new / old, sign=-1):
    at, buffer, before, found = 0.0, 0.0, rates[0], []
    for gradient, rate in zip(gradients, rates):
        buffer = momentum * buffer * change(before, rate) + rate * gradient
        at, before = at + sign * buffer, rate
        found.append(at)
    return found


def way_by_sums(gradients, rates, momentum):
    n = len(gradients)
    pushes = [
        sum(momentum ** (t - s) * gradients[s] for s in range(t + 1)) for t in range(n)
    ]
    return -np.cumsum(np.multiply(rates, pushes))


def noise_scale(means, shard, together=np.mean, power=2, subtract=True):
    k = len(means)
    small = np.mean([np.linalg.norm(m) ** power for m in means])
    large = np.linalg.norm(together(means, axis=0)) ** power
    A = [[1, 1 / shard], [1, 1 / (k * shard)]]
    signal, noise = np.linalg.solve(A, [small, large])
    return noise / (signal if subtract else large)


def noise_by_variance(means, shard):
    """What means of a shard spread by is the noise of a sample over its samples."""
    noise = shard * np.var(means, axis=0, ddof=1).sum()
    signal = np.sum(np.mean(means, axis=0) ** 2) - noise / shard / len(means)
    return noise / signal


def busiest_by_arrays(messages):
    load = np.zeros((2, 100), int)
    for a, b, n in messages:
        load[int(a < b), min(a, b) : max(a, b)] += n
    return int(load.max())


def busiest_by_wire(messages):
    wires = range(max(max(a, b) for a, b, _ in messages))
    right = [sum(n for a, b, n in messages if a <= w < b) for w in wires]
    left = [sum(n for a, b, n in messages if b <= w < a) for w in wires]
    return max(right + left)


RIGHT = {
    "float32-parts-ways/same-step": [same_by_squares, same_by_hand],
    "float32-parts-ways/leaper": [leaper_by_groups, leaper_by_counting],
    "float32-parts-ways/distance": [distance_by_products, distance_in_a_loop],
    "why-slower/traces": [traces, traces_by_search, traces_summed],
    "why-slower/devices": [best_devices, devices_in_a_loop],
    "why-slower/verdict": [verdict, verdict_by_sorting],
    "collectives/packing": [
        packing_in_full,
        lambda sizes, n, a, b: 1 + (len(sizes) - 1) * a / (a + b * sum(sizes) / n),
    ],
    "collectives/both-ways": [both_ways_from_chunks, both_ways_by_search],
    "trees-and-hierarchy/leaving": [leaving_by_arrays, leaving_by_messages],
    "trees-and-hierarchy/hierarchy": [levels, levels_step_by_step],
    "trees-and-hierarchy/row": [busiest_by_arrays, busiest_by_wire],
    "critical-batch/noise": [noise_scale, noise_by_variance],
    "hiding-communication/sticks-out": [sticks_out, sticks_out_by_paths],
    "hiding-communication/overtake": [order_by_ticks, order_by_sorting],
    "gradient-accumulation/micro-batches": [micro_batches, micro_batches_by_size],
    "gradient-accumulation/clip": [clipped_sums, clipped_in_a_loop],
    "critical-batch/critical": [critical_by_solving, critical_by_ratio],
    "large-batches/momentum": [way, way_by_sums],
}

WRONG = {
    "float32-parts-ways/same-step": [
        ("it is relative to the step, not to the weights", by_the_weights),
        ("it is relative to the step, not to the weights", all_close),
        ("rounding is allowed", number_by_number),
        ("a mistake is found", signed),
        ("a mistake is found", first_array_only),
        ("rounding is allowed", lambda s, a, b: np.array_equal(flat(a), flat(b))),
    ],
    "float32-parts-ways/leaper": [
        ("the run that all others are compared with can leap", from_the_first),
        ("later leaps don't count", most_pairs),
        ("with two runs, it isn't known", anyone),
        ("if no run leapt, it is None", lambda leapt: min(leapt)[0]),
        ("one run leapt, not a group", in_most_of_the_first),
        ("it is a run's name, or None", min),
        ("a run that is far from all others is named", lambda leapt: None),
    ],
    "float32-parts-ways/distance": [
        (
            "a different direction is a different result",
            lambda f, r: abs(np.linalg.norm(flat(f)) / np.linalg.norm(flat(r)) - 1),
        ),
        ("small numbers count", distance_in_float32),
        (
            "an array counts by its numbers, not as one",
            lambda f, r: np.mean(
                [distance_by_products([a], [b]) for a, b in zip(f, r)]
            ),
        ),
        ("it is the distance", lambda f, r: np.linalg.norm(flat(f) - flat(r))),
        ("it is the distance", lambda f, r: distance_by_products(f, r) ** 2),
    ],
    "why-slower/traces": [
        (
            "the value in a tensor doesn't matter",
            lambda c: traces(c, lambda n, r: (n, r)),
        ),
        (
            "each value of a Python number is traced",
            lambda c: traces(c, lambda n, r: (n, isinstance(r, tuple))),
        ),
        (
            "a different length is traced",
            lambda c: traces(c, lambda n, r: rate_kind(r)),
        ),
        ("a call that was traced before isn't traced again", only_the_last),
        ("each kind of call is traced once", lambda c: list(range(1, len(c) + 1))),
        ("one count per call", lambda c: traces(c)[-1:]),
    ],
    "why-slower/devices": [
        (
            "each further device costs a message",
            lambda f, s, b, m, k: best_devices(f, s, b, 0, k),
        ),
        (
            "the largest share counts",
            lambda *given: best_devices(*given, share=lambda b, k: b / k),
        ),
        ("of equally fast numbers, it is the smallest", the_last_best),
        (
            "it is a number of your devices",
            lambda f, s, b, m, k: best_devices(f, s, b, m, k) - 1,
        ),
        ("no other number is faster", lambda f, s, b, m, k: 1),
    ],
    "why-slower/verdict": [
        (
            "the noise counts in both directions",
            lambda a, b, c: verdict(a, b, c, max(1, *np.divide(b, a))),
        ),
        (
            "only times of the same round are compared",
            lambda a, b, c: verdict(a, b, c, ratio=np.median(a) / np.median(c)),
        ),
        (
            "a difference within the noise is noise",
            lambda a, b, c: verdict(a, b, c, 1.0),
        ),
        (
            "less time is faster",
            lambda a, b, c: verdict(c, np.multiply(c, np.divide(b, a)), a),
        ),
        ("a difference above the noise is reported", lambda a, b, c: "noise"),
    ],
    "collectives/packing": [
        ("each tensor pays for its own steps", lambda s, n, a, b: 1.0),
        (
            "a message is a chunk, not a tensor",
            lambda s, n, a, b: (len(s) * a + b * sum(s)) / (a + b * sum(s)),
        ),
        (
            "more than 1 means that packing pays",
            lambda s, n, a, b: 1 / packing_in_full(s, n, a, b),
        ),
        ("it is the ratio of the two times", lambda s, n, a, b: float(len(s))),
        (
            "one tensor gains nothing",
            lambda s, n, a, b: len(s) * (a + b * sum(s) / n) / (a + b * sum(s)),
        ),
    ],
    "collectives/both-ways": [
        ("it takes the fewest steps", one_way),
        ("all devices send to a neighbour", far_ways),
        ("all devices have all chunks in the end", without_left),
        ("no chunk is sent to a device that has it", both_in_vain),
        ("a sender has the chunk that it sends", too_early),
        (
            "a wire carries one chunk each way",
            lambda n: [sum(one_way(n), [])] * (n - 1),
        ),
    ],
    "trees-and-hierarchy/leaving": [
        (
            "messages inside a group don't count",
            lambda *given: leaving_by_messages(*given, inside=True),
        ),
        (
            "a message is half as long as the one before",
            lambda *given: leaving_by_messages(*given, part=1),
        ),
        (
            "a message is half as long as the one before",
            lambda *given: 2 * leaving_by_messages(*given, part=1),
        ),
        ("both partners send", lambda *given: leaving_by_messages(*given, both=False)),
        (
            "half a tensor is sent first, and nothing comes back",
            lambda *g: 2 * leaving_by_messages(*g),
        ),
        (
            "it is the amount that leaves the groups",
            lambda n, size, far: n * 0.5 ** len(far) * (size < n),
        ),
    ],
    "trees-and-hierarchy/hierarchy": [
        (
            "a member takes its own chunk outside",
            lambda g, m, s, i, o: (
                levels(g, m, s, i, o) + 2 * (g - 1) * o[1] * (s / g - s / g / m)
            ),
        ),
        (
            "across groups, it is a whole all-reduce",
            lambda g, m, s, i, o: (
                levels(g, m, s, i, o) - (g - 1) * (o[0] + o[1] * s / g / m)
            ),
        ),
        (
            "one group reduce-scatters and all-gathers",
            lambda g, m, s, i, o: (
                levels(g, m, s, i, o) - (m - 1) * (i[0] + i[1] * s / m)
            ),
        ),
        (
            "it is the time of the three parts",
            lambda g, m, s, i, o: (
                levels(g, m, s, i, o)
                + 2 * (g - 1) * o[1] * s / m
                - 2 * (g - 1) * o[1] * s / m / g
            ),
        ),
    ],
    "trees-and-hierarchy/row": [
        ("messages on one wire add up", lambda m: max(n for _, _, n in m)),
        (
            "a wire's two directions are counted separately",
            lambda m: busiest_by_arrays([(min(a, b), max(a, b), n) for a, b, n in m]),
        ),
        (
            "a message ends at its receiver",
            lambda m: busiest_by_arrays(
                [(a, b + 1, n) if a < b else (a + 1, b, n) for a, b, n in m]
            ),
        ),
        (
            "bytes count, not messages",
            lambda m: busiest_by_arrays([(a, b, 1) for a, b, _ in m]),
        ),
        (
            "it is the amount that the busiest wire carries",
            lambda m: sum(n for _, _, n in m) + 1,
        ),
    ],
    "critical-batch/noise": [
        (
            "the batch's gradient has noise in it, too",
            lambda m, n: noise_scale(m, n, subtract=False),
        ),
        (
            "the batch's gradient is a mean, too",
            lambda m, n: noise_scale(m, n, together=np.sum),
        ),
        ("lengths are squared", lambda m, n: noise_scale(m, n, power=1)),
        ("it is noise divided by signal", lambda m, n: 1 / noise_scale(m, n)),
    ],
    "hiding-communication/sticks-out": [
        (
            "messages during the backward pass are free",
            lambda r, s, a, b: sum(a + b * x for x in s),
        ),
        (
            "it is counted from the end of the backward pass",
            lambda *given: sticks_out(*given, since=0),
        ),
        (
            "it is counted from the end of the backward pass",
            lambda r, s, a, b: max(0.0, sum(a + b * x for x in s) - r[-1]),
        ),
        (
            "a message waits for the wire",
            lambda r, s, a, b: max(t + a + b * x for t, x in zip(r, s)) - r[-1],
        ),
        (
            "a message that is late makes the next one late",
            lambda r, s, a, b: a + b * s[-1],
        ),
    ],
    "hiding-communication/overtake": [
        ("the wire doesn't rest while a layer waits", lambda r, s: list(range(len(r)))),
        (
            "the lowest layer that waits goes first",
            lambda r, s: list(range(len(r)))[::-1],
        ),
        ("each layer is sent once", lambda r, s: order_by_ticks(r, s)[:1]),
        (
            "the lowest layer that waits goes first",
            lambda r, s: order_by_ticks(r, 1) if s > 1 else list(range(len(r)))[::-1],
        ),
    ],
    "gradient-accumulation/micro-batches": [
        ("it fits", lambda *given: 1),
        (
            "the sum of the gradients needs room",
            lambda *g: micro_batches(*g, extra=False),
        ),
        ("the largest micro-batch must fit", lambda *g: micro_batches(*g, up=False)),
        (
            "the largest share must fit",
            lambda b, k, *rest: micro_batches(b // k, 1, *rest),
        ),
        (
            "it is None if nothing fits",
            lambda b, k, *r: micro_batches(b, k, *r) or -(-b // k),
        ),
        (
            "fewer micro-batches wouldn't fit",
            lambda b, k, s, g, r: -(-b // k) if micro_batches(b, k, s, g, r) else None,
        ),
    ],
    "gradient-accumulation/clip": [
        (
            "it is clipped once, when the sum is complete",
            lambda sums, n, most: sum(
                clipped(g / n, most) for own in sums for g in own
            ),
        ),
        (
            "it is clipped once, when the sum is complete",
            lambda sums, n, most: clipped(
                sum(clipped(sum(own) / n, most) for own in sums), most
            ),
        ),
        (
            "the mean is clipped, not the sum",
            lambda sums, n, most: clipped_sums(sums, 1, most) / n,
        ),
        (
            "a gradient that is too long is made shorter",
            lambda sums, n, most: clipped_sums(sums, n, 1e9),
        ),
        (
            "it keeps its direction",
            lambda sums, n, most: np.clip(clipped_sums(sums, n, 1e9), -most, most),
        ),
        (
            "a gradient that is short enough stays",
            lambda sums, n, most: clipped_sums(sums, n, most / 1e9) * 1e9,
        ),
    ],
    "critical-batch/critical": [
        ("S_min comes first", lambda a, b: critical_by_solving(a, b)[::-1]),
        (
            "S_min belongs to an infinite batch, it isn't the fewest measured steps",
            lambda a, b: (min(a[1], b[1]), critical_by_solving(a, b)[1]),
        ),
        (
            "the curve goes through both races",
            lambda a, b: tuple(critical_by_solving(a, b) * np.array([1, 0.5])),
        ),
        (
            "the curve goes through both races",
            lambda a, b: (b[1] - (b[1] - a[1]) / (b[0] - a[0]) * b[0], a[0]),
        ),
        (
            "where a larger batch saves no step, S_min is that many",
            lambda a, b: (a[1] / 2, a[0]),
        ),
    ],
    "large-batches/momentum": [
        ("the buffer follows the rate", lambda *g: way(*g, change=lambda old, new: 1)),
        (
            "the buffer is multiplied by new over old",
            lambda *g: way(*g, change=lambda old, new: old / new),
        ),
        ("past gradients still count", lambda *g: way(*g, change=lambda old, new: 0)),
        ("a step goes downhill", lambda *g: way(*g, sign=1)),
        ("one position per step", lambda *g: way(*g)[-1:]),
        (
            "it is the path of SGD with momentum",
            lambda g, r, m: way([(1 - m) * x for x in g], r, m),
        ),
    ],
}
