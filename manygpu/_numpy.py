"""NumPy, imported when it is first used: `from manygpu import _numpy as np`.

For checks that plans use, too: a plan also runs where there is no NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(importlib.import_module("numpy"), name)
