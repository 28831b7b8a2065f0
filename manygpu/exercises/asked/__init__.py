"""What the chapters ask: each module adds its exercises and bugs as it is imported."""

from __future__ import annotations

import importlib
import pkgutil

for found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{found.name}")
