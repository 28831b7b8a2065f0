"""`manygpu prove module:function`: is this step right?"""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

from manygpu import _devices
from manygpu._devices import StartedError
from manygpu.addresses import function_at

RIGHT, WRONG, UNSURE = 0, 1, 2  # exit statuses

ABOUT = (
    "Try a training step on small cases and say what it breaks. The function is a step "
    "of data parallel training of the book's LeNet, step(X, y, device_params, devices, "
    "lr), or one without arguments that returns a manygpu.prove.Subject. Adapters make "
    "subjects: of_variables, of_fit, of_loop and of_workers in manygpu.prove.adapters, "
    "of_ddp and of_fsdp2 in manygpu.prove.with_torch, and of_shard_map in "
    "manygpu.prove.with_jax. Exit status: "
    "0 the step is right, 1 it is wrong, 2 nobody can tell, or bad arguments. If a "
    "subject doesn't tell its optimizer, --rule and --hyperparameter may; if nobody "
    "does, both are looked for in the step's own run on one device."
)


MOST_DEVICES = 8  # that a trial may ask for
SPLIT_FIRST = "--split-first"
OF_A_STEP = ("X", "y", "device_params", "devices", "lr")


class NoStepError(ValueError):
    """There is no step that can be judged; the message says why, and what to do."""

    def __init__(self, why: str) -> None:
        super().__init__(f"can't judge, because {why}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = ABOUT
    parser.add_argument("step", metavar="module:function", help="named as import does")
    parser.add_argument(
        "--full", action="store_true", help="on up to 8 devices: six times as long"
    )
    parser.add_argument(
        "--rule", metavar="NAME", help="of the optimizer, such as adam; other: unknown"
    )
    parser.add_argument(
        "--hyperparameter",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="of the rule, such as betas=0.9,0.95; may be given several times",
    )
    parser.add_argument(SPLIT_FIRST, action="store_true", help=argparse.SUPPRESS)


def run(given: argparse.Namespace) -> int:
    """Judge and print the verdict; return the exit status.

    TensorFlow fixes its devices when it starts. If the reader's file has started it
    before the judge could, another process splits them first, and judges.

    Raises:
        NoStepError: there is no such function, or it makes no subject.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # the verdict stands alone
    if given.split_first:
        _devices.devices(MOST_DEVICES, quiet=True)
    with ExitStack() as stay:
        try:
            subject = subject_at(given.step, stay)
        except StartedError as started:
            if given.split_first:
                raise NoStepError(f"{given.step}: {started}") from started
            return in_a_split_process(given)
        from manygpu.prove import judge  # after bad arguments are refused

        if told := told_in(given):
            subject = replace(subject, **told)
        verdict = judge(subject, given.full)
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
    words += ["--rule", given.rule] if given.rule else []
    words += [f"--hyperparameter={one}" for one in given.hyperparameter]
    command = [sys.executable, "-m", "manygpu", "prove", *words]
    return subprocess.run(command, check=False).returncode


def subject_at(address: str, stay: ExitStack) -> Any:
    """Return the subject that `module:function` is or makes; `stay` ends it.

    Raises:
        NoStepError: there is none.
        StartedError: TensorFlow has started without the devices that are needed.
    """
    try:
        function = function_at(address)
    except LookupError as error:
        if isinstance(error.__cause__, StartedError):
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
