"""`manygpu prove module:function`: is this step right?"""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

from manygpu import _devices
from manygpu._devices import StartedError
from manygpu.addresses import function_at
from manygpu.processes.greetings import without_greetings
from manygpu.processes.interrupts import heed_signals, status_of
from manygpu.processes.launch import visible_gpus
from manygpu.prove.progress import Progress, untold
from manygpu.prove.told import LISTED, NAMED
from manygpu.tables import visible

RIGHT, WRONG, UNSURE = 0, 1, 2  # exit statuses
LONGER = "up to four times as many runs, three to six times as long"

ABOUT = (
    "Try a training step on small cases and say what it breaks. The function is a step "
    "of data parallel training of the book's LeNet, step(X, y, device_params, devices, "
    "lr), or one without arguments that returns a manygpu.prove.Subject. Adapters make "
    "subjects: of_variables, of_fit, of_loop and of_workers in manygpu.prove.adapters, "
    "of_ddp and of_fsdp2 in manygpu.prove.with_torch, and of_shard_map in "
    "manygpu.prove.with_jax. Exit status: "
    "0 the step is right, 1 it is wrong, 2 nobody can tell, or bad arguments, 130 "
    "stopped by Ctrl-C: then it says what it has found so far. It starts 30 to 60 "
    "training runs of one to three steps. For an uncompiled step, that takes 30 to 50 "
    "times as long as one step on three devices, after TensorFlow has been imported; "
    "a step that your function compiles is compiled again for each run (`fit`, by "
    "of_fit, once per number of devices). If a subject doesn't state its optimizer, "
    "state it by --rule and --hyperparameter. Otherwise both are looked for in the "
    "step's own run on one device."
)


MOST_DEVICES = 8  # that a trial may ask for
SIGNALLED = 128  # less than the exit status of what a signal has ended
# Each training of a compiled step is compiled anew: that is the judge's doing.
RETRACING = r"triggered tf\.function retracing"
UNSHUFFLED = "`shuffle=True` was passed"  # to `fit`, which gets one batch from a judge
SPLIT_FIRST = "--split-first"
OF_A_STEP = ("X", "y", "device_params", "devices", "lr")


class NoStepError(ValueError):
    """There is no step that can be judged; the message says why, and what to do."""

    def __init__(self, why: str) -> None:
        super().__init__(f"can't judge, because {why}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = ABOUT
    parser.add_argument(
        "step",
        metavar="module:function",
        help="of a module in the current folder or on PYTHONPATH; for mine.py, mine:f "
        "and mine.py:f are the same",
    )
    parser.add_argument(
        "--full", action="store_true", help=f"on up to 8 devices: {LONGER}"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="don't say on stderr what is tried now"
    )
    parser.add_argument(
        "--rule",
        metavar="NAME",
        help=f"of the optimizer: {', '.join(NAMED)}; any other name: unknown",
    )
    parser.add_argument(
        "--hyperparameter",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="of the rule, such as betas=0.9,0.95; may be given several times; "
        + LISTED,
    )
    parser.add_argument(SPLIT_FIRST, action="store_true", help=argparse.SUPPRESS)


def run(given: argparse.Namespace) -> int:
    """Judge and print the verdict; return the exit status.

    TensorFlow fixes its devices when it starts. If the reader's file has started it
    before the judge could, another process splits them first, and judges.

    What is tried now goes to stderr, so that the verdict stands alone on stdout. After
    an interrupt, the verdict is what was found so far.

    Raises:
        NoStepError: there is no such function, or it makes no subject.
    """
    progress = Progress(given.step, untold if given.quiet else said_on_stderr)
    heed_signals(progress.came)
    try:
        with (
            without_greetings(bool(visible_gpus()), RETRACING),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", UNSHUFFLED)
            return judged(given, progress)
    except KeyboardInterrupt as stopped:
        print(progress.unfinished())
        return status_of(stopped)


def said_on_stderr(line: str) -> None:
    """Say what is tried now, in a line of its own."""
    print(visible(line), file=sys.stderr, flush=True)


def judged(given: argparse.Namespace, progress: Progress) -> int:
    """Judge and print the verdict; return the exit status; errors: see `run`."""
    progress.begins(f"importing {given.step}")
    if given.split_first:
        _devices.devices(MOST_DEVICES, quiet=True)
    with ExitStack() as stay:
        try:
            subject = subject_at(given.step, stay, progress.came)
        except StartedError as started:
            if given.split_first:
                raise NoStepError(f"{given.step}: {started}") from started
            return in_a_split_process(given)
        from manygpu.prove import judge  # after bad arguments are refused

        subject = replace(subject, name=given.step, **told_in(given))
        verdict = judge(subject, given.full, progress)
    print(verdict)
    return UNSURE if verdict.unsure else RIGHT if verdict.right else WRONG


def told_in(given: argparse.Namespace) -> dict[str, Any]:
    """Return what the options tell of the rule, as a `Subject` has it.

    Raises:
        NoStepError: a hyperparameter has no name, or no number.
    """
    told: dict[str, Any] = {"rule": given.rule} if given.rule else {}
    numbers = {}
    for words in given.hyperparameter:
        name, _, value = words.partition("=")
        truth = value.strip().title()  # True and False, in any case
        value = truth if truth in ("True", "False") else value
        try:
            numbers[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError) as error:
            raise NoStepError(
                f"--hyperparameter must be NAME=VALUE, got {words}: give a number, "
                "True or False, or numbers with commas between them"
            ) from error
    return told | ({"hyperparameters": numbers} if numbers else {})


def in_a_split_process(given: argparse.Namespace) -> int:
    """Judge in a process that splits the devices before it imports the step."""
    words = [given.step, *(["--full"] if given.full else []), SPLIT_FIRST]
    words += ["--quiet"] if given.quiet else []
    words += ["--rule", given.rule] if given.rule else []
    words += [f"--hyperparameter={one}" for one in given.hyperparameter]
    process = subprocess.Popen([sys.executable, "-m", "manygpu", "prove", *words])
    try:
        status = process.wait()
    except KeyboardInterrupt as stopped:  # the process says what it has found so far
        process.send_signal(status_of(stopped) - SIGNALLED)
        status = process.wait()
    return status if status >= 0 else SIGNALLED - status


def subject_at(
    address: str, stay: ExitStack, came: Sequence[KeyboardInterrupt] = ()
) -> Any:
    """Return the subject that `module:function` is or makes; `stay` ends it.

    came: interrupts of this command. The module may raise one of its own.

    Raises:
        NoStepError: there is none.
        StartedError: TensorFlow has started without the devices that are needed.
    """
    try:
        function = function_at(address)
    except LookupError as error:
        stopped = isinstance(error.__cause__, KeyboardInterrupt) and came
        if stopped or isinstance(error.__cause__, StartedError):
            raise error.__cause__ from error
        raise NoStepError(str(error)) from error
    try:
        subject = made_by(function)
        if isinstance(subject, AbstractContextManager):  # it has processes to end
            subject = stay.enter_context(subject)
    except (StartedError, NoStepError):
        raise
    except Exception as error:  # whatever a reader's function may raise
        raise NoStepError(f"{address} {stopped_at(error)}") from error
    from manygpu.prove import Subject

    if not isinstance(subject, Subject):
        what = type(subject).__name__
        raise NoStepError(f"{address} must return a prove.Subject, got {what}")
    return subject


def made_by(function: Callable) -> Any:
    """Return what a function makes; a step itself is judged on the book's LeNet."""
    parameters = inspect.signature(function).parameters.values()
    if all(p.default is not p.empty or p.kind is p.VAR_KEYWORD for p in parameters):
        return function()
    try:
        inspect.signature(function).bind(*OF_A_STEP)
    except TypeError as wrong:
        name = getattr(function, "__name__", "the step")
        raise NoStepError(
            f"{name} must be a step({', '.join(OF_A_STEP)}), or a function without "
            f"arguments that returns a prove.Subject, got {name}"
            f"{inspect.signature(function)}: {wrong}"
        ) from wrong
    from manygpu.prove.adapters import of_step

    return of_step(function)


def stopped_at(error: Exception) -> str:
    """Say with which error a reader's function stops, and where in which file."""
    last = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not frame.f_globals.get("__name__", "").startswith("manygpu."):
            last = f" ({os.path.basename(frame.f_code.co_filename)}, line {line})"
    return f"stops with {type(error).__name__}: {error}{last}"
