"""A puzzle: what is asked, what an answer is worth, and what no answer can be worth.

A judge is a function of a plan that returns its score and a drawing, or raises
`Refused`. Less is better, always. The judge's docstring is the proof of the bound, with
its source: readers see it below their score.
"""

from __future__ import annotations

import html
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from manygpu.exercises.puzzles import hall

ROUNDING = 1e-9  # of sums of floats
LONG = 300  # letters of an error that is shown
RUNS = "It runs"
ANSWERS = "It defines `answer`"
FORM = "It has the form that the task asks for"
# These say what is wrong in words of their own; of all others, the rule is told, too.
TOLD = {
    RUNS: "it doesn't run. {said}",
    ANSWERS: "it defines no `answer`. {said}",
    FORM: "{said}. Write it in the form that the task asks for.",
}

Judge = Callable[[Any], tuple[float, str]]


class Refused(ValueError):  # noqa: N818  what happened to an answer
    """An answer that isn't right: it has no score.

    Attributes:
        broken: the property that it breaks, as a sentence without a full stop.
        said: what is wrong, and where: a clause that can follow "Refused:".
    """

    def __init__(self, broken: str, said: str) -> None:
        super().__init__(refusal(broken, said))
        self.broken, self.said = broken, said


@dataclass(frozen=True)
class Scored:
    """What an answer is worth; a notebook draws it.

    Attributes:
        puzzle: the puzzle's name.
        score: in `unit`; None if the answer was refused.
        unit: what the score counts.
        bound: no answer's score is lower.
        best: the best known score.
        broken: the property that a refused answer breaks; "" otherwise.
        said: what is wrong, and where; otherwise the score beside the bound, in words.
        drawing: an SVG, as text; "" for a refused answer.
    """

    puzzle: str
    score: float | None
    unit: str
    bound: float
    best: float
    broken: str
    said: str
    drawing: str = ""

    @property
    def solved(self) -> bool:
        """Whether it is as good as the best known answer."""
        return self.score is not None and self.score <= self.best + ROUNDING

    def __bool__(self) -> bool:
        """Whether it has a score."""
        return not self.broken

    def __str__(self) -> str:
        return f"{self.puzzle}: {self.words}"

    __repr__ = __str__

    @property
    def words(self) -> str:
        """What a reader is told."""
        return refusal(self.broken, self.said) if self.broken else self.said

    def _repr_html_(self) -> str:
        mark = "yes" if self else "no"
        said = f'<p class="manygpu-checked" data-holds="{mark}">'
        return f"{said}{html.escape(str(self))}</p>{self.drawing}"


@dataclass(frozen=True)
class Puzzle:
    """A plan that a reader writes, as good as it can be.

    Attributes:
        name: short, for `puzzle(name)`.
        title: for people.
        kind: what it is about, such as "collectives".
        task: paragraphs of plain text.
        start: Python of an answer that is right, and poor.
        unit: what the score counts.
        bound: no right answer's score is lower.
        proof: why, and where it is from.
        judge: see this module.
    """

    name: str
    title: str
    kind: str
    task: str
    start: str
    unit: str
    bound: float
    proof: str
    judge: Judge

    @property
    def best(self) -> float:
        """The lowest score in the hall of records."""
        return hall.best(self.name).score

    def score(self, answer: Any) -> Scored:
        """Judge an answer: a plan as the task says, or a function that returns it.

        It raises nothing for a wrong answer: what comes back says what is wrong.
        """
        known = self.unit, self.bound, self.best
        try:
            plan = answer() if callable(answer) else answer
            score, drawing = self.judge(plan)
        except Refused as wrong:
            return Scored(self.name, None, *known, wrong.broken, wrong.said)
        except Exception as error:
            stops = f"It stops with {type(error).__name__}: {error!s:.{LONG}}"
            return Scored(self.name, None, *known, RUNS, stops)
        said = in_words(score, *known)
        return Scored(self.name, score, *known, "", said, drawing)

    def __str__(self) -> str:
        return f"{self.title}\n\n{self.task}\n\n{self.start}"


KNOWN: dict[str, Puzzle] = {}


def add(
    name: str, title: str, kind: str, task: str, start: str, unit: str, bound: float
) -> Callable[[Judge], Judge]:
    """Add a puzzle whose judge is the function below, and its docstring the proof.

    Raises:
        ValueError: there is one of this name.
    """
    if name in KNOWN:
        raise ValueError(f"name must be new, there is a puzzle {name!r}")

    def keep(judge: Judge) -> Judge:
        proof = " ".join(inspect.cleandoc(judge.__doc__ or "").split())
        texts = inspect.cleandoc(task), inspect.cleandoc(start) + "\n"
        KNOWN[name] = Puzzle(name, title, kind, *texts, unit, bound, proof, judge)
        return judge

    return keep


def refusal(broken: str, said: str) -> str:
    """What is wrong with an answer, then the rule that it breaks."""
    if broken in TOLD:
        return f"Refused: {TOLD[broken].format(said=said)}"
    return f"Refused: {said}. The rule: {broken[0].lower()}{broken[1:]}."


def in_words(score: float, unit: str, bound: float, best: float) -> str:
    """A score beside its bound and the best known one."""
    said = f"{number(score)} {unit}."
    if score <= bound + ROUNDING:
        return f"{said} That is the bound: no plan needs less."
    said += f" No plan needs less than {number(bound)}"
    if score < best - ROUNDING:
        return f"{said}. It beats the best known, {number(best)}: a new record."
    if score <= best + ROUNDING:
        return f"{said}, and no better one than yours is known."
    known = "" if best <= bound + ROUNDING else f"; the best known needs {number(best)}"
    return f"{said}{known}. Yours needs {number(score / bound)} times the bound."


def number(value: float) -> str:
    """A number as it is read: four digits, or all of a whole one."""
    whole = abs(value - round(value)) < ROUNDING
    return str(round(value)) if whole else f"{value:.4g}"
