"""A class goes on in the next cell: `patch` makes a function a method of its class.

As fastcore's `patch`, in which nbdev's own authors write; nbdev exports either alike.
Fastcore itself is not on a hosted notebook's machine, and takes longer to import.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any


def patch(method: Callable) -> Any:
    """Add `method` to the class that its first argument is annotated with.

    Returns what its name meant before: a method `gradients` does not hide a function of
    that name. None if it meant nothing.

    Raises:
        TypeError: the first argument has no annotation, or not a class.
    """
    first = next(iter(inspect.signature(method).parameters), None)
    owner = typing.get_type_hints(method).get(first)
    if not isinstance(owner, type):
        raise TypeError(
            f"{method.__name__} must say of which class it is: "
            f"def {method.__name__}(self: TheClass, ...)"
        )
    method.__qualname__ = f"{owner.__qualname__}.{method.__name__}"
    setattr(owner, method.__name__, method)
    return method.__globals__.get(method.__name__)
