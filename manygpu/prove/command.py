"""`manygpu prove module:function`: is this step right?"""

from __future__ import annotations

import argparse
import inspect
import os
from contextlib import AbstractContextManager, ExitStack

from manygpu.addresses import function_at

RIGHT, WRONG = 0, 1  # exit statuses

ABOUT = (
    "Try a training step on small cases and say what it breaks. The function is a step "
    "of data parallel training of the book's LeNet, step(X, y, device_params, devices, "
    "lr), or one without arguments that returns a manygpu.prove.Subject. Exit status: "
    "0 the step is right, 1 it is wrong, 2 bad arguments."
)


class NoStepError(ValueError):
    """A name that no step has; the message says what to do."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = ABOUT
    parser.add_argument("step", metavar="module:function", help="named as import does")
    parser.add_argument(
        "--full", action="store_true", help="on up to 8 devices: six times as long"
    )


def run(given: argparse.Namespace) -> int:
    """Judge and print the verdict; return the exit status.

    Raises:
        NoStepError: there is no such function.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # the verdict stands alone
    try:
        function = function_at(given.step)
    except LookupError as error:
        raise NoStepError(str(error)) from error
    from manygpu.prove import Subject, judge  # after bad arguments are refused

    if inspect.signature(function).parameters:
        from manygpu.prove.adapters import of_step

        subject = of_step(function)
    else:
        subject = function()
    with ExitStack() as stay:
        if isinstance(subject, AbstractContextManager):  # it has processes to end
            subject = stay.enter_context(subject)
        if not isinstance(subject, Subject):
            what = type(subject).__name__
            raise NoStepError(f"{given.step} must return a prove.Subject, got {what}")
        verdict = judge(subject, given.full)
    print(verdict)
    return RIGHT if verdict.right else WRONG
