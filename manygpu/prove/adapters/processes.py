"""Steps that take a process a device: the book's ring, MultiWorkerMirroredStrategy.

Processes start slowly, so those of a ring or a cluster serve all trainings of their
size, one after the other, until the `with` statement ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu.processes.workers import Worker, cluster_of_workers, everywhere
from manygpu.prove.adapters.engine import (
    Build,
    Draw,
    Step,
    built,
    reference_model,
    rule_of,
    taking,
    training_of,
)
from manygpu.prove.adapters.variables import (
    Variables,
    Watched,
    reference_of,
)
from manygpu.prove.subject import Arrays, Subject
from manygpu.scratch.beyond.many_workers import Ring, ring_of_workers
from manygpu.trainings.contract import Training

MOST_PROCESSES = 3
PATIENCE_S = 60.0  # for an answer; where one has failed, others may wait forever
Start = Callable[[int], AbstractContextManager[list[Worker]]]


class Crew:
    """The processes of each size, started when they are first asked for.

    start: `start(k)`: k workers that end with its `with` statement. told: makes of a
    question for `Member.answer` one for a worker.
    """

    def __init__(
        self, start: Start, told: Callable[[tuple], tuple], stay: ExitStack
    ) -> None:
        self._start, self._told, self._stay = start, told, stay
        self._workers: dict[int, list[Worker]] = {}

    def ask(self, k: int, *question: Any) -> list[Any]:
        """Return all k workers' answers; raise what they refuse.

        Raises RuntimeError if one fails; others may wait for it, so all are given up.
        """
        if k not in self._workers:
            self._workers[k] = self._stay.enter_context(self._start(k))
        try:
            answers = everywhere(self._workers[k], self._told(question), PATIENCE_S)
        except RuntimeError:
            for worker in self._workers.pop(k):
                worker.close()
            raise
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers


class Together:
    """A training that k processes take part in; a `Training` for the judge."""

    def __init__(self, crew: Crew, k: int, weights: Arrays) -> None:
        self._ask = partial(crew.ask, k)
        if all(self._ask("begin", weights)):
            self.state = self._state

    def take(self, X: np.ndarray, y: np.ndarray) -> float | None:
        return self._ask("take", X, y)[0]

    def dtypes(self, X: np.ndarray, y: np.ndarray) -> set[str]:
        return set().union(*self._ask("dtypes", X, y))

    def copies(self) -> list[Arrays]:
        return self._ask("copies")

    def _state(self) -> dict[str, list[np.ndarray | None]]:
        of_each = self._ask("state")
        return {name: [own[name][0] for own in of_each] for name in of_each[0]}


class Member:
    """What a process does: its part of one training after the other."""

    def __init__(self, begin: Callable[[Arrays], Watched]) -> None:
        self._begin = begin
        self._training: Watched | None = None

    def answer(self, what: str, *given: Any) -> Any:
        """Begin with weights, and say whether more is kept; take a step; show both.

        What the step refuses is an answer, too: the others wait for nobody.
        """
        if what == "begin":
            self._training = self._begin(*given)
            return self._training.state is not None
        try:
            if what in ("take", "dtypes"):
                return getattr(self._training, what)(*given)
            if what == "copies":
                (own,) = self._training.copies()
                return own
            return self._training.state()
        except (ValueError, TypeError, ArithmeticError) as refused:
            return refused


@contextmanager
def of_ring(
    step: Callable[..., Any],
    gradients: Callable | None,
    params: Variables,
    draw: Draw,
    lr: float,
    **about: Any,
) -> Iterator[Subject]:
    """Give a subject whose step the book's ring of processes takes.

    Args:
        step: `step(ring, X, y, params, lr)`, such as `member_step`: each member calls
            it with the whole batch and its own parameters. A function of a module:
            processes find it by its name.
        gradients, params, draw, about: see `of_variables`.
        lr: the rate that the step gets.
    """

    def start(k: int) -> AbstractContextManager[list[Worker]]:
        return ring_of_workers(k)

    def told(question: tuple) -> tuple:
        return (in_ring, step, lr, *question)

    weights = [np.asarray(p) for p in params]
    with ExitStack() as stay:
        crew = Crew(start, told, stay)
        known = reference_of(gradients, weights)
        yield subject_of(
            crew, known, draw, weights, lr, {"name": step.__name__} | about
        )


_MEMBERS: list[Member] = []  # in a process of a ring: the one that it is


def in_ring(ring: Ring, step: Callable, lr: float, *question: Any) -> Any:
    """In a process of a ring: answer a question, see `Member`."""

    def begin(weights: Arrays) -> Watched:
        params = [tf.Variable(w) for w in weights]
        take = partial(step, ring, params=params, lr=lr)
        return Watched(Training(take, lambda: [params]), ())

    if not _MEMBERS:
        _MEMBERS.append(Member(begin))
    return _MEMBERS[0].answer(*question)


@contextmanager
def of_workers(
    build: Build,
    step: Step,
    draw: Draw,
    lr: float,
    loss: Callable | None = None,
    **about: Any,
) -> Iterator[Subject]:
    """Give a subject that trains a Keras model under MultiWorkerMirroredStrategy.

    Arguments, errors: see `of_loop`. Each process calls `step` with the whole batch.
    `build` and `step` are functions of a module: processes find them by their names.
    """

    def start(k: int) -> AbstractContextManager[list[Worker]]:
        return cluster_of_workers(k, serve_loop, build, step)

    gradients, alone = reference_model(build, loss)
    weights = [np.asarray(v) for v in alone.trained]
    about = {"name": step.__name__, "names": [v.path for v in alone.trained]} | about
    about = {"optimizer_says": partial(rule_of, alone)} | about
    with ExitStack() as stay:
        crew = Crew(start, tuple, stay)
        known = reference_of(gradients, weights)
        yield subject_of(crew, known, draw, weights, lr, about)


def serve_loop(build: Build, step: Step) -> Callable[[tuple], Any]:
    """In a process of a cluster: be a `Member` that trains under the strategy."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def begin(weights: Arrays) -> Watched:
        made = built(build, strategy, weights)
        return Watched(training_of(made, strategy, taking(step, strategy, made)), ())

    member = Member(begin)
    return lambda question: member.answer(*question)


def subject_of(
    crew: Crew,
    known: Callable | None,
    draw: Draw,
    weights: Arrays,
    lr: float,
    about: dict[str, Any],
) -> Subject:
    """Return the subject whose trainings a crew takes part in."""
    about = {"most_devices": MOST_PROCESSES} | about

    def begin(weights: Arrays, k: int) -> Together:
        return Together(crew, k, weights)

    return Subject(begin, known, draw, weights, lr, **about)
