"""Exercises that answer back: your function is tried, and told what it breaks.

An `Exercise` has cases, the smallest first, and properties that a right answer has in
each. `check` tries a function on them. What it says names the property and the smallest
case that broke it, never the solution.
"""

from __future__ import annotations

import copy
import html
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from manygpu.exercises.in_time import each_in_time
from manygpu.exercises.kept import keep
from manygpu.exercises.wire import NoDataError, from_line, result_to_line

PUBLIC = 0  # seed of the cases that a page's check draws; a grader has its own
RUNS = "it runs"  # the property of an answer that raises no error
WRITTEN = "it is written"
KIND = "it returns what the docstring says"
NUMBERS = "each number is one"  # no right answer holds NaN, and few an infinity
MISSING = "is a `return` missing?"
NONE = f"The docstring says when None is right; or {MISSING}"
LONG = 300  # letters of a value that is shown
JUDGING = 5  # seconds that judging one property may take
DRAWS = 20  # seeds that a grader draws from until it has as many new cases
AS_MANY, SOME, NO_OTHERS = (
    "the grader draws as many more",
    "the grader draws others",
    "these are all there are, so the grader has no others",
)

Cases = Callable[[random.Random], Iterable[tuple]]
Properties = Callable[..., Iterator[tuple[str, str]]]


class Exercise(NamedTuple):
    """A function that a reader writes.

    Attributes:
        name: "page/its-own-name".
        stub: what the page shows: signature and docstring.
        cases: arguments of each call, the smallest first, drawn by a generator.
        properties: gets what was returned and the arguments; yields each property's
            name and what is wrong with it, or "".
        in_place: what was returned comes with the first argument's items, as the call
            has left them.
        hunted: it exists for its bugs: no page has its stub, and no grader asks for it.
        infinite: a right answer may be infinite.
    """

    name: str
    stub: str
    cases: Cases
    properties: Properties
    in_place: bool = False
    hunted: bool = False
    infinite: bool = False


class Checked(NamedTuple):
    """What came of a check.

    Attributes:
        name: the exercise's.
        passed: how many cases it passed.
        broken: the property that the first other one broke; "" if there was none.
        said: what is wrong, and with which arguments.
        graded: whether these were a grader's cases.
        others: which others a grader has.
    """

    name: str
    passed: int
    broken: str = ""
    said: str = ""
    graded: bool = False
    others: str = AS_MANY

    def __bool__(self) -> bool:
        """Whether all held."""
        return not self.broken

    def __str__(self) -> str:
        if self.broken == WRITTEN:
            return f"{self.name}: not written yet. {self.said}"
        if self.broken:
            one = self.passed == 1
            some = "1 passed case" if one else f"{self.passed} passed cases"
            before = f" after {some}" if self.passed else ""
            return f"{self.name}: broken{before}: {self.broken}. {self.said}"
        if self.graded:
            return f"{self.name}: all {self.passed} cases pass"
        return f"{self.name}: all {self.passed} public cases pass; {self.others}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        mark = "yes" if self else "no"
        said = html.escape(str(self))
        return f'<p class="manygpu-checked" data-holds="{mark}">{said}</p>'


class Guessed(Checked):
    """What came of a guess which property is broken: `broken` is a wrong one."""

    __slots__ = ()

    def __str__(self) -> str:
        if self:
            return f"{self.name}: yes: it breaks {self.said!r}"
        said = f": {self.said}" if self.said else ""
        first = "isn't the property that breaks first"
        return f"{self.name}: no, {self.broken!r} {first}{said}"

    __repr__ = __str__


KNOWN: dict[str, Exercise] = {}


def exercise(
    name: str,
    stub: str,
    cases: Cases,
    in_place: bool = False,
    hunted: bool = False,
    infinite: bool = False,
) -> Callable[[Properties], Properties]:
    """Add an exercise whose properties are the function below; see `Exercise`.

    Raises:
        ValueError: there is one of this name.
    """
    if name in KNOWN:
        raise ValueError(f"name must be new, there is an exercise {name!r}")

    def add(properties: Properties) -> Properties:
        text = stub.strip() + "\n"
        KNOWN[name] = Exercise(
            name, text, cases, properties, in_place, hunted, infinite
        )
        return properties

    return add


def check(name: str, answer: Callable[..., Any], seed: int = PUBLIC) -> Checked:
    """Try an answer on an exercise's cases, and say what the first broken one shows.

    Args:
        name: "page/its-own-name"; the page says it.
        answer: the function you wrote. It gets copies, so that it may change them.
        seed: draws the cases that aren't always there.

    Raises:
        ValueError: there is no exercise of this name.
        TypeError: `answer` isn't a function, or `seed` no whole number.
    """
    if name not in KNOWN:
        page = str(name).partition("/")[0]
        near = [other for other in KNOWN if other.startswith(f"{page}/")] or [*KNOWN]
        raise ValueError(f"name must be one of {', '.join(near)}, got {name!r}")
    if not callable(answer):
        raise TypeError(f"answer must be a function, got {answer!r:.{LONG}}")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed must be a whole number, got {seed!r:.{LONG}}")
    asked = KNOWN[name]
    found = tried(asked, lambda given: answered(answer, given, asked.in_place), seed)
    if not found or seed != PUBLIC:
        return found
    keep("exercises", name, {"cases": found.passed})
    return found._replace(others=others(asked))


def tried(asked: Exercise, call: Callable[[tuple], Any], seed: int) -> Checked:
    """Ask for the result of each case, until a property is broken."""
    passed, graded = 0, seed != PUBLIC
    asked = asked._replace(properties=each_in_time(JUDGING, asked.properties))
    for given in cases_of(asked, seed):
        broken, said = _broken(asked, call, given)
        if broken:
            return Checked(asked.name, passed, broken, said, graded)
        passed += 1
    return Checked(asked.name, passed, graded=graded)


def cases_of(asked: Exercise, seed: int) -> Iterator[tuple]:
    """The page's cases, or those that a grader draws; see `drawn_others`."""
    yield from asked.cases(random.Random(seed))
    if seed != PUBLIC:
        yield from drawn_others(asked, seed)


def drawn_others(asked: Exercise, seed: int) -> Iterator[tuple]:
    """Cases that a grader adds to those of its seed: as many as it can find.

    With them, it has as many cases that the page hasn't shown as the page has, unless
    there are no more: all splits of 4 devices, for example, are only a few.
    """
    known = {repr(given) for given in asked.cases(random.Random(PUBLIC))}
    wanted = 2 * len(known)
    known |= {repr(given) for given in asked.cases(random.Random(seed))}
    for draw in range(1, DRAWS):
        for given in asked.cases(random.Random(f"{seed} {draw}")):
            if len(known) >= wanted:
                return
            if repr(given) not in known:
                known.add(repr(given))
                yield given


def others(asked: Exercise) -> str:
    """Which cases a grader has that the page doesn't show."""
    public = {repr(given) for given in asked.cases(random.Random(PUBLIC))}
    new = {repr(given) for given in cases_of(asked, PUBLIC + 1)} - public
    if not new:
        return NO_OTHERS
    return AS_MANY if len(new) >= len(public) else SOME


def _broken(asked: Exercise, answer: Callable, given: tuple) -> tuple[str, str]:
    """The property that one case breaks, and how it shows; two empty texts for none."""
    call = f"{answer_name(asked)}({', '.join(map(_short, given))})"
    try:
        found = answer(given)
    except NotImplementedError as error:
        return WRITTEN, str(error)
    except NoDataError as error:
        return KIND, f"{call}: {error}"
    except Exception as error:
        return RUNS, f"{call} stops with {type(error).__name__}: {error!s:.{LONG}}"
    broken, wrong = _judged(asked, found, given)
    if broken and found is None and not asked.in_place:
        if broken != KIND and "None" in asked.stub:  # an answer, though not here
            return broken, f"{call}: {wrong}. {NONE}"
        return KIND, f"{call}: it returned None: {MISSING}"
    return broken, broken and f"{call}: {wrong}"


def _judged(asked: Exercise, found: Any, given: tuple) -> tuple[str, str]:
    """The property that a result breaks, and how; two empty texts for none."""
    try:
        for name, wrong in asked.properties(found, *given):
            if wrong:
                return name, wrong
    except Exception as error:  # it isn't even of the right kind, or our own fault
        stopped = f"judging it stopped with {type(error).__name__}: {error!s:.{LONG}}"
        return KIND, f"it returned {_short(found)}; {stopped}"
    if wrong := odd_number(found, asked.infinite):  # "wrong if x > bound" takes NaN
        return NUMBERS, f"it returned {_short(found)}, which holds {wrong}"
    return "", ""


def odd_number(value: Any, infinite: bool = False) -> str:
    """What a number, an array, or something in a list or dict is, if it isn't finite.

    Args:
        value: what arrived of a result: see `wire`.
        infinite: an infinity is a number here.
    """
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        return next(filter(None, (odd_number(each, infinite) for each in value)), "")
    if isinstance(value, str) or value is None:
        return ""
    numbers = np.asarray(value)
    if numbers.dtype.kind == "f" and np.isnan(numbers).any():
        return "NaN"
    endless = numbers.dtype.kind == "f" and np.isinf(numbers).any()
    return "an infinity" if endless and not infinite else ""


def answered(answer: Callable, given: tuple, in_place: bool = False) -> Any:
    """What arrives of what an answer returns, as it would at a grader."""
    return from_line(result_to_line(called(answer, given, in_place)))


def called(answer: Callable, given: tuple, in_place: bool = False) -> Any:
    """What an answer returns for copies of these arguments; see `Exercise`."""
    own = copy.deepcopy(given)
    items = list(own[0]) if in_place else []
    found = answer(*own)
    return (found, items) if in_place else found


def answer_name(asked: Exercise) -> str:
    """The function's name in the stub."""
    return asked.stub.partition("def ")[2].partition("(")[0]


def _short(value: Any) -> str:
    """A value as it is typed, cut where it is long."""
    said = " ".join(repr(value).split())
    return said if len(said) <= LONG else f"{said[: LONG - 3]}..."
