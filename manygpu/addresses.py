"""`module:function`: how a command is told of a reader's own function."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable


def parts_of(address: str) -> tuple[str, str]:
    """Return module and function of `module:function`; `mine.py:make` is one, too."""
    module, _, name = address.partition(":")
    if module.endswith(".py"):
        module = module.removesuffix(".py").removeprefix("./").replace("/", ".")
    return module, name


def function_at(address: str) -> Callable:
    """Return the function `module:function`; the current folder is searched first.

    Raises:
        LookupError: there is none; the message says what importing it said.
    """
    module, name = parts_of(address)
    if not module or not name.isidentifier():
        raise LookupError(f"{address!r} is no module:function, such as mine:make")
    if module.startswith("."):  # the path of a file elsewhere
        raise LookupError(
            f"{address!r} must name a module of the current folder or of PYTHONPATH: "
            "go to its folder, then give mine:make"
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` finds modules
    try:
        function = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raise LookupError(f"{address}: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise LookupError(f"{address} is no function, but {function!r:.80}")
    return function
