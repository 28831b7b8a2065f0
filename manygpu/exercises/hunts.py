"""Find the bug: a function of a chapter with one line that is wrong.

For example::

    bug = hunt("many-devices", 3)
    print(bug.code)      # the function, broken
    bug.symptom()        # how far its training differs from the right one
    bug.choices          # properties that may be broken: a word and a sentence each
    bug.guess("shares")  # what does it break?
    bug.mended(shard_gradients)  # your version, judged in its place

The bugs are those of `manygpu.prove.planted`, most of which somebody has shipped, and
those of `manygpu.exercises.flaws`, whose functions are small.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, NamedTuple

import manygpu
from manygpu import _devices, measure, tables
from manygpu.exercises.checking import Checked, Guessed
from manygpu.exercises.flaws import FLAWS, Flaw
from manygpu.prove.planted import BUGS, Bug, broken_source, found, planted
from manygpu.prove.verdict import PROPERTIES, stopped

NAMES = (
    ". It sees the names of the chapter's module, not your notebook's; import inside "
    "the function"
)


@contextmanager
def shared_devices() -> Iterator[None]:
    """Inside, if there are fewer devices than a step asks for, each is used again.

    A page has started TensorFlow with two, or one, and the judge asks for eight.
    """
    real = manygpu.devices

    def devices(n: int | None = None, quiet: bool = False) -> list[str]:
        there = _devices._chosen
        if n is None or not there or n <= len(there):
            return real(n, quiet)
        return [there[i % len(there)] for i in range(n)]

    manygpu.devices = devices
    try:
        yield
    finally:
        manygpu.devices = real


class Choices(dict[str, str]):
    """Properties that may be broken: the sentence of each, by its word."""

    def __repr__(self) -> str:
        wide = max(map(len, self), default=0)
        return "\n".join(f"{word:{wide}}  {says}" for word, says in self.items())


class Hunt(NamedTuple):
    """A bug to be found.

    Attributes:
        name: `"page/bug 3"`.
        bug: where it is and what it breaks. Don't look.
    """

    name: str
    bug: Bug

    def __repr__(self) -> str:
        return f"{self.name}: see code, symptom, guess and mended"

    @property
    def functions(self) -> dict[str, str]:
        """The broken functions' sources by qualified name."""
        module = importlib.import_module(f"manygpu.scratch.{self.bug.module}")
        right = inspect.getsource(module)
        wrong = broken_source(self.bug, right)
        before, nodes = (dict(_functions(ast.parse(text))) for text in (right, wrong))
        changed = [n for n in nodes if ast.dump(before[n]) != ast.dump(nodes[n])]
        return {name: _source(wrong, nodes[name]) for name in changed}

    @property
    def code(self) -> str:
        """The broken function, to be read, copied and fixed."""
        return "\n\n".join(self.functions.values())

    @property
    def choices(self) -> Choices:
        """Properties that a step may break, by the judge's words for `guess`."""
        said = Choices({word: rule.says for word, rule in PROPERTIES.items()})
        said["runs"] += "; a crash breaks this one"
        return said

    def symptom(self) -> None:
        """Show how far the broken training differs from the right one, per case.

        If a training run can be saved, both are, after the first step, and are resumed.
        """
        rows = []
        for case in self._cases():
            right = self._trained(case)
            with planted(self.bug):
                wrong = self._trained(case)
            off = [wrong, ""] if isinstance(wrong, str) else _apart(wrong, right)
            rows.append((case.devices, case.samples, case.steps, *off))
        columns = dict.fromkeys(["devices", "samples", "steps"], "")
        columns |= dict.fromkeys(["weights differ by", "loss differs by"], ".1%")
        resumed = ", both resumed after a step" if self._resumes else ""
        text = f"{self.name}: the broken step, compared with the right one{resumed}."
        tables.table(rows, columns, text)

    def guess(self, broken: str) -> Guessed:
        """Say which property is broken, by a word of `choices`.

        Raises:
            ValueError: there is no such property.
        """
        if broken not in PROPERTIES:
            known = ", ".join(PROPERTIES)
            raise ValueError(f"broken must be one of {known}, got {broken!r}")
        if broken == self.bug.broken:
            return Guessed(self.name, 1, said=broken)
        return Guessed(self.name, 0, broken, self.choices[broken])

    def mended(self, function: Callable[..., Any]) -> Checked:
        """Put your version into the place of the broken function, and judge the step.

        Args:
            function: of the same name. It finds what the chapter's module has, and
                none of your notebook's names.

        Raises:
            ValueError: another name, or a function that needs names around it.
        """
        from manygpu.prove import judge

        ((name, _), *more) = self.functions.items()
        last = name.rpartition(".")[2]
        if getattr(function, "__name__", "") != last or more:
            raise ValueError(f"function must be called {last}, got {function!r:.80}")
        if around := function.__code__.co_freevars:
            raise ValueError(
                f"function must use no variable of a function around it, got {around}: "
                "pass it as an argument"
            )
        # Where the judge has no gradient to compare with, the right step is one.
        cases = [] if self._subject().gradient else self._cases()
        right = [self._trained(case) for case in cases]
        with planted(self.bug):
            self._place(name).__code__ = function.__code__
            verdict = judge(self._subject())
            own = [self._trained(case) for case in cases if verdict.right]
        for case, *both in zip(cases, own, right):
            if far := _far(*both):
                devices = f"{case.devices} device{'s' * (case.devices != 1)}"
                said = f"on {devices}, against the right step, {far}"
                says = PROPERTIES["gradient"].says
                return Checked(self.name, 0, says, said, graded=True)
        if verdict.right:
            return Checked(self.name, len(verdict.trials), graded=True)
        if not verdict.findings:  # no trial could begin
            says = PROPERTIES["runs"].says
            return Checked(self.name, 0, says, verdict.unsure, graded=True)
        first = verdict.findings[0]
        says, said = PROPERTIES[first.broken].says, first.sentence
        said += NAMES if "stops with NameError" in said else ""
        return Checked(self.name, 0, says, said, graded=True)

    def _place(self, name: str) -> FunctionType:
        module = importlib.import_module(f"manygpu.scratch.{self.bug.module}")
        return found(module, name)

    def _subject(self) -> Any:
        from manygpu.prove.steps import BY_NAME

        with shared_devices():
            return BY_NAME[self.bug.subject](self.bug.subject)

    def _cases(self) -> list[Any]:
        return self._subject().counted(full=False)[::-1]

    @property
    def _resumes(self) -> bool:
        """Whether its training can be saved."""
        subject = self._subject()
        running = subject.start(subject.weights, 1)
        return callable(getattr(running, "save", None))

    def _trained(self, case: Any) -> tuple[list[Any], list[Any]] | str:
        """The first replica's weights after a case's steps, and losses; or its end."""
        subject, losses, resumes = self._subject(), [], self._resumes
        try:
            running = subject.start(subject.weights, case.devices)
            for step in range(case.steps):
                if step and resumes:
                    saved = running.save()
                    running = subject.start(subject.weights, case.devices)
                    running.resume(saved)
                losses.append(running.take(*subject.draw(case.samples, step)))
            return [each.copy() for each in running.copies()[0]], losses
        except Exception as error:
            return stopped(error)


def _apart(wrong: tuple, right: tuple) -> tuple[float, float | None]:
    """Which share weights and losses differ by; None where no loss is reported."""
    pairs = [(a, b) for a, b in zip(wrong[1], right[1], strict=True) if b is not None]
    off = max((abs(float(a) / float(b) - 1) for a, b in pairs), default=None)
    return float(measure.distance(wrong[0], right[0])), off


def _far(own: tuple | str, right: tuple) -> str:
    """How a training differs from the right one by more than rounding, or ""."""
    if isinstance(own, str):
        return own
    off, _ = _apart(own, right)
    return f"the weights differ by {off:.1%}" if off > 1e-6 else ""


def hunts(chapter: str) -> list[Hunt | Flaw]:
    """Return the bugs of a chapter; TypeError or ValueError if it has none."""
    if not isinstance(chapter, str):
        raise TypeError(f"chapter must be the name of a page, got {chapter!r}")
    importlib.import_module("manygpu.exercises.asked")  # which fills FLAWS
    module = chapter.replace("-", "_")
    there = [bug for bug in BUGS if not bug.module.startswith("prove.")]
    own = [bug for bug in there if bug.module.rpartition(".")[2] == module]
    small = FLAWS.get(chapter, [])
    if not own and not small:
        pages = {bug.module.rpartition(".")[2].replace("_", "-") for bug in there}
        known = ", ".join(sorted({*pages, *FLAWS}))
        raise ValueError(f"chapter must be one of {known}, got {chapter!r}")
    return [Hunt(f"{chapter}/bug {i}", bug) for i, bug in enumerate(own, 1)] + small


def hunt(chapter: str, number: int = 1) -> Hunt | Flaw:
    """Return one bug of a chapter; see `Hunt` and `Flaw`.

    Raises:
        TypeError: a chapter that is no text, or a number that is no whole one.
        ValueError: no such chapter, or number.
    """
    all_ = hunts(chapter)
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"number must be a whole number, got {number!r}: say 1, 2, ...")
    if number not in range(1, len(all_) + 1):
        raise ValueError(f"number must be from 1 to {len(all_)}, got {number!r}")
    return all_[number - 1]


def _functions(tree: ast.AST, prefix: str = "") -> Any:
    """Qualified name and node of a module's functions and methods."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{prefix}{node.name}", node


def _source(text: str, node: ast.FunctionDef) -> str:
    """A function's lines, without decorators, not indented."""
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    return textwrap.dedent("\n".join(lines))
