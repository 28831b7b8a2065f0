"""Answers to exercises: right ones, and wrong ones with what they break.

The first right one is the book's own, in `solutions/`. A module for each part has
others, written in other ways, and mistakes.
"""

from __future__ import annotations

import importlib
import pkgutil
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from manygpu.exercises import KNOWN
from manygpu.exercises.checking import answer_name

SOLUTIONS = Path(__file__).parents[4] / "solutions"
MODULES = [
    importlib.import_module(f"{__name__}.{found.name}")
    for found in pkgutil.iter_modules(__path__)
]


def solution(name: str) -> list[Callable[..., Any]]:
    """The book's own answer, if its page's file has one."""
    path = SOLUTIONS / f"{name.partition('/')[0]}.py"
    functions = runpy.run_path(str(path)) if path.exists() else {}
    own = answer_name(KNOWN[name])
    return [functions[own]] if own in functions else []


RIGHT = {
    name: solution(name)
    + [each for module in MODULES for each in module.RIGHT.get(name, [])]
    for name in KNOWN
}
WRONG = {
    name: [each for module in MODULES for each in module.WRONG.get(name, [])]
    for name in KNOWN
}
