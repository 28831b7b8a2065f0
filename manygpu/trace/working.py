"""Which devices did the heavy work of a piece of code, and with whose variables.

TensorFlow tells a callback of each operation that eager code runs, and of each that
goes into a graph when it is made. A graph that is there already tells nothing.
"""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_callbacks  # private: no public way

from manygpu.checks import short_device_name

HEAVY = ("MatMul", "BatchMatMul", "Conv", "DepthwiseConv", "Einsum")


def is_fraction(a: tf.Tensor) -> bool:
    """Return whether this is a number, known, that no dtype need have exactly.

    A count of samples that is cast to a wider dtype is as exact as before.
    """
    known = a.dtype.is_floating and hasattr(a, "numpy")
    return known and float(a.numpy()) % 1 != 0


class Working:
    """In a `with` statement: takes notes of what the block runs.

    Attributes:
        heavy: how many products of matrices and convolutions each device ran, by its
            short name, such as "CPU:1".
        floats: the names of the dtypes of all floating-point numbers that operations
            took or made, such as "float32".
        read: (reader, owner) of each variable that such an operation read as it is,
            without a copy of it on its own device.
    """

    def __init__(self) -> None:
        self.heavy: Counter[str] = Counter()
        self.floats: set[str] = set()
        self.read: Counter[tuple[str, str]] = Counter()
        self._values: dict[
            int, tuple[Any, str]
        ] = {}  # of variables: and where they lie

    def add(self, other: Working) -> None:
        """Take over what another one has noted."""
        self.heavy += other.heavy
        self.floats |= other.floats
        self.read += other.read

    def __enter__(self) -> Working:
        op_callbacks.add_op_callback(self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        op_callbacks.remove_op_callback(self._note)
        self._values.clear()

    def _note(
        self,
        op_type: str | bytes,
        inputs: tuple,
        attrs: tuple,
        outputs: tuple,
        op_name: str | None = None,
        graph: tf.Graph | None = None,
    ) -> None:
        """Note one operation; the form is TensorFlow's."""
        name = op_type.decode() if isinstance(op_type, bytes) else op_type
        taken = [a for a in inputs if a.shape.rank or is_fraction(a)]
        floats = [a.dtype for a in (*taken, *outputs) if a.dtype.is_floating]
        self.floats.update(dtype.name for dtype in floats)
        if not outputs or not (device := outputs[0].device):
            return
        place = short_device_name(device)
        if name == "ReadVariableOp":
            self._values[id(outputs[0])] = outputs[0], place
        elif name.startswith(HEAVY):
            self.heavy[place] += 1
            for value in inputs:
                _, owner = self._values.get(id(value), (None, place))
                if owner != place:
                    self.read[place, owner] += 1
