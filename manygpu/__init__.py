"""The library beside the book *Training on Many GPUs*.

Importing it starts no TensorFlow device, and imports no TensorFlow: what needs none,
such as `manygpu.processes`, starts at once. `devices` does both when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manygpu._devices import devices as devices

__all__ = ["devices"]
__version__ = "0.1.0"  # the one place: pyproject.toml reads it from here


def __getattr__(name: str) -> Any:
    if name == "devices":
        from manygpu._devices import devices

        return devices
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
