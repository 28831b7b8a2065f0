"""TensorFlow, imported when it is first used: `from manygpu import _tensorflow as tf`.

For modules whose names are wanted where there is none, or soon: checks and sizes, which
plans, spans and costs use too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorflow import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(importlib.import_module("tensorflow"), name)
