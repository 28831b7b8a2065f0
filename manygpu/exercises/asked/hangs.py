"""Exercises of "When a step hangs", and its bugs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import other


def _calls(draw: random.Random) -> Iterator[tuple]:
    yield from (([["W"], ["W"]],), ([["W"], ["W", "b"]],), ([["W"], ["b"], ["W"]],))
    yield from (([["W", "b"], ["W", "W"], ["W", "b"]],), ([["W"], ["b"]],))
    yield ([["W", "b"], ["W"], ["W", "c"], ["W", "b"]],)
    yield ([["W", "c", "d"], ["W", "b", "b"], ["W", "b", "b"]],)
    yield from (([["W"], ["b"], []],), ([["W"], ["W"], ["b"], ["c"]],))
    for _ in range(4):
        names = [draw.choice("Wb") for _ in range(6)]
        calls = [names[: draw.randint(3, 6)] for _ in range(5)]
        calls[draw.randrange(5)][draw.randrange(3)] = "c"
        yield (calls,)


def _parted(calls: list[list[str]], absent: bool = False) -> tuple | None:
    """The first number with different calls, and the odd ranks.

    absent: whether who has not come differs from who has.
    """
    for number in range(max(map(len, calls))):
        met = {r: own[number] for r, own in enumerate(calls) if number < len(own)}
        if absent:
            met = dict.fromkeys(range(len(calls)), "") | met
        (common, count), *others = Counter(met.values()).most_common()
        if others:
            tie = others[0][1] == count
            return number, [r for r in sorted(met) if tie or met[r] != common]
    return None


@exercise(
    "step-hangs/parted",
    '''
def my_parted(calls):
    """Return the first collective in which ranks differ, and the odd ranks.

    Compare the ranks' names for each number, from 0 on. A rank that hasn't
    entered this many collectives doesn't count as different. A rank is odd if
    its name isn't the most common one. If several names are equally common,
    all ranks that have entered the collective are odd.

    calls: for each rank, the names of the collectives that it has entered.

    The result is (number, odd ranks in order), or None if the ranks never
    differ.
    """
    raise NotImplementedError(
        "Which ranks have entered this collective? Which name did they call?"
    )
''',
    _calls,
)
def judge_parted(found, calls):
    right, absent = _parted(calls), _parted(calls, absent=True)
    found = found if found is None else (found[0], list(found[1]))
    there = found is not None and absent is not None and found[0] == absent[0]
    late = found not in (right, None) and absent != right and there and f"it is {found}"
    yield "a rank that hasn't arrived doesn't differ", late
    yield "if they never differ, it is None", right is None and other(found, None)
    yield "a difference is found", found is None and other(found, right)
    if right is not None:
        yield "the first difference counts", found[0] != right[0] and f"it is {found}"
        met = [r for r, own in enumerate(calls) if right[0] < len(own)]
        tie = met == right[1] and other(found, right)
        yield "in a tie, all are named", tie
    yield "the minority is named", other(found, right)


def _clocks(draw: random.Random) -> Iterator[tuple]:
    yield [[10.0], [0.0]], [[10.1], [1.1]]
    yield [[0.0], [10.0]], [[0.1], [11.1]]
    yield (
        [[0.0, 1.0, 2.0], [50.0, 52.0, 53.0], [20.0, 21.5, 23.0]],
        [[0.0, 1.9, 2.9], [50.1, 52.0, 53.1], [20.5, 22.0, 23.0]],
    )
    for _ in range(4):
        k, slow = draw.randint(3, 5), draw.randrange(3)
        entered, left = [], []
        for rank in range(k):
            start = draw.uniform(0, 1000)
            waits = [draw.uniform(0.5, 1.0) for _ in range(8)]
            if rank == slow:
                waits = [draw.uniform(0.0, 0.4) for _ in range(8)]
            entered.append([start + 2 * i for i in range(8)])
            left.append([start + 2 * i + wait for i, wait in enumerate(waits)])
        yield entered, left


@exercise(
    "step-hangs/slow",
    '''
def my_slow(entered, left):
    """Return the slow rank, the one that waits for the least time in total.

    entered, left: for each rank, lists of the times at which it entered and
        left each collective, in seconds of the rank's own clock. The clocks
        may differ by any amount.
    """
    raise NotImplementedError("Which times may you subtract from each other?")
''',
    _clocks,
)
def judge_slow(found, entered, left):
    ranks = range(len(entered))
    waits = [[b - a for a, b in zip(*both)] for both in zip(entered, left)]
    right = min(ranks, key=lambda r: sum(waits[r]))
    last = {max(ranks, key=lambda r: each[r][-1]) for each in (entered, left)}
    one_clock = found != right and found in last and f"it is {found}"
    yield "each rank has a clock of its own", one_clock
    single = {min(ranks, key=lambda r: waits[r][at]) for at in (0, -1)}
    yield (
        "all collectives count",
        found != right and found in single and f"it is {found}",
    )
    most = max(ranks, key=lambda r: sum(waits[r]))
    yield (
        "a rank that waits isn't slow",
        found != right and found == most and f"it is {found}",
    )
    yield "the rank that waits least is named", other(found, right)


def _logs(draw: random.Random) -> Iterator[tuple]:
    here, gone = "answers", "gone"
    yield ([(here, 4, False), (here, 4, False)],)
    yield ([(here, 5, True), (here, 4, False)],)
    yield ([(here, 5, True), (gone, 4, False)],)
    yield ([(here, 5, True), (here, 5, False)],)
    yield ([(here, 6, True), (here, 5, True), (here, 6, True)],)
    yield ([(here, 6, True), (here, 5, True), (here, 6, True), (here, 4, False)],)
    yield ([(here, 5, True), (gone, 5, True), (here, 4, False)],)
    yield ([(here, 5, False), (gone, 5, False)],)
    for _ in range(4):
        status = draw.choices((here, gone), (6, 1), k=5)
        yield ([(s, draw.randint(4, 6), draw.random() < 0.7) for s in status],)


@exercise(
    "step-hangs/verdict",
    '''
def my_verdict(logs):
    """Return the reason why a job waits, and the ranks to look at, in order.

    The result is the first of these that applies:
    ("missing", all ranks that are gone), if any rank is gone;
    ("nothing", []), if no rank is inside a collective;
    ("straggler", ranks), if there are ranks that are inside no collective, and
    have entered fewer than one of the waiting ranks;
    ("link", the ranks inside the lowest collective that any rank is inside).

    logs: for each rank, (status, entered, inside). The status is "answers" or
        "gone". `entered` is how many collectives the rank has entered, and
        `inside` is whether it is still in the last of them.
    """
    raise NotImplementedError("Start from the code of the bug, and fix it.")
''',
    _logs,
    hunted=True,
)
def judge_verdict(found, logs):
    cause, ranks = found[0], list(found[1])
    gone = [r for r, (status, _, _) in enumerate(logs) if status == "gone"]
    dead = bool(gone) and (cause, ranks) != ("missing", gone) and f"it is {found}"
    yield "a rank that is gone comes first", dead
    counts = [entered for _, entered, inside in logs if inside]
    if gone:
        return
    none = not counts and (cause, ranks) != ("nothing", []) and f"it is {found}"
    yield "if no rank waits, nothing is found", none
    late = cause == "straggler"
    waits = [r for r in ranks if logs[r][2]]
    yield "a rank that waits is no straggler", late and waits and f"it is {found}"
    come = [r for r in ranks if logs[r][1] >= max(counts, default=0)]
    yield "a rank that has arrived isn't late", late and come and f"it is {found}"
    at_work = [
        r for r, (_, n, w) in enumerate(logs) if not w and counts and n < max(counts)
    ]
    missed = bool(at_work) and (cause, ranks) != ("straggler", at_work)
    yield "a rank that hasn't arrived is named", missed and f"it is {found}"
    if counts and not at_work:
        low = [
            r for r, (_, n, inside) in enumerate(logs) if inside and n == min(counts)
        ]
        link = (cause, ranks) != ("link", low) and f"it is {found}"
        yield "the link is looked for in the lowest one", link


BODY = """
def my_verdict(logs):
    gone = [r for r, (status, _, _) in enumerate(logs) if status == "gone"]
    if gone:
        return "missing", gone
    waits = [entered for _, entered, inside in logs if inside]
    if not waits:
        return "nothing", []
    furthest, first = max(waits), min(waits)
    late = [r for r, (_, n, inside) in enumerate(logs) if not inside and n < furthest]
    if late:
        return "straggler", late
    return "link", [r for r, (_, n, inside) in enumerate(logs) if inside and n == first]
"""
GONE = """    if gone:
        return "missing", gone
"""
LATE = """    if late:
        return "straggler", late
"""


def _changed(*changes: tuple[str, str]) -> str:
    """The right code with some places changed, each of which must be there once."""
    code = BODY
    for before, after in changes:
        if code.count(before) != 1:
            raise ValueError(f"before must be there once, got {before!r}")
        code = code.replace(before, after)
    return code


flaw(
    "step-hangs/verdict",
    _changed(("if not inside and n < furthest", "if n < furthest")),
    lambda f: (
        "all ranks have entered collective 5, ranks 0 and 2 are in 6, and rank 1 "
        "can't get out of 5. The verdict: {} {}".format(
            *f([("answers", 6, True), ("answers", 5, True), ("answers", 6, True)])
        )
    ),
    "a rank that waits is no straggler",
)
flaw(
    "step-hangs/verdict",
    _changed(("not inside and n < furthest", "not inside and n <= furthest")),
    lambda f: (
        "rank 0 is stuck in collective 5, and rank 1 has left it. "
        "The verdict: {} {}".format(*f([("answers", 5, True), ("answers", 5, False)]))
    ),
    "a rank that has arrived isn't late",
)
flaw(
    "step-hangs/verdict",
    _changed((GONE, ""), (LATE, LATE + GONE)),
    lambda f: (
        "rank 1 has died, and rank 2 has just read a file. The verdict: {} {}".format(
            *f([("answers", 5, True), ("gone", 5, True), ("answers", 4, False)])
        )
    ),
    "a rank that is gone comes first",
)
flaw(
    "step-hangs/verdict",
    _changed(("inside and n == first]", "inside]")),
    lambda f: (
        "ranks 0 and 2 are in collective 6, and rank 1 can't get out of 5. "
        "The verdict: {} {}".format(
            *f([("answers", 6, True), ("answers", 5, True), ("answers", 6, True)])
        )
    ),
    "the link is looked for in the lowest one",
)
