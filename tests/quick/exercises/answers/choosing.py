"""Answers to the exercises of part 8: right ones, and mistakes with what they break."""

from __future__ import annotations

import functools
import itertools
import math
import statistics

import numpy as np

from tests.quick.exercises.answers.start import hunted


def step_by_chains(forward, backward, sending, update):
    """The longest of all ways through the step."""
    n, b, start = len(update), backward[::-1], sum(forward)
    a, u = sending[::-1], update[::-1]
    chains = [start + sum(b) + sum(u)]
    for i in range(n):
        for j in range(i, n):
            chains.append(start + sum(b[: i + 1]) + sum(a[i : j + 1]) + sum(u[j:]))
    return max(chains)


def step(forward, backward, sending, update, queued=True, last=False, turned=True):
    now, link, sums = sum(forward), 0.0, []
    order = list(range(len(update)))[:: -1 if turned else 1]
    for i in order:
        now += backward[i]
        link = (max(now, link) if queued else now) + sending[i]
        sums.append(link)
    for there, i in zip(sums, order):
        now = max(now, max(sums) if last else there) + update[i]
    return now


def held(p, a, batch, n, zero, pieces):
    state = (16, 4 + 12 / n, 2 + 14 / n, 16 / n)[zero]
    return p * state + a * math.ceil(math.ceil(batch / n) / pieces)


def held_by_cutting(p, a, batch, n, zero, pieces):
    share = np.array_split(range(batch), n)[0]
    most = max(map(len, np.array_split(share, pieces)))
    kept = ((12, 1), (2, 2), (2, 3))
    return a * most + sum(b * p / (n if zero >= at else 1) for b, at in kept)


def reading(counts, owners):
    c, o = np.round(counts, 6), np.array(owners)
    if (c == c[0]).all():
        return "right" if c[0] == 1 else "factor"
    if not c.all():
        return "lost"
    return "samples" if any(np.ptp(c[o == d]) for d in o) else "shares"


def reading_by_kinds(counts, owners):
    kinds = {(d, round(c, 6)) for c, d in zip(counts, owners)}
    values = {c for _, c in kinds}
    if len(values) == 1:
        return "right" if values == {1.0} else "factor"
    if 0.0 in values:
        return "lost"
    return "shares" if len(kinds) == len(set(owners)) else "samples"


def exact(counts, owners):
    if len(set(counts)) > 1 and np.ptp(counts) < 1e-6:
        return "samples"
    return reading(counts, owners)


def overlap_by_taking(sizes, extra):
    ends = np.cumsum([0, *sizes])
    found = np.zeros(ends[-1])
    for d in range(len(sizes)):
        found[ends[d] : ends[d + 1]] += 1
        after = (d + 1) % len(sizes)
        found[ends[after] : min(ends[after] + extra, ends[after + 1])] += 1
    return found.tolist()


def overlap_by_lists(sizes, extra):
    shares = [[2] * min(n, extra) + [1] * max(0, n - extra) for n in sizes]
    return list(itertools.chain(*shares))


def overlap_but_the_last(sizes, extra):
    return [1] * sizes[0] + overlap_by_taking(sizes, extra)[sizes[0] :]


def overlap_divided_by_all(sizes, extra):
    times = np.array(overlap_by_taking(sizes, extra))
    return (times * len(times) / times.sum()).tolist()


def gradients(weights, rate, momentum, past=True):
    moved = -np.diff(weights, axis=0) / rate
    moved[1:] -= momentum * past * moved[:-1].copy()
    return list(moved)


def gradients_by_slots(weights, rate, momentum):
    found, slot = [], 0 * weights[0]
    for old, new in itertools.pairwise(weights):
        found.append((old - new) / rate - momentum * slot)
        slot = momentum * slot + found[-1]
    return found


def gradients_from_all(weights, rate, momentum):
    return [
        (a - b) / rate - momentum * (weights[0] - a) / rate
        for a, b in itertools.pairwise(weights)
    ]


def ordered(times):
    t = np.array(times)
    wins = (t[:, None] < t[None]).all(2)
    return [tuple(map(int, p)) for p in zip(*np.nonzero(wins))]


def ordered_by(rule):
    def pairs(times):
        any_ = itertools.permutations(range(len(times)), 2)
        return [(a, b) for a, b in any_ if rule(times[a], times[b])]

    return pairs


def flagged(times, beside, least, middle=max, base=None):
    def ratio(name):
        return middle(a / b for a, b in zip(times[name], times[base or beside[name]]))

    return sorted(name for name in beside if ratio(name) < least[name])


def flagged_by_products(times, beside, least):
    t = {name: np.array(own) for name, own in times.items()}
    return sorted(n for n in least if np.all(t[n] < least[n] * t[beside[n]]))


def flagged_by_extremes(times, beside, least):
    rows = beside.items()
    return sorted(n for n, b in rows if max(times[n]) / min(times[b]) < least[n])


def middle(turns, warm, steps):
    own = sorted(turns[warm:])
    half = len(own) // 2
    return (own[half] + own[-half - 1]) / 2 / steps


def passes(before, copies, gradient, rate):
    off = np.array(copies) - before + rate * gradient
    bound = 1e-3 * rate * np.linalg.norm(gradient)
    return bool((np.linalg.norm(off, axis=1) <= bound).all())


def passes_by_ratio(before, copies, gradient, rate):
    steps = [(before - own) / rate for own in copies]
    errors = [float(((s - gradient) ** 2).sum() / (gradient**2).sum()) for s in steps]
    return not any(math.isnan(e) or e > 1e-6 for e in errors)


def simplest(plans, slower):
    good = [p for p in plans if p[0] / min(plans)[0] <= 1 + slower]
    return plans.index(sorted(good, key=lambda p: (p[1], p[0]))[0])


def simplest_by_penalty(plans, slower):
    limit = min(plans)[0] * (1 + slower)
    keys = [(seconds > limit, cuts, seconds) for seconds, cuts in plans]
    return keys.index(min(keys))


def first_simple(plans, slower):
    limit = min(plans)[0] * (1 + slower)
    good = [i for i, plan in enumerate(plans) if plan[0] <= limit]
    return min(good, key=lambda i: plans[i][1])


def worth(one, many, hours=lambda one, many: one - many):
    if many[1] >= one[1]:
        return 0.0 if many[1] == one[1] and many[0] <= one[0] else None
    return max(0.0, (many[0] - one[0]) / hours(one[1], many[1]))


def worth_by_crossing(one, many):
    slope, level = np.subtract(many, one)[[1, 0]]
    if level <= 0 and slope <= 0:
        return 0
    return float(-level / slope) if slope < 0 else None


RIGHT = {
    "which-one/simplest": [simplest, simplest_by_penalty],
    "which-one/step": [step, step_by_chains],
    "which-one/held": [held, held_by_cutting],
    "what-it-costs/worth": [worth, worth_by_crossing],
    "what-it-costs/spot": [
        lambda s, d, g, w: d + w if g < (s + w) / (d + w) else (s + w) / g,
        lambda s, d, g, w: sorted([s / g + w / g, d + w])[0],
    ],
    "what-it-costs/bill": [
        lambda s, r, n, d: round(s * r * n * d / 3600, 2),
        lambda s, r, n, d: round(100 * n * d * (s * r / 60 / 60)) / 100,
    ],
    "side-by-side/ordered": [
        ordered,
        ordered_by(lambda x, y: max(np.divide(x, y)) < 1),
    ],
    "side-by-side/flagged": [flagged, flagged_by_products],
    "side-by-side/seconds": [
        middle,
        lambda t, warm, steps: float(np.median(np.array(t[warm:]) / steps)),
    ],
    "is-my-step-right/reading": [reading, reading_by_kinds],
    "is-my-step-right/overlap": [overlap_by_taking, overlap_by_lists],
    "is-my-step-right/replay": [gradients, gradients_by_slots],
    "is-my-step-right/passes": [passes, passes_by_ratio],
}
WRONG = {
    "which-one/simplest": [
        (
            "it is hardly slower than the fastest plan",
            lambda p, s: min(range(len(p)), key=lambda i: p[i][1]),
        ),
        ("no simpler plan is as good", lambda p, s: p.index(min(p))),
        ("of equally simple plans, it is the fastest", first_simple),
    ],
    "which-one/step": [
        (
            "the link works while the device computes",
            lambda f, b, a, u: sum(f) + sum(b) + sum(a) + sum(u),
        ),
        ("an update waits for its sum", lambda f, b, a, u: sum(f) + sum(b) + sum(u)),
        ("the link carries one sum at a time", functools.partial(step, queued=False)),
        (
            "updates go in the order of their sums, each waits for its own",
            functools.partial(step, last=True),
        ),
        (
            "the backward pass begins with the last layer",
            functools.partial(step, turned=False),
        ),
        (
            "a step ends when the last update does",
            lambda f, b, a, u: sum(f) + sum(b) + sum(a),
        ),
    ],
    "which-one/held": hunted("which-one/held"),
    "what-it-costs/worth": [
        (
            "a cheaper choice that isn't slower pays at once",
            lambda one, many: (
                (many[0] - one[0]) / (one[1] - many[1]) if one[1] > many[1] else None
            ),
        ),
        (
            "waiting pays for no lost time",
            lambda one, many: max(
                0, (many[0] - one[0]) / abs(one[1] - many[1] or 1e-9)
            ),
        ),
        (
            "at that price both cost the same",
            functools.partial(worth, hours=lambda one, many: one),
        ),
        (
            "at that price both cost the same",
            functools.partial(worth, hours=lambda one, many: many),
        ),
    ],
    "what-it-costs/spot": [
        (
            "an hour in which nothing is done is paid for",
            lambda s, d, g, w: min(s, d) + w,
        ),
        (
            "waiting takes longer on spot devices",
            lambda s, d, g, w: min(s / g, d) + w,
        ),
        ("the cheaper one is taken", lambda s, d, g, w: (s + w) / g),
        ("the cheaper one is taken", lambda s, d, g, w: d + w),
    ],
    "what-it-costs/bill": [
        *hunted("what-it-costs/bill"),
        (
            "it is hours times devices times dollars",
            lambda s, r, n, d: round(s / 3600 * n * d, 2),
        ),
    ],
    "side-by-side/ordered": [
        ("rounds are compared one by one", ordered_by(lambda x, y: max(x) < min(y))),
        (
            "a pair that isn't ordered in every round isn't named",
            ordered_by(lambda x, y: statistics.median(x) < statistics.median(y)),
        ),
        (
            "it is the first of a pair that is faster",
            lambda t: [p[::-1] for p in ordered(t)],
        ),
        ("a pair is named once", lambda t: ordered(t) * 2),
    ],
    "side-by-side/flagged": [
        (
            "a row breaks its bound in every round",
            functools.partial(flagged, middle=min),
        ),
        (
            "a row is divided by the row with the same advantage",
            functools.partial(flagged, base="one"),
        ),
        ("rounds are compared one by one", flagged_by_extremes),
    ],
    "side-by-side/seconds": [
        *hunted("side-by-side/seconds"),
        ("it is the median", lambda t, warm, steps: min(t[warm:]) / steps),
    ],
    "is-my-step-right/reading": [
        ("a rounding error isn't a mistake", exact),
        (
            "if each device's counts are equal, it is 'shares'",
            lambda c, o: reading(c, range(len(c))).replace("shares", "samples"),
        ),
        (
            "if a count is 0, it is 'lost'",
            lambda c, o: reading(np.array(c) + 10.0 * (0 in c), o),
        ),
        (
            "if all counts are equal, it is 'factor'",
            lambda c, o: "right" if np.ptp(c) < 1e-6 else reading(c, o),
        ),
        (
            "otherwise it is 'samples'",
            lambda c, o: reading(c, range(len(c))),
        ),
    ],
    "is-my-step-right/overlap": [
        ("the device after the last one is the first", overlap_but_the_last),
        ("it is divided by the batch", overlap_divided_by_all),
        (
            "two devices count the first samples of a share",
            lambda sizes, extra: [1] * sizes[0] + [2] * sum(sizes[1:]),
        ),
        (
            "two devices count the first samples of a share",
            lambda sizes, extra: overlap_by_taking(sizes[::-1], extra)[::-1],
        ),
        (
            "one number per sample",
            lambda sizes, extra: [1 + (extra > 0) for _ in sizes],
        ),
    ],
    "is-my-step-right/replay": [
        (
            "the part that the slot remembers is subtracted",
            functools.partial(gradients, past=False),
        ),
        ("they are the gradients of the steps", gradients_from_all),
        (
            "the slot begins at 0",
            lambda w, r, m: [g * (1 - m) for g in gradients(w, r, m)],
        ),
        (
            "a step goes downhill, by the rate times the slot",
            lambda w, r, m: [g * r for g in gradients(w, r, m)],
        ),
        ("one gradient per step", lambda w, r, m: gradients(w, r, m)[1:]),
    ],
    "is-my-step-right/passes": [
        *hunted("is-my-step-right/passes"),
        (
            "a right step passes",
            lambda b, copies, g, r: all((own == b - r * g).all() for own in copies),
        ),
    ],
}
