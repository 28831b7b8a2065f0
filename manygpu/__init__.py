"""The library beside the book *Training on Many GPUs*.

Importing it starts no TensorFlow device: `devices` does that, when it is called.
"""

from manygpu._devices import devices

__all__ = ["devices"]
__version__ = "0.1.0"  # the one place: pyproject.toml reads it from here
