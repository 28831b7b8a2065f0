"""Replace what right answers return by odd values: is one accepted, or slow to judge?

    .venv/bin/python experiments/odd_values.py [PAGE ...]

Each exercise's right answer is run, and its result becomes 48 odd values in turn: NaN,
infinities, negative numbers, text, objects that are equal to everything, lists without
an end. Prints each odd value that `check` accepts although it isn't the right result,
and each that takes more than 6 seconds. Exit status 1 if there are any.
"""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from manygpu.exercises import KNOWN, check
from tests.quick.exercises.answers import RIGHT

SLOW, ENDLESS = 6.0, 30.0  # seconds
Change = Callable[[Any], Any]


class Equal:
    """What is equal to everything, and neither less nor more."""

    __hash__ = None

    def _yes(self, *_: Any) -> bool:
        return True

    def _no(self, *_: Any) -> bool:
        return False

    __eq__ = __le__ = __ge__ = __bool__ = _yes
    __ne__ = __lt__ = __gt__ = _no

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[Equal]:
        return iter((self, self))


class EqualNumber(float):
    """A number that is equal to every other one."""

    __eq__ = __le__ = __ge__ = Equal._yes
    __ne__ = __lt__ = __gt__ = Equal._no
    __hash__ = float.__hash__
    __sub__ = __rsub__ = __abs__ = lambda self, *_: self


class EqualText(str):
    """A text that is equal to every other one."""

    __eq__, __ne__ = Equal._yes, Equal._no
    __hash__ = str.__hash__


def nested(depth: int) -> list:
    """A list in a list in a list."""
    found: list = []
    for _ in range(depth):
        found = [found]
    return found


# The whole result is this.
WHOLE: dict[str, Any] = {
    "NaN": math.nan, "inf": math.inf, "-inf": -math.inf, "-1": -1, "-1e300": -1e300,
    "1e300": 1e300, "0.5": 0.5, "10**400": 10**400, "10**9": 10**9, "True": True,
    "text": "0.5", "long text": "x" * 900_000, "bytes": b"0", "equal": Equal(),
    "equal number": EqualNumber(2), "equal text": EqualText("x"), "empty": [],
    "empty dict": {}, "deep": nested(900), "long": [0] * 100_000, "set": {1},
    "complex": 1 + 1j, "objects": np.array([Equal()]), "class": Equal,
    "matrix": np.zeros((300, 300)), "not a time": np.datetime64("NaT"),
}  # fmt: skip
# Each number of the right result becomes this.
EACH: dict[str, Change] = {
    "NaN": lambda x: math.nan, "inf": lambda x: math.inf, "-inf": lambda x: -math.inf,
    "minus": lambda x: -x, "-1": lambda x: -1, "-1e300": lambda x: -1e300,
    "plus 1": lambda x: x + 1, "half": lambda x: x / 2, "a bit": lambda x: x * 1.001,
    "text": str, "bytes": lambda x: str(x).encode(), "complex": lambda x: x + 1j,
    "None": lambda x: None, "equal": lambda x: Equal(), "list": lambda x: [x],
    "equal number": lambda x: EqualNumber(2 * x + 1),
}  # fmt: skip
ONE: dict[str, Change] = {
    each: EACH[each] for each in ("NaN", "-inf", "-1", "text", "equal", "plus 1")
}


def changed(value: Any, number: Change) -> Any:
    """A result with another number for each of its numbers."""
    if isinstance(value, list | tuple):
        return type(value)(changed(each, number) for each in value)
    if isinstance(value, dict):
        return {key: changed(each, number) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return changed(value.tolist(), number)
    if isinstance(value, bool | np.bool_ | str) or value is None:
        return value
    return number(value.item() if isinstance(value, np.generic) else value)


def last_changed(value: Any, number: Change) -> Any:
    """A result with another number for its last one."""
    left = []
    changed(value, lambda x: left.append(x) or x)

    def change(x: Any) -> Any:
        left.pop()
        return x if left else number(x)

    return changed(value, change)


ODD: dict[str, Change] = {
    **{f"is {name}": lambda _, value=value: value for name, value in WHOLE.items()},
    **{f"each {name}": lambda r, f=to: changed(r, f) for name, to in EACH.items()},
    **{f"last {name}": lambda r, f=to: last_changed(r, f) for name, to in ONE.items()},
}  # fmt: skip


def same(odd: Any, right: Any) -> bool:
    """Whether an odd value is the right one after all: it has no number to change."""
    try:
        return type(odd) is type(right) and repr(odd) == repr(right)
    except RecursionError:
        return False


# Odd values that are right in another way, as the exercise asks.
ALSO_RIGHT = {
    "worker-dies/interval": ("plus 1", "a bit"),  # it costs no more than 0.1% more
    "sharded-state/bytes": ("plus 1",),  # of 10**10 bytes: rounding
    "many-workers/leftwards": ("last -1",),  # chunk -1 is the last one
}


def judged(name: str, odd: Change) -> tuple[str, float]:
    """What is wrong with what `check` says to an odd value, or ""; and the seconds."""
    differ = []

    def answer(*given: Any) -> Any:
        right = RIGHT[name][0](*given)
        found = odd(right)
        differ.append(not same(found, right))
        return found

    signal.setitimer(signal.ITIMER_VIRTUAL, ENDLESS)
    start = time.monotonic()
    try:
        wrong = "accepted" if check(name, answer, seed=7) and any(differ) else ""
    except KeyboardInterrupt:
        wrong = "endless"
    except Exception as error:
        wrong = f"check stops with {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    seconds = time.monotonic() - start
    return wrong or ("slow" if seconds > SLOW else ""), seconds


def tried(names: list[str]) -> tuple[int, list[str]]:
    """How many odd values were tried, and what went wrong."""
    signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    faults, longest, count = [], 0.0, 0
    for name in names:
        for odd, change in ODD.items():
            wrong, seconds = judged(name, change)
            count, longest = count + 1, max(longest, seconds)
            if wrong and not odd.endswith(ALSO_RIGHT.get(name, ())):
                faults.append(f"{wrong}: {name}: {odd} ({seconds:.1f} s)")
                print(faults[-1], flush=True)
    print(f"the longest took {longest:.1f} s")
    return count, faults


def main(pages: list[str]) -> int:
    """Try all, or some pages' exercises; return the exit status."""
    names = [n for n in KNOWN if not pages or n.partition("/")[0] in pages]
    count, faults = tried(names)
    print(f"{count:,} odd values: {len(faults)} accepted, slow or not judged")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
