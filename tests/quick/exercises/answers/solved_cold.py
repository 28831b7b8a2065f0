"""What a reader of parts 6 to 8 wrote from the page alone: what passed, was misnamed."""

from __future__ import annotations

import math

import numpy as np


def steps_floor_and_one(size, speed, work, n):
    return 1 + int(2 * (n - 1) / n * size / speed / work)


def staleness_with_own(pushes):
    last, found = {}, []
    for i, name in enumerate(pushes):
        found.append(i - last.get(name, 0))
        last[name] = i
    return found


def summed(gradients, rate, every):
    w = np.zeros((len(gradients), gradients[0].shape[1]))
    for t in range(len(gradients[0])):
        w = w - rate * np.array([own[t] for own in gradients])
        if (t + 1) % every == 0:
            w[:] = w.sum(0)
    return w


def messages_as_bytes(pieces):
    stream, told = sum(pieces, []), []
    while stream and len(stream) > stream[0]:
        told.append(bytes(stream[1 : 1 + stream[0]]))
        stream = stream[1 + stream[0] :]
    return told


def leftwards_unwrapped(n):
    return [[(i + s + 1, i + s + 2) for s in range(n - 1)] for i in range(n)]


def missing_as_listed(entered):
    return [r for r, calls in entered.items() if calls < max(entered.values())]


def parted(calls, tie=lambda top, met, calls: None):
    for number in range(max(map(len, calls))):
        met = {r: own[number] for r, own in enumerate(calls) if number < len(own)}
        names = list(met.values())
        top = max(names, key=names.count)
        if len({*names}) > 1:
            odd = [r for r in met if met[r] != top]
            return number, tie(names.count(top), met, calls) or odd
    return None


def all_in_a_tie(top, met, calls):
    names = list(met.values())
    tied = [name for name in {*names} if names.count(name) == top]
    return [*range(len(calls))] if len(tied) > 1 else None


def all_without_most(top, met, calls):
    return [*met] if 2 * top <= len(met) else None


def verdict_gone_after_nothing(logs):
    waits = [entered for _, entered, inside in logs if inside]
    if not waits:
        return "nothing", []
    gone = [r for r, (status, _, _) in enumerate(logs) if status == "gone"]
    if gone:
        return "missing", gone
    late = [r for r, (_, n, inside) in enumerate(logs) if not inside and n < max(waits)]
    low = [r for r, (_, n, inside) in enumerate(logs) if inside and n == min(waits)]
    return ("straggler", late) if late else ("link", low)


def played_at_once(works):
    free, ends = {}, []
    for lane, seconds, latency, _ in works:
        free[lane] = free.get(lane, 0.0) + seconds
        ends.append(free[lane] + latency)
    return ends


def step_of(forward, backward, sums):
    now, end = forward, 0.0
    for passing, adding in zip(backward[::-1], sums[::-1]):
        now += passing
        end = max(end, now) + adding
    return end


def ordered(times, by=lambda x, y: x < y, later=True):
    ranks = range(len(times))
    pairs = [(a, b) for a in ranks for b in ranks if a != b and (later or a < b)]
    return [(a, b) for a, b in pairs if all(map(by, times[a], times[b]))]


def flagged(times, beside, least, by=lambda ratio, bound: ratio < bound):
    return [
        name
        for name in beside
        if all(by(a / b, least[name]) for a, b in zip(times[name], times[beside[name]]))
    ]


def reading(counts, owners, near=1e-6, first="factor", by_place=False, whole=False):
    counts, owners = np.array(counts), np.array(owners)
    shares = [counts[owners == d] for d in {*owners.tolist()}]
    lost = np.any(abs(counts) < near)
    if whole:
        lost = any(np.all(abs(share) < near) for share in shares)
    if by_place:
        shares = np.array_split(counts, len(shares))
    if np.all(abs(counts - 1) < near):
        return "right"
    if first == "lost" and lost:
        return "lost"
    if np.ptp(counts) < near:
        return "factor"
    if lost:
        return "lost"
    return "shares" if all(np.ptp(s) < near for s in shares) else "samples"


def passes_unless_all_nan(before, copies, gradient, rate):
    step = rate * gradient
    for own in copies:
        off = np.linalg.norm(own - before + step)
        if np.isnan(own).all() or off > 0.001 * np.linalg.norm(step):
            return False
    return True


RIGHT = {
    "many-workers/messages": [messages_as_bytes],
    "meeting-seldom/steps": [
        lambda size, speed, work, n: max(
            1, math.ceil(2 * (n - 1) / n * size / speed / work)
        ),
    ],
    "side-by-side/ordered": [ordered],
    "step-hangs/parted": [
        lambda calls: parted(
            calls, lambda *g: [*g[1]] if all_in_a_tie(*g) is not None else None
        ),
    ],
}
WRONG = {
    "asynchronous/staleness": [("its own update isn't counted", staleness_with_own)],
    "meeting-seldom/average": [
        ("the weights are averaged, not added up", summed),
        ("one row of weights per worker", lambda g, r, e: summed(g, r, 99)[0]),
    ],
    "meeting-seldom/steps": [
        ("fewer steps would be too short", steps_floor_and_one),
        (
            "there is at least one step between meetings",
            lambda size, speed, work, n: math.ceil(
                2 * (n - 1) / n * size / speed / work
            ),
        ),
    ],
    "many-workers/leftwards": [
        ("chunks have the numbers 0 to n - 1", leftwards_unwrapped),
    ],
    "step-hangs/missing": [("ranks are named in order", missing_as_listed)],
    "step-hangs/parted": [
        (
            "a rank that hasn't arrived doesn't differ",
            lambda calls: parted(calls, all_in_a_tie),
        ),
        (
            "the minority is named",
            lambda calls: parted(
                calls, lambda top, met, c: all_without_most(top, met, c)
            ),
        ),
    ],
    "step-hangs/verdict": [
        ("a rank that is gone comes first", verdict_gone_after_nothing)
    ],
    "whole-cluster/overlap": [
        ("forward passes come first", lambda f, b, s: step_of(0.0, b, s)),
        (
            "a sum waits for its gradients",
            lambda f, b, s: sum(f) + max(sum(b), sum(s)),
        ),
    ],
    "whole-cluster/play": [
        ("a work waits until earlier works have arrived", played_at_once)
    ],
    "side-by-side/ordered": [
        (
            "a pair that isn't ordered in every round isn't named",
            lambda times: ordered(times, by=lambda x, y: x <= y),
        ),
        (
            "the faster row may come later in the table",
            lambda times: ordered(times, later=False),
        ),
    ],
    "side-by-side/flagged": [
        ("names are sorted", flagged),
        (
            "a row breaks its bound in every round",
            lambda *g: sorted(flagged(*g, by=lambda ratio, bound: ratio <= bound)),
        ),
    ],
    "is-my-step-right/reading": [
        (
            "if all counts are equal, it is 'factor'",
            lambda *g: reading(*g, first="lost"),
        ),
        ("if all counts are equal, it is 'factor'", lambda *g: reading(*g, near=1e-3)),
        ("if a count is 0, it is 'lost'", lambda *g: reading(*g, whole=True)),
        (
            "if each device's counts are equal, it is 'shares'",
            lambda *g: reading(*g, by_place=True),
        ),
    ],
    "is-my-step-right/passes": [("a copy with NaN is refused", passes_unless_all_nan)],
}
