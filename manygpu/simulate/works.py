"""Work to be done: how long each piece takes, who does it, what it waits for.

An `Agenda` is a list of `Work`. Whoever plays it lets each lane, such as a device or
one direction of a link, do its own works one at a time, in the order of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from manygpu.hops import Hop

Lane = Hashable  # a device's number or name, or a tuple such as ("out", 3)
Share = tuple[Hashable, float]  # of what others use too, and which part of it


SIZE = 1e30  # beyond it, products of numbers may not be finite


def whole(name: str, value: int, most: int | None = None) -> int:
    """Return a whole number from 1, as it is; TypeError or ValueError for others."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {_shown(value)}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most:,}, got {_shown(value)}")
    return value


def _shown(number: Real) -> str:
    """A number for a message, which a long one doesn't fill."""
    text = str(number)
    return text if len(text) <= 24 else f"a number of {len(text)} digits"


def positive(name: str, value: float, or_zero: bool = False) -> float:
    """Return a finite number above 0, as it is; TypeError or ValueError for others."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    least = "at least" if or_zero else "above"
    if not 0 <= value < float("inf") or (value == 0 and not or_zero):
        raise ValueError(f"{name} must be finite and {least} 0, got {_shown(value)}")
    if value > SIZE:
        raise ValueError(f"{name} must be at most {SIZE:g}, got {_shown(value)}")
    return value


class Work(NamedTuple):
    """A piece of work that has not been done yet; once done, it is a `Span`.

    Attributes:
        name: what kind of work it is, such as "forward".
        lanes: who is busy with it, all at the same time; the first names its span.
        seconds: how long it takes where it has what it shares for itself.
        latency: seconds after that, until who waits for it may begin: a message on its
            way, which nothing stretches, and which keeps no lane busy.
        shares: what it takes of what others use meanwhile, such as (a link, 1.0).
        after: numbers of the works, in the same list, that must be done before.
        what: what exactly is done, such as an operation of a plan.
        held: (whose memory, bytes): what it takes there when it begins, or, below 0,
            gives back when it ends; see `manygpu.simulate.peak`.
    """

    name: str
    lanes: tuple[Lane, ...]
    seconds: float
    latency: float = 0.0
    shares: tuple[Share, ...] = ()
    after: tuple[int, ...] = ()
    what: Any = None
    held: tuple[tuple[Hashable, float], ...] = ()


def check_works(works: Sequence[Work]) -> None:
    """Refuse works that nobody could play to an end; `Agenda.put` adds none of these.

    Raises:
        ValueError: there are none, or one has no lane, a time that is negative or not
            finite, a share that is not above 0, or an `after` that is not in the list.
    """
    if not works:
        raise ValueError("works is empty: put tasks into an Agenda first")
    for i, work in enumerate(works):
        times = work.seconds, work.latency
        if not work.lanes:
            raise ValueError(f"works[{i}].lanes is empty: somebody has to do the work")
        if not all(0 <= time < float("inf") for time in times):
            raise ValueError(
                f"works[{i}] must have finite times from 0, got seconds and latency "
                f"{times}"
            )
        if any(not part > 0 for _, part in work.shares):
            raise ValueError(f"works[{i}].shares must be above 0, got {work.shares}")
        if not all(0 <= other < len(works) for other in work.after):
            raise ValueError(
                f"works[{i}].after must name works 0 to {len(works) - 1}, got "
                f"{work.after}"
            )


def row_of(lane: Lane) -> str | int:
    """A lane's row in a figure: its own name or number, or the words of its tuple."""
    return " ".join(map(str, lane)) if isinstance(lane, tuple) else lane


class Agenda(list[Work]):
    """Works in the order in which each lane does its own."""

    def put(
        self,
        name: str,
        lanes: Sequence[Lane],
        seconds: float,
        latency: float = 0.0,
        shares: Sequence[Share] = (),
        after: Iterable[int] = (),
        what: Any = None,
    ) -> int:
        """Add a work; return its number, for others' `after`.

        Raises:
            ValueError: no lanes, a time that is negative or not finite, a share that
                is not above 0, or an `after` that is not in the list yet.
        """
        lanes, after = tuple(lanes), tuple(sorted(set(after)))
        if not lanes:
            raise ValueError("lanes is empty: somebody has to do the work")
        for of, value in (("seconds", seconds), ("latency", latency)):
            positive(of, value, or_zero=True)
        if any(not part > 0 for _, part in shares):
            raise ValueError(f"shares must be above 0, got {list(shares)}")
        if after and not 0 <= after[0] <= after[-1] < len(self):
            raise ValueError(f"after must name works 0 to {len(self) - 1}, got {after}")
        work = Work(name, lanes, seconds, latency, tuple(shares), after, what)
        self.append(work)
        return len(self) - 1


def put_messages(
    agenda: Agenda,
    messages: Iterable[tuple[Hop, float]],
    route: Callable[[int, int, float], tuple[float, float, Sequence[Share]]],
    ready: dict[int, int] | None = None,
    name: str = "communication",
    members: Sequence[int] | None = None,
) -> dict[int, int]:
    """Add a collective's messages; return the last work that each participant awaits.

    A participant sends one message at a time and receives one at a time, each in the
    order of the steps, and sends on what it has received in the steps before: all of
    it, or of what the message carries, if a hop says so (`carries`).

    Args:
        agenda: gets the works; their `what` is the hop.
        messages: (hop, bytes), such as a `MessageLog` notes.
        route: (source, target, bytes) -> latency, seconds, shares of links.
        ready: the work after which a participant may send for the first time.
        name: of the spans.
        members: participant i is number members[i] of all (None: i itself).
    """
    ready = dict(ready or {})
    arrived: dict[tuple, list[tuple[int, int]]] = {}  # steps, and numbers of the works
    last: dict[int, int] = {}
    for hop, size in sorted(messages, key=lambda message: message[0].step):
        ends = hop.source, hop.target
        a, b = ends if members is None else (members[ends[0]], members[ends[1]])
        what = hop.carries
        before = [done for step, done in arrived.get((a, what), []) if step < hop.step]
        before = before[-1:] if what is None else before
        after = [*before, *([ready[a]] if a in ready else [])]
        latency, seconds, shares = route(a, b, size)
        lanes = ("out", a), ("in", b)
        done = agenda.put(name, lanes, seconds, latency, shares, after, hop)
        arrived.setdefault((b, what), []).append((hop.step, done))
        last[b] = done
    return ready | last


def put_plan(
    agenda: Agenda,
    plan: Iterable[Any],
    needs: Callable[[Any, int], Sequence[Any]],
    seconds: Callable[[Any], float],
    send: Callable[[int, int, Any], tuple[float, float, Sequence[Share]]] | None = None,
    names: Callable[[Any], str] = lambda op: op.kind,
    lane: Callable[[int], Lane] = lambda device: device,
    shares: Callable[[Any], Sequence[Share]] = lambda op: (),
    cut: Callable[[Any], int] = lambda op: 1,
) -> dict[Any, int]:
    """Add a pipeline's plan; return the number of each operation's work, its last one.

    Args:
        agenda: gets the works; their `what` is the operation.
        plan: slots with `device`, `tick` and `op`, as the schedules make them.
        needs: (op, stages) -> the operations whose results `op` uses.
        seconds: what an operation takes.
        send: (device, device, op) -> latency, seconds, shares, for the message that
            brings the result of `op` from one device to another; None: it takes none.
        names: an operation's kind of work.
        lane: a device's lane.
        shares: what an operation takes of what others use meanwhile.
        cut: how many works an operation is, such as one for each of its layers; they
            have numbers that follow each other.
    """
    slots = sorted(plan, key=lambda slot: slot.tick)
    stages = 1 + max(slot.op.stage for slot in slots)
    where = {slot.op: slot.device for slot in slots}
    done: dict[Any, int] = {}
    for device, _, op in slots:
        after = []
        for needed in needs(op, stages):
            arrives, source = done[needed], where[needed]
            if send is not None and source != device:
                latency, taken, links = send(source, device, needed)
                way = [("send", lane(source), lane(device))]
                arrives = agenda.put(
                    "communication", way, taken, latency, links, [arrives], needed
                )
            after.append(arrives)
        lanes, pieces = [lane(device)], cut(op)
        taken, used = seconds(op) / pieces, shares(op)
        for _ in range(pieces):
            work = agenda.put(names(op), lanes, taken, 0.0, used, after, op)
            done[op], after = work, [work]
    return done
