"""Exercises of part 1: how clusters really run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import in_digits, off, other


def _ranks(draw: random.Random) -> Iterator[tuple]:
    yield from ((4, 0, 1), (4, 1, 2), (10, 0, 3), (10, 2, 3), (10, 1, 4), (10, 3, 4))
    yield from ((2, 2, 3), (2, 1, 3), (0, 0, 2))
    for most in (9, 99, 99, 99):
        world = draw.randint(2, 9)
        yield draw.randint(0, most), draw.randrange(world), world


@exercise(
    "how-clusters-run/part",
    '''
def my_part(samples, rank, world):
    """Return the first sample of a process, and the one after its last.

    Samples are counted from 0. Processes read consecutive samples, in the
    order of their ranks. Their shares differ by at most one sample, and the
    larger ones come first. An empty share begins and ends where the share
    before it ends. A process knows only its rank, the number of samples and
    the number of processes.
    """
    raise NotImplementedError(
        "How many samples do the ranks before this one have?",
    )
''',
    _ranks,
)
def judge_part(found, samples, rank, world):
    start, stop = found
    each, left = divmod(samples, world)
    right = rank * each + min(rank, left), (rank + 1) * each + min(rank + 1, left)
    last = samples % world == 0 < samples and (start, stop + 1) == right
    yield "the second number is the sample after its last", last and f"it is {stop}"
    outside = not 0 <= start <= stop <= samples and f"it is {start} to {stop}"
    yield "the samples are present", outside
    uneven = not each <= stop - start <= each + 1 and f"it is {stop - start}"
    yield "the shares differ by at most one", uneven
    yield "the larger shares come first", other(stop - start, right[1] - right[0])
    yield "each sample is read exactly once", other((start, stop), right)


def _scales(draw: random.Random) -> Iterator[tuple]:
    yield from ((4, 8, 2), (2, 8, 2), (2, 202, 2), (5, 20, 4))
    for _ in range(4):
        own, world = draw.randint(1, 99), draw.randint(2, 9)
        yield own, own + draw.randint(world - 1, 999), world


@exercise(
    "how-clusters-run/scale",
    '''
def my_scale(own, samples, world):
    """Return the factor for a process's mean loss, before the backward pass.

    DDP averages the gradients over all processes. The result must be the
    gradient of the mean loss over all samples.

    own: how many samples this process has, at least one.
    samples: how many samples all processes have together.
    world: how many processes there are.
    """
    raise NotImplementedError(
        "By which number must each sample's gradient be multiplied in the end?",
    )
''',
    _scales,
)
def judge_scale(found, own, samples, world):
    right = world * own / samples
    equal = own * world == samples and off(found, 1)
    yield "with equal shares nothing changes", equal
    turned = off(found, right) and not off(found, 1 / right)
    yield (
        "a worker with more samples has more weight",
        turned and f"it is {in_digits(found)}",
    )
    yield "each sample weighs the same", off(found, right)


def _calls(draw: random.Random) -> Iterator[tuple]:
    yield ([["sum"], ["sum"]],)
    yield ([["sum", "flag"], ["flag", "sum"]],)
    yield ([["sum", "sum"], ["sum"]],)
    yield from (([["sum"], []],), ([[], ["sum"]],), ([[], []],))
    yield ([["sum", "flag", "sum"], ["sum", "flag"], ["sum", "sum", "sum"]],)
    for _ in range(4):
        calls = [draw.choice(["sum", "flag"]) for _ in range(9)]
        ranks = [list(calls) for _ in range(draw.randint(2, 4))]
        del ranks[draw.randrange(len(ranks))][draw.randrange(9)]
        yield (ranks,)


@exercise(
    "how-clusters-run/stuck",
    '''
def my_stuck(calls):
    """Return the first call, counted from 0, in which the ranks don't all agree.

    calls: for each rank, the names of the collectives that it calls, in order. A rank
    without a further call leaves the others waiting. Return None if all calls agree.
    """
    raise NotImplementedError("What does each rank call first, second, ...?")
''',
    _calls,
)
def judge_stuck(found, calls):
    turns = list(itertools.zip_longest(*calls))
    right = next((i for i, names in enumerate(turns) if len(set(names)) > 1), None)
    yield (
        "if all ranks call the same, no rank waits",
        right is None and other(found, None),
    )
    early = right is not None and found is not None and found < right
    yield "up to this call, all ranks do the same", early and f"it is {found}"
    gone = right is not None and None in turns[right] and other(found, right)
    yield "a rank that has no call left is missed", gone
    yield "it is the first such call", other(found, right)


def _flags(draw: random.Random) -> Iterator[tuple]:
    yield from (([True],), ([True, True],), ([True, False],), ([False, False],))
    for _ in range(3):
        yield ([draw.random() < 0.7 for _ in range(draw.randint(2, 6))],)


@exercise(
    "how-clusters-run/calls",
    '''
def my_calls(finite):
    """Return the collectives that each rank calls in a step.

    The collective "flag" always comes first. It tells all ranks whether the
    loss of any rank isn't finite. The collective "gradients" adds up the
    gradients. It is left out if any loss isn't finite.

    finite: for each rank, whether its own loss is finite.

    The result is a list of names for each rank.
    """
    raise NotImplementedError(
        "What does a rank know before the flag, and what after it?"
    )
''',
    _flags,
    hunted=True,
)
def judge_calls(found, finite):
    yield "one list per rank", other(len(found), len(finite))
    alike = all(own == found[0] for own in found)
    yield "all call the same, in the same order", not alike and f"they call {found}"
    yield "the flag comes first", [*found[0][:1]] != ["flag"] and f"it is {found[0]}"
    added = "gradients" in found[0]
    yield (
        "a gradient that isn't finite is added to nothing",
        added and not all(finite) and "it is",
    )
    yield "a step of finite losses is taken", not added and all(finite) and "it isn't"


def _met(calls) -> str:
    """What three ranks call, and where they are a minute later."""
    finite = [True, False, True]
    asked = calls(finite)
    turns = itertools.zip_longest(*asked)
    stuck = [i for i, names in enumerate(turns) if len(set(names)) > 1]
    end = f"the job is stuck in call {stuck[0]}" if stuck else "all calls complete"
    if not stuck and "gradients" in asked[0]:
        end += ", and all gradients are NaN"
    lines = [f"rank {r} calls {', '.join(own)}" for r, own in enumerate(asked)]
    return f"rank 1's loss isn't finite; {'; '.join(lines)}; {end}"


flaw(
    "how-clusters-run/calls",
    """
def my_calls(finite):
    calls = []
    for own in finite:
        calls.append(["flag"])
        if own:
            calls[-1].append("gradients")
    return calls
""",
    _met,
    "all call the same, in the same order",
)
flaw(
    "how-clusters-run/calls",
    """
def my_calls(finite):
    calls = []
    for _ in finite:
        calls.append(["flag"])
        if any(finite):
            calls[-1].append("gradients")
    return calls
""",
    _met,
    "a gradient that isn't finite is added to nothing",
)
flaw(
    "how-clusters-run/calls",
    """
def my_calls(finite):
    calls = []
    for _ in finite:
        calls.append(["gradients", "flag"])
    return calls
""",
    _met,
    "the flag comes first",
)
