"""Exercises of parts 6 and 7: out of step, and beyond one machine."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.saying import all_off, in_digits, mistaken, off, other


def _gradients(draw: random.Random) -> Iterator[tuple]:
    for numbers, steps in (([4.0, -1.0], 3), ([2.0, 1.1, 0.45], 6), ([1.0, 1, 1], 3)):
        yield [np.array(numbers) for _ in range(steps)], 1
    yield [np.array([3.0, 2, 1]), np.array([3.0, 2, 1])], 2
    for _ in range(3):
        yield [arrays(draw, 8) for _ in range(5)], draw.randint(1, 3)


@exercise(
    "sending-less/feedback",
    '''
def my_sent(gradients, count):
    """Return what is sent in each step if only `count` numbers may be sent.

    In each step, add the numbers that were kept back so far to the gradient.
    Of this sum, send the `count` numbers with the largest absolute values. Put
    zeros in the places of all others, and keep these others for the next step.

    gradients: one array per step.
    count: how many numbers may be sent per step.

    The result is one array per step.
    """
    raise NotImplementedError(
        "How do numbers that aren't sent now get sent later?",
    )
''',
    _gradients,
)
def judge_feedback(found, gradients, count):
    yield "one array per step", other(len(found), len(gradients))
    many = [s for s, sent in enumerate(found) if np.count_nonzero(sent) > count]
    yield "few numbers are sent", many and f"more are in step {many[0]}"
    kept, lost, small = np.zeros_like(gradients[0]), "", ""
    for step, (gradient, sent) in enumerate(zip(gradients, found)):
        meant = gradient + kept
        places = np.flatnonzero(sent)
        lost = lost or (off(sent[places], meant[places]) and f"in step {step}")
        largest, own = (np.sort(np.abs(each))[-count:] for each in (meant, sent))
        small = small or (off(own, largest) and f"in step {step}, others are")
        kept = meant - sent
    alone = [np.sort(np.abs(each))[-count] for each in gradients]
    plain = [np.where(abs(g) >= a, g, 0) for g, a in zip(gradients, alone)]
    forgot = small and not all_off(found, plain) and "it isn't"
    yield "numbers that were kept back are sent later", lost or forgot
    yield "the largest are sent", small


def _stale(draw: random.Random) -> Iterator[tuple]:
    yield from ((["a"],), (["a", "a"],), (["a", "b", "a", "b"],))
    for names in ("ab", "abc", "abcd"):
        yield ([draw.choice(names) for _ in range(12)],)


@exercise(
    "asynchronous/staleness",
    '''
def my_staleness(pushes):
    """Return the staleness of each push, as a list.

    The staleness of a push is the number of updates by other workers since
    this worker's last pull. Each worker pulls the weights at the start, and
    again immediately after each of its own pushes.

    pushes: the names of the workers, in the order in which their gradients
        arrive.
    """
    raise NotImplementedError(
        "Remember, for each worker, how many pushes it has seen.",
    )
''',
    _stale,
)
def judge_staleness(found, pushes):
    pulled, right, counted = {}, [], []
    for step, name in enumerate(pushes):
        right.append(step - pulled.get(name, 0))
        counted.append(right[-1] + (name in pulled))
        pulled[name] = step + 1
    yield "one number per push", other(len(found), len(pushes))
    own = list(found) in (counted, [late + 1 for late in right])
    yield "its own update isn't counted", own and other(list(found), right)
    first = next(iter(found)) != 0 and f"it is {found}"
    yield "the first push is not stale", first
    yield "it counts the updates of other workers in between", other(list(found), right)


def _local(draw: random.Random) -> Iterator[tuple]:
    both = [np.array([[1.0], [2.0], [4.0]]), np.array([[3.0], [0.0], [1.0]])]
    yield from ((both, 0.5, 2), (both, 0.5, 1))
    for k, every in ((1, 1), (2, 1), (2, 3), (3, 2)):
        yield [arrays(draw, 7, 2) for _ in range(k)], 0.1, every


@exercise(
    "meeting-seldom/average",
    '''
def my_local(gradients, rate, every):
    """Return the weights of all workers after the last step.

    All workers start from zeros. In each step, each worker takes its own SGD
    step. After every `every`-th step, all workers replace their weights by the
    mean of their weights.

    gradients: for each worker, an array (steps, numbers).

    The result is an array (workers, numbers).
    """
    raise NotImplementedError(
        "Which arrays are averaged, and after which steps?",
    )
''',
    _local,
)
def judge_average(found, gradients, rate, every):
    w = np.zeros((len(gradients), gradients[0].shape[1]))
    never, added = w.copy(), w.copy()
    for step in range(len(gradients[0])):
        taken = rate * np.array([own[step] for own in gradients])
        w, never, added = w - taken, never - taken, added - taken
        if (step + 1) % every == 0:
            w[:], added[:] = w.mean(axis=0), added.sum(axis=0)
    yield "one row of weights per worker", other(np.shape(found), w.shape)
    wrong = off(found, w)
    yield "the weights are averaged, not added up", mistaken(found, w, added)
    yield (
        "the workers average at all",
        wrong and not off(found, never) and "they never do",
    )
    downhill = wrong and not off(found, -w) and "the weights move uphill"
    yield "a step goes downhill", downhill
    yield "all take the mean of the weights, after the right steps", wrong


def _saves(draw: random.Random) -> Iterator[tuple]:
    yield from ((10.0, 3600.0), (30.0, 86400.0))
    for _ in range(4):
        yield draw.uniform(1, 60), draw.uniform(1e4, 1e6)


@exercise(
    "worker-dies/interval",
    '''
def my_interval(save, failure):
    """Return the seconds between two saves that lose the least time in total.

    A save stops the training for a while. A failure loses the work since the
    last save, which is half an interval on average.

    save: the seconds that one save takes.
    failure: the mean seconds between two failures. They are much longer than a
        save.

    The result is the interval in seconds of training.
    """
    raise NotImplementedError(
        "How many seconds per second of training do saves cost, and failures?"
    )
''',
    _saves,
)
def judge_interval(found, save, failure):
    def lost(interval: float) -> float:
        if not interval > 0:  # nor is NaN an interval
            return math.inf
        return save / interval + interval / 2 / failure

    best = math.sqrt(2 * save * failure)
    wrong = lost(found) > 1.001 * lost(best) and f"it is {in_digits(found)}"
    often, seldom = (not found > best and wrong), (found > best and wrong)
    yield "saves don't cost more than they gain", often
    yield "failures don't lose more than saves would cost", seldom


def _entered(draw: random.Random) -> Iterator[tuple]:
    yield from (({0: 3, 1: 3},), ({0: 3, 1: 2},), ({0: 2, 1: 3, 2: 3},))
    yield from (({0: 2, 1: 3, 2: 1},), ({2: 1, 0: 3, 1: 2},))
    for _ in range(4):
        calls = dict.fromkeys(range(4), 7)
        late = draw.sample(range(4), draw.randint(1, 3))
        yield (calls | dict.fromkeys(late, draw.randint(1, 6)),)


@exercise(
    "step-hangs/missing",
    '''
def my_missing(entered):
    """Return the ranks that the others are waiting for, in rising order.

    A rank that has entered the most collectives waits in the last of them
    until every other rank has entered as many. If no rank waits, return [].

    entered: a dict. For each rank, it gives how many collectives this rank has
        entered.
    """
    raise NotImplementedError(
        "Which ranks have entered fewer than the others?",
    )
''',
    _entered,
)
def judge_missing(found, entered):
    last, first = max(entered.values()), min(entered.values())
    behind = sorted(r for r, calls in entered.items() if calls < last)
    blamed = sorted(r for r, calls in entered.items() if calls == last)
    yield (
        "if all ranks are equally far, none is named",
        first == last and other(list(found), []),
    )
    victims = first < last and list(found) == blamed and f"it is {found}"
    yield "ranks that wait aren't blamed", victims
    mixed = sorted(found) == behind and other(list(found), behind)
    yield "ranks are named in order", mixed
    yield "all ranks that are behind are named", other(list(found), behind)


def _rates(draw: random.Random) -> Iterator[tuple]:
    yield from ((8e9, 1e6, 10.0, 16, 1e15), (1e9, 1e5, 1.0, 1, 1e15))
    for _ in range(3):
        yield draw.uniform(1e8, 1e11), 1e6, draw.uniform(1, 60), 64, 989e12


@exercise(
    "whole-cluster/mfu",
    '''
def my_mfu(parameters, tokens, seconds, gpus, peak):
    """Return the model FLOPs utilization of a step of a dense language model.

    In the forward pass, each token needs 2 FLOPs per parameter. Don't count
    attention scores or recomputation.

    tokens: the number of tokens in one step, over all GPUs.
    peak: the FLOP/s of one GPU at its peak.
    """
    raise NotImplementedError(
        "How many FLOPs does a token need, forward and backward together?"
    )
''',
    _rates,
)
def judge_mfu(found, parameters, tokens, seconds, gpus, peak):
    right = 6 * parameters * tokens / (seconds * gpus * peak)
    forward = not off(found, right / 3) and f"it is {in_digits(found, 3)}"
    yield "the backward pass counts, at twice the forward pass", forward
    again = not off(found, right * 4 / 3) and f"it is {in_digits(found, 3)}"
    yield "recomputation isn't counted", again
    whole = gpus > 1 and not off(found, right * gpus) and f"it is {in_digits(found, 3)}"
    yield "it is divided by the peak of all GPUs", whole
    yield "it is a share of the peak", off(found, right)
