"""Answers to exercises of pipeline, running-a-pipeline and smaller-bubble."""

from __future__ import annotations

import functools
import itertools
import math


def micro_batches_by_trying(stages, percent):
    m = 1
    while 100 * (stages - 1) > percent * (m + stages - 1):
        m += 1
    return m


def ends_by_rounds(orders, seconds, message, turns=True, back=None, waits=True):
    """Relaxed until nothing moves: each end is the least that its needs allow."""
    ends = {(kind, s, i): 0 for s, own in enumerate(orders) for kind, i in own}
    takes = {"F": 1, "B": 2}
    for _ in ends:
        for s, own in enumerate(orders):
            free = 0
            for kind, i in own:
                near = (kind, s - 1 if kind == "F" else s + 1, i)
                travel = message if kind == "F" or back is None else back
                needs = near in ends and (kind == "F" or waits)
                start = max(free, ends[near] + travel) if needs else free
                ends[kind, s, i] = start + takes[kind] * seconds[s]
                free = ends[kind, s, i] if turns else start
    return [
        max(e for (_, t, _), e in ends.items() if t == s) for s in range(len(orders))
    ]


def ends_recursively(orders, seconds, message):
    @functools.cache
    def end(s, at):
        if at < 0:
            return 0
        kind, i = orders[s][at]
        near = s - 1 if kind == "F" else s + 1
        start = end(s, at - 1)
        if 0 <= near < len(orders):
            start = max(start, end(near, orders[near].index((kind, i))) + message)
        return start + (1 if kind == "F" else 2) * seconds[s]

    return [end(s, len(own) - 1) for s, own in enumerate(orders)]


def controls_by_index(orders, near=1, read=True):
    found = []
    for own in orders:
        pairs = []
        for at in range(near, len(own)):
            (a, i), (b, j) = own[at - near], own[at]
            if not read or not (a == "F" and b == "B" and i == j):
                pairs.append((own[at - near], own[at]))
        found.append(pairs)
    return found


def controls_by_kind(orders):
    """An F is followed by what it feeds only if that is its own B."""
    return [
        [
            [a, b]
            for a, b in zip(own, own[1:])
            if a[0] == "B" or b[0] == "F" or a[1] != b[1]
        ]
        for own in orders
    ]


def program_by_cases(stage, stages, order, last=None, up=True):
    done = []
    below, above = stage > 0, stage < (stages - 1 if last is None else last)
    for kind, i in order:
        if kind == "F":
            done += [("receive", i, stage - 1)] * below
            done += [(kind, i)] + [("send", i, stage + 1)] * above
        else:
            done += [("receive", i, stage + 1)] * above
            done += [(kind, i)] + [("send", i, stage - 1)] * (below and up)
    return done


def program_by_table(stage, stages, order):
    ends = {"F": (stage - 1, stage + 1), "B": (stage + 1, stage - 1)}
    three = [
        (("receive", i, ends[kind][0]), (kind, i), ("send", i, ends[kind][1]))
        for kind, i in order
    ]
    flat = itertools.chain.from_iterable(three)
    return [one for one in flat if len(one) == 2 or one[2] in range(stages)]


def sends_too_early(stage, stages, order):
    done = program_by_cases(stage, stages, order)
    for at, one in enumerate(done):
        if one[0] == "send":
            done[at - 1 : at + 1] = [one, done[at - 1]]
    return done


def versions_by_lists(order, newest=True, shared=True):
    now, under_way, most = 0, [], 1 if newest else 0
    for kind, i in order:
        if kind == "F":
            under_way.append((i, now))
        else:
            under_way = [one for one in under_way if one[0] != i]
            now += 1
        held = [version for _, version in under_way] + [now] * newest
        most = max(most, len(set(held)) if shared else len(held))
    return most


def versions_looking_ahead(order):
    """Of each moment: those whose F is past and whose B is to come."""
    updates = list(itertools.accumulate((kind == "B" for kind, _ in order), initial=0))
    most = 1
    for at in range(1, len(order) + 1):
        open_ = [
            updates[order.index(("F", i))]
            for kind, i in order[at:]
            if kind == "B" and order.index(("F", i)) < at
        ]
        most = max(most, len({*open_, updates[at]}))
    return most


def put_off_by_pieces(order, late, tail=True, shift=0):
    count, found = sum(kind == "B" for kind, _ in order), []
    waiting = list(range(count))
    for one in order:
        found.append(one)
        if one[0] == "B" and one[1] >= late + shift:
            found.append(("W", waiting.pop(0)))
    return found + [("W", i) for i in waiting] * tail


def put_off_by_insertion(order, late):
    found, count = list(order), len(order) // 2
    for i in range(count):
        if ("B", i + late) in found:
            found.insert(found.index(("B", i + late)) + 1, ("W", i))
        else:
            found.append(("W", i))
    return found


def zigzag_by_walking(devices, ways):
    at, step, places = 0, 1, []
    for stage in range(devices * ways):
        places.append(at)
        if stage % devices == devices - 1:
            step = -step
        else:
            at += step
    return places


def rounds_sorted(device, devices, chunks, micro_batches):
    every = itertools.product(range(chunks), range(micro_batches))
    order = sorted(every, key=lambda one: (one[1] // devices, *one))
    return [(device + r * devices, i) for r, i in order]


def rounds_by_counting(device, devices, chunks, micro_batches):
    full = -(-micro_batches // devices) * devices
    found = []
    for n in range(full * chunks):
        group, rest = divmod(n, devices * chunks)
        r, i = divmod(rest, devices)
        if group * devices + i < micro_batches:
            found.append((device + r * devices, group * devices + i))
    return found


RIGHT = {
    "pipeline/micro-batches": [
        micro_batches_by_trying,
        lambda p, b: max(1, -(-100 * (p - 1) // b) - (p - 1)),
    ],
    "pipeline/ends": [ends_by_rounds, ends_recursively],
    "running-a-pipeline/controls": [controls_by_index, controls_by_kind],
    "running-a-pipeline/messages": [program_by_cases, program_by_table],
    "running-a-pipeline/versions": [versions_by_lists, versions_looking_ahead],
    "smaller-bubble/put-off": [put_off_by_pieces, put_off_by_insertion],
    "smaller-bubble/zigzag": [
        zigzag_by_walking,
        lambda p, n: [min(i % (2 * p), 2 * p - 1 - i % (2 * p)) for i in range(p * n)],
    ],
    "smaller-bubble/rounds": [rounds_sorted, rounds_by_counting],
}
WRONG = {
    "pipeline/micro-batches": [
        (
            "it is a share of all time, not of the busy time",
            lambda p, b: max(1, -(-100 * (p - 1) // b)),
        ),
        ("the bubble is small enough", lambda p, b: max(1, (p - 1) * (100 - b) // b)),
        ("it is a number of micro-batches", lambda p, b: (p - 1) * (100 - b) / b),
        (
            "fewer micro-batches aren't enough",
            lambda p, b: micro_batches_by_trying(p, b) + 1,
        ),
        (
            "fewer micro-batches aren't enough",
            lambda p, b: max(1, math.ceil((p - 1) / (b / 100) - (p - 1))),
        ),
        ("it is a number of micro-batches", lambda p, b: (p - 1) * (100 - b) // b),
    ],
    "pipeline/ends": [
        (
            "a stage does one thing at a time",
            lambda o, t, m: ends_by_rounds(o, t, m, turns=False),
        ),
        (
            "messages take time in the backward pass, too",
            lambda o, t, m: ends_by_rounds(o, t, m, back=0),
        ),
        (
            "a backward pass waits for the next stage",
            lambda o, t, m: ends_by_rounds(o, t, m, waits=False),
        ),
        (
            "it is the time at which all that an operation needs is ready",
            lambda o, t, m: ends_by_rounds(o, t, 0),
        ),
        ("one number per stage", lambda o, t, m: [max(ends_by_rounds(o, t, m))] * 99),
    ],
    "running-a-pipeline/controls": [
        (
            "each pair is present once",
            lambda orders: [own * 2 for own in controls_by_index(orders)],
        ),
        (
            "a dependency through a tensor isn't repeated",
            lambda orders: controls_by_index(orders, read=False),
        ),
        (
            "an operation waits for the one right before it",
            lambda orders: controls_by_index(orders, near=2, read=False),
        ),
        (
            "an order must be stated if nothing is read",
            lambda orders: [
                [p for p in zip(o, o[1:]) if p[0][0] == p[1][0]] for o in orders
            ],
        ),
        ("one list per stage", lambda orders: controls_by_index(orders)[0]),
    ],
    "running-a-pipeline/messages": [
        (
            "there is a stage at the other end",
            lambda s, p, order: program_by_cases(s, p, order, last=p),
        ),
        (
            "activations go down the stages, gradients up",
            lambda s, p, order: [
                (one[0], one[1], 2 * s - one[2])
                if len(one) > 2 and 0 <= 2 * s - one[2] < p
                else one
                for one in program_by_cases(s, p, order)
            ],
        ),
        (
            "each message has a receive or a send",
            lambda s, p, order: program_by_cases(s, p, order, up=False),
        ),
        (
            "it receives immediately before a pass, and sends immediately after one",
            sends_too_early,
        ),
        (
            "passes keep their order",
            lambda s, p, order: program_by_cases(s, p, order[::-1]),
        ),
    ],
    "running-a-pipeline/versions": [
        (
            "a version counts once, while it is needed",
            lambda order: versions_by_lists(order, shared=False),
        ),
        (
            "micro-batches that used the same weights share them",
            lambda order: max(
                sum(1 if kind == "F" else -1 for kind, _ in order[:n])
                for n in range(len(order) + 1)
            ),
        ),
        (
            "the newest version is held, too",
            lambda order: versions_by_lists(order, newest=False),
        ),
        (
            "a version that isn't needed any more is dropped",
            lambda order: len(order) // 2 + 1,
        ),
    ],
    "smaller-bubble/put-off": [
        (
            "the remaining passes come at the end, in order",
            lambda order, late: (
                put_off_by_pieces(order, late, tail=False)
                + [("W", i) for i in range(len(order) // 2 - late, len(order) // 2)][
                    ::-1
                ]
            ),
        ),
        (
            "a W is late by that many micro-batches",
            lambda order, late: put_off_by_pieces(order, late, shift=1),
        ),
        (
            "each W is present once",
            lambda order, late: put_off_by_pieces(order, late, tail=False),
        ),
        (
            "a W is late by that many micro-batches",
            lambda order, late: put_off_by_pieces(order, 0),
        ),
        (
            "a W comes after its own B",
            lambda order, late: [
                each
                for kind, i in order
                for each in [("W", i)] * (kind == "B") + [(kind, i)]
            ],
        ),
        (
            "F and B keep their order",
            lambda order, late: sorted(
                put_off_by_pieces(order, late), key=lambda one: one[0]
            ),
        ),
    ],
    "smaller-bubble/zigzag": [
        ("where it turns, nothing is sent", lambda p, n: list(range(p)) * n),
        (
            "where it turns, nothing is sent",
            lambda p, n: [*range(p), *range(p - 2, -1, -1)] if n > 1 else [*range(p)],
        ),
        ("each device has a stage of each way", lambda p, n: list(range(p))),
        (
            "it goes down first, then up",
            lambda p, n: [p - 1 - d for d in zigzag_by_walking(p, n)],
        ),
    ],
    "smaller-bubble/rounds": [
        (
            "a group goes through all stages before the next begins",
            lambda d, p, v, m: [(d + r * p, i) for r in range(v) for i in range(m)],
        ),
        (
            "a group goes through all stages before the next begins",
            lambda d, p, v, m: [(d + r * p, i) for i in range(m) for r in range(v)],
        ),
        (
            "a device's stages lie as far apart as there are devices",
            lambda d, p, v, m: [
                (d * v + s // p, i) for s, i in rounds_sorted(d, p, v, m)
            ],
        ),
        (
            "each pass is present once",
            lambda d, p, v, m: rounds_sorted(d, p, v, math.ceil(m / p) * p),
        ),
    ],
}
