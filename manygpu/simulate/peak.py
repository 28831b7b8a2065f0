"""The most bytes that a device holds while works are played.

A `Work` says in `held` what it takes and gives back. `weighed` writes that into the
steps of `manygpu.simulate.steps`, and `peaks` adds it up over the spans of the loop.
Tests hold it against the closed formulas of `manygpu.costs.memory`: what is there all
the time, such as the optimizer's state, is the formulas' alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from manygpu.simulate.works import Agenda, Work

FORWARD, BACKWARD = ("forward", "F"), ("backward", "B", "W")


def weighed(
    works: Sequence[Work],
    kept: float,
    again: float = 0.0,
    weights: float = 0.0,
    gradients: float = 0.0,
    where: Callable[[Work], Hashable] = lambda work: 0,
) -> Agenda:
    """Return the works of a step, with the bytes that they take and give back.

    Activations are there from a forward pass to the end of its backward pass, or of
    the part of it that makes the weights' gradients, if that is a work of its own.
    Gathered weights are there from their gather to the end of the pass that waited for
    it; a layer's whole gradients, until they have been scattered.

    Args:
        works: of a step; a pass is one layer's, or one stage's.
        kept: of a pass.
        again: what a backward pass computes again, and has while it lasts.
        weights: that are gathered for a pass.
        gradients: that a backward pass makes, and a scatter takes away.
        where: whose memory a work uses.
    """
    apart = {_key(work) for work in works if work.name == "W"}
    # An operation may be several works, one a layer.
    ends = {(work.name, _key(work)): i for i, work in enumerate(works)}
    weighed = Agenda()
    for i, work in enumerate(works):
        held = [weights] if work.name == "all-gather" else []
        if work.name in FORWARD:
            held += [kept]
        if work.name in BACKWARD:
            last = work.name == "W" or _key(work) not in apart
            whole = _key(work) is None or ends[work.name, _key(work)] == i
            held += [-kept] * (last and whole)
        if work.name in BACKWARD[:2]:
            held += [gradients, again, -again]
        if any(works[j].name == "all-gather" for j in work.after):
            held += [-weights]
        if work.name == "reduce-scatter":
            held += [-gradients]
        place = where(work)
        own = tuple((place, size) for size in held if size)
        weighed.append(work._replace(held=own))
    return weighed


def _key(work: Work) -> Any:
    """A stage and a micro-batch, of an operation of a plan."""
    return work.what[1:] if isinstance(work.what, tuple) else None


def peaks(spans: Iterable[Any]) -> dict[Hashable, float]:
    """Return the most bytes that were held at once, by whose memory it is.

    What ends when something begins has given back before. `spans`: of played works, in
    the order of their start.
    """
    changes = defaultdict(list)
    for i, span in enumerate(spans):
        at_once = 1, i, 1  # it takes no time: it gives back in its own turn
        ends = span.end, *((0, i, 0) if span.start < span.end else at_once)
        for whose, size in span.work.held:
            turn = (span.start, 1, i, 0) if size > 0 else ends
            changes[whose].append((turn, size))
    found = {}
    for whose, own in changes.items():
        now = most = 0.0
        for _, size in sorted(own):
            now += size
            most = max(most, now)
        found[whose] = most
    return found
