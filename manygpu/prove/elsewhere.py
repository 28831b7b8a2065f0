"""Steps of other frameworks, each in processes of its own: the judge asks them.

A process of a framework has a site: an object with these methods.

- `parameters()`: their names, and where the training begins.
- `gradient(X, y, weights)`: as `Subject.gradient`.
- `begin(weights, k, meeting)`: begin a training on k devices. Processes of one
  training meet at the file `meeting`, which isn't there yet. It returns whether the
  training keeps more than its weights; then there is `state`.
- `take(X, y)`: as `Training.take`.
- `dtypes(X, y)`: as `Training.dtypes`.
- `optimizer_says()`: see `Subject.optimizer_says`; a site may leave it out.
- `copies()`: the copies of the weights that this process has.
- `state()`: as `Training.state`, of the replicas that this process has.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from manygpu.processes.waits import LateError
from manygpu.processes.workers import ON_CPU, Worker, everywhere
from manygpu.prove.reasons import reason_of
from manygpu.prove.subject import Arrays, Subject


def serve(make: Callable, rank: int) -> Callable[[Sequence], Any]:
    """In a new process: answer for the sites of any functions of the reader.

    A question is packed functions, a method of their site and its arguments. What
    they import, they import only now, after the process got its environment variables.
    """
    sites: dict[bytes, Any] = {}

    def answer(question: Sequence) -> Any:
        functions, method, *arguments = question
        if functions not in sites:
            sites[functions] = make(rank, *pickle.loads(functions))
        return getattr(sites[functions], method)(*arguments)

    return answer


def packed(functions: Sequence[Callable]) -> bytes:
    """Return functions as they travel to another process, which imports them.

    Raises:
        ValueError: another process can't import one of them.
    """
    main = sys.modules["__main__"]
    for function in functions:
        at_home = getattr(function, "__module__", None) == "__main__"
        try:
            pickle.dumps(function)
            found = hasattr(main, "__file__") or not at_home
        except (pickle.PicklingError, AttributeError, TypeError):
            found = False
        if not found:
            raise ValueError(
                f"{function!r} must be a function of a file, not of a notebook or of "
                "another function: the processes of the framework import it"
            )
    return pickle.dumps(list(functions))


class Crew:
    """Processes of a framework; each starts when it is first needed.

    Args:
        make: makes a site, `make(rank, *functions)`.
        variables: environment variables of the processes.
    """

    def __init__(self, make: Callable, variables: Mapping[str, str | None]) -> None:
        self.make, self.variables = make, ON_CPU | dict(variables)
        self.workers: list[Worker] = []
        weakref.finalize(self, _close, self.workers)

    def ask(self, size: int, *question: Any) -> list[Any]:
        """Ask the first `size` processes at once; return their answers, in order.

        Raises:
            RuntimeError: what a process said that failed. All are ended: the others
                may wait for it forever.
        """
        for rank in range(len(self.workers), size):
            about = {"variables": self.variables, "name": f"rank {rank}"}
            worker = Worker(serve, self.make, rank, **about, without_tensorflow=True)
            self.workers.append(worker)
        try:
            return everywhere(self.workers[:size], question)
        except LateError:
            _close(self.workers)
            raise  # with where each was
        except RuntimeError as error:
            _close(self.workers)
            raise RuntimeError(reason_of(str(error))) from error


def _close(workers: list[Worker]) -> None:
    """End these processes, and forget them."""
    while workers:
        workers.pop().close()


CREWS: dict[Callable, Crew] = {}  # processes start once, whatever they are asked for


class Away:
    """A training in other processes; a `Training` for the judge."""

    def __init__(self, ask: Callable[..., list], weights: Arrays, k: int) -> None:
        self.ask = ask
        self.folder = tempfile.TemporaryDirectory(prefix="manygpu-meeting-")
        ask("parameters")  # all are there before any of them waits for another
        begun = ask("begin", weights, k, str(Path(self.folder.name) / "meeting"))
        if all(begun):
            self.state = self._state

    def take(self, X: np.ndarray, y: np.ndarray) -> float | None:
        return self.ask("take", X, y)[0]

    def dtypes(self, X: np.ndarray, y: np.ndarray) -> set[str]:
        return set().union(*self.ask("dtypes", X, y))

    def copies(self) -> list[Arrays]:
        return [copy for own in self.ask("copies") for copy in own]

    def _state(self) -> dict[str, list[np.ndarray | None]]:
        of_each = self.ask("state")
        return {name: [a for own in of_each for a in own[name]] for name in of_each[0]}


def subject_of(
    make: Callable,
    functions: Sequence[Callable],
    draw: Callable[[int, int], tuple[np.ndarray, np.ndarray]],
    lr: float,
    variables: Mapping[str, str | None],
    process_per_device: bool,
    **about: Any,
) -> Subject:
    """Return a subject whose step, and its reference, run in other processes.

    Args:
        make, variables: see `Crew`.
        functions: for `make`.
        draw, lr, about: see `Subject`.
        process_per_device: whether a device is a process of its own.
    """
    own = packed(functions)
    if make not in CREWS:
        CREWS[make] = Crew(make, variables)
    crew = CREWS[make]

    def ask(method: str, *arguments: Any, size: int = 1) -> list[Any]:
        return crew.ask(size, own, method, *arguments)

    def start(weights: Arrays, k: int) -> Away:
        size = k if process_per_device else 1
        return Away(partial(ask, size=size), weights, k)

    def gradient(X: np.ndarray, y: np.ndarray, weights: Arrays) -> tuple:
        return ask("gradient", X, y, weights)[0]

    def optimizer_says() -> Any:
        return ask("optimizer_says")[0]

    names, weights = ask("parameters")[0]
    about = {"names": names} | about
    if hasattr(make, "optimizer_says"):
        about = {"optimizer_says": optimizer_says} | about
    return Subject(start, gradient, draw, weights, lr, **about)


def need(package: str) -> None:
    """Ask for a framework that isn't in the book's lock.

    Raises:
        ModuleNotFoundError: it isn't installed; the message says how it is.
    """
    if importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(
            f"there is no {package} here: `pip install {package}` installs it"
        )
