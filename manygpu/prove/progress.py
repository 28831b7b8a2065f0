"""What a judge is doing, told while it does it, and what it has seen so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from manygpu.prove.subject import Arrays, Case
from manygpu.prove.verdict import Finding, Verdict
from manygpu.trainings.contract import Training

Tell = Callable[[str], None]
SILENCE_S = 10.0  # after which the next training run of a check is told, too


def untold(line: str) -> None:
    """Tell nobody."""


@dataclass
class Progress:
    """A judge's way through its checks.

    A check is one question asked of one case. More of them may follow from what is
    found, so that `total` grows.

    Attributes:
        name: of what is judged.
        tell: is given a line whenever something begins that may take a while.
        came: interrupts that arrived. If something has swallowed one, such as a
            reader's bare `except`, the next check raises it again.
        doing: what the judge does now, in words.
        number, total: of the check that it is at, and how many there are.
        began, said: when this began, and when its last line was told.
        runs: how many training runs have begun.
        tried, refused: the cases.
        findings, remarks, held: see `Verdict`.
        pending: findings for which a smaller case is still looked for.
    """

    name: str = "the step"
    tell: Tell = untold
    came: list[KeyboardInterrupt] = field(default_factory=list)
    doing: str = "starting"
    number: int = 0
    total: int = 0
    began: float = field(default_factory=time.monotonic)
    said: float = field(default_factory=time.monotonic)
    runs: int = 0
    tried: dict[Case, None] = field(default_factory=dict)
    refused: dict[Case, None] = field(default_factory=dict)
    remarks: dict[str, None] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    pending: list[Finding] = field(default_factory=list)

    def begins(self, doing: str) -> None:
        """Tell what begins now, and how many seconds have passed; see `heed`."""
        self.heed()
        self.doing = doing
        self._say(doing)

    def heard(self, start: Callable[[Arrays, int], Training]) -> Callable:
        """Return a subject's `start` that says how far a long check is."""

        def counted(weights: Arrays, devices: int) -> Training:
            self.heed()
            self.runs += 1
            if time.monotonic() - self.said >= SILENCE_S:
                self._say(f"still {self.doing} (training run {self.runs})")
            return start(weights, devices)

        return counted

    def _say(self, what: str) -> None:
        self.said = time.monotonic()
        self.tell(f"{self.said - self.began:.0f} s, {what}")

    def heed(self) -> None:
        """Raise the KeyboardInterrupt that came, if something has swallowed it."""
        if self.came:
            raise self.came[0]

    def asks(self, question: str, case: Case) -> None:
        """Tell that the next check begins, of this case."""
        self.number += 1
        question = question.partition(" (`--")[0]  # the rest is for a verdict
        self.begins(f"check {self.number} of {self.total}: {question}? {case}")
        self.tried[case] = None

    def shrinks(self, case: Case) -> None:
        """Tell that a case is tried that is smaller than one that broke something."""
        self.begins(f"check {self.number} found a fault; does it show in {case}, too?")

    def aside(self) -> Progress:
        """Return one that tells the same way, of checks whose results are another's."""
        about = {"number": self.number, "began": self.began}
        return Progress(self.name, self.tell, self.came, **about)

    def unfinished(self) -> Verdict:
        """Return what can be said if it goes no further."""
        done = max(0, self.number - 1)
        why = f"stopped after {done} of {self.total} checks"
        if not self.total:
            why = f"stopped before the first check, while {self.doing}"
        trials = [case for case in self.tried if case not in self.refused]
        said = list(self.remarks), list(self.held)
        findings = [*self.findings, *self.pending]
        return Verdict(self.name, findings, trials, *said, unfinished=why)


def number_of(checks: Sequence) -> int:
    """Return how many checks questions make: one for each of their cases."""
    return sum(len(check.cases) for check in checks)
