"""A small function with one thing wrong, judged by an exercise's cases.

Chapters whose code has few bugs of `manygpu.prove.planted` have these to be found.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from manygpu.exercises.checking import (
    KNOWN,
    PUBLIC,
    Checked,
    Exercise,
    Guessed,
    answer_name,
    check,
)

Symptom = Callable[[Callable[..., Any]], str]


class Flaw(NamedTuple):
    """A broken answer to an exercise.

    Attributes:
        name: `"page/bug 3"`.
        of: the exercise whose properties a mended one has.
        code: the function, broken, with the docstring of the exercise's.
        seen: gets it and says what a reader would see, with its numbers.
        broken: the property that it breaks. Don't look.
    """

    name: str
    of: str
    code: str
    seen: Symptom
    broken: str

    def __repr__(self) -> str:
        return f"{self.name}: see code, symptom, guess and mended"

    @property
    def function(self) -> Callable[..., Any]:
        """The broken function, to be called."""
        space: dict[str, Any] = {}
        exec(compile(self.code, f"<{self.name}>", "exec"), space)
        return space[answer_name(KNOWN[self.of])]

    @property
    def choices(self) -> list[str]:
        """Properties that the function may break, in the order they are asked for."""
        asked, names = KNOWN[self.of], {}
        for given in asked.cases(random.Random(PUBLIC)):
            found = self.function(*given)
            if asked.in_place:
                found = (found, list(given[0]))
            names |= {name: None for name, _ in asked.properties(found, *given)}
        return list(names)

    def symptom(self) -> None:
        """Show what somebody who used it would see."""
        print(f"{self.name}: {self.seen(self.function)}")

    def guess(self, broken: str) -> Guessed:
        """Say which property is broken, one of `choices`.

        Raises:
            ValueError: there is no such property.
        """
        if broken not in self.choices:
            known = "; ".join(self.choices)
            raise ValueError(f"broken must be one of: {known}; got {broken!r}")
        if broken == self.broken:
            return Guessed(self.name, 1, said=broken)
        return Guessed(self.name, 0, broken)

    def mended(self, function: Callable[..., Any]) -> Checked:
        """Try your version on the exercise's cases, with numbers it hasn't seen.

        Raises:
            TypeError: it isn't a function.
        """
        return check(self.of, function, seed=PUBLIC + 1)._replace(name=self.name)


FLAWS: dict[str, list[Flaw]] = {}


def flaw(of: str, code: str, seen: Symptom, broken: str) -> None:
    """Add a bug to the chapter of an exercise; see `Flaw`.

    Raises:
        ValueError: there is no such exercise.
    """
    if of not in KNOWN:
        raise ValueError(f"of must be the name of an exercise, got {of!r}")
    page = of.partition("/")[0]
    own = FLAWS.setdefault(page, [])
    text = _explained(code.strip() + "\n", KNOWN[of])
    own.append(Flaw(f"{page}/flaw {len(own) + 1}", of, text, seen, broken))


def _explained(code: str, asked: Exercise) -> str:
    """A function's code with the exercise's docstring, if it has none of its own."""
    if '"""' in code:
        return code
    said = asked.stub[asked.stub.index('    """') : asked.stub.rindex('"""')]
    body = code.index(":\n", code.index(f"def {answer_name(asked)}(")) + 2
    return f'{code[:body]}{said}"""\n{code[body:]}'
