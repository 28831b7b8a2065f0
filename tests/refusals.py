"""What functions refuse, as tables: a good call, and a row for each bad argument.

A row is ("argument", [bad values], error, words ...) or ({argument: bad value, ...},
error, words ...). The message must hold all the words, or else the argument's name;
"{!r}" in them stands for the bad value. Nothing that was passed may have changed.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest


class Refusal(NamedTuple):
    """One bad call. `good` are the arguments of a good one, or make them anew."""

    call: Callable
    good: dict[str, Any] | Callable[[], dict[str, Any]]
    bad: dict[str, Any]
    error: type[Exception]
    said: tuple[str, ...]

    def arguments(self) -> dict[str, Any]:
        return dict(self.good() if callable(self.good) else self.good)

    def __str__(self) -> str:
        return f"{getattr(self.call, '__name__', 'call')}-{'-'.join(self.bad)}"


class Good(NamedTuple):
    """A good call: its arguments, or what makes them anew."""

    call: Callable
    made: dict[str, Any] | Callable[[], dict[str, Any]]

    def refuses(self, *rows: tuple) -> list[Refusal]:
        """The bad calls of these rows."""
        found = []
        for what, *rest in rows:
            bads = [what]
            if isinstance(what, str):
                bads = [{what: value} for value in rest.pop(0)]
            error, *said = rest
            for bad in bads:
                given = ", ".join(map(repr, bad.values()))
                words = tuple(w.replace("{!r}", given) for w in said or bad)
                found.append(Refusal(*self, bad, error, words))
        return found


def good(call: Callable, make: Callable | None = None, /, **arguments: Any) -> Good:
    """A good call; `make` returns its arguments, anew for each bad one."""
    return Good(call, make or arguments)


def leaves(value: Any, seen: dict[int, Any]) -> Iterator[Any]:
    """All that is in lists, tuples, dictionaries, and objects of the package."""
    if id(value) in seen:
        return
    seen[id(value)] = value  # kept, so that no other object gets its id
    yield value
    inside = value if isinstance(value, (list, tuple)) else ()
    if isinstance(value, dict):
        inside = value.values()
    elif type(value).__module__.startswith("manygpu") and hasattr(value, "__dict__"):
        inside = vars(value).values()
    for one in list(inside):
        yield from leaves(one, seen)


def state(arguments: dict[str, Any]) -> list:
    """What was passed, piece by piece, and the numbers of variables."""
    pieces = list(leaves(arguments, {}))
    numbers = [p.numpy().tobytes() for p in pieces if hasattr(p, "assign_sub")]
    return [*map(id, pieces[1:]), *numbers]


def refused(call: Callable[[], object], error: type[Exception], *said: str) -> None:
    """`call` raises just this error, and its message holds each of `said`."""
    with pytest.raises(error) as raised:
        call()
    assert type(raised.value) is error, repr(raised.value)
    for words in said:
        assert words in str(raised.value), str(raised.value)


def is_refused(refusal: Refusal) -> None:
    arguments = refusal.arguments() | refusal.bad
    before = state(arguments)
    refused(lambda: refusal.call(**arguments), refusal.error, *refusal.said)
    assert state(arguments) == before


def goods(refusals: list[Refusal]) -> list[Refusal]:
    """One for each good call."""
    return list({(id(r.call), id(r.good)): r for r in refusals}.values())


def is_taken(refusal: Refusal) -> None:
    """The rest of the call is right: it is refused for what is wrong with it."""
    refusal.call(**refusal.arguments())
