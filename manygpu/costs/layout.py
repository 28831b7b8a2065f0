"""A layout of the work: who computes what, and who holds what.

Each field is a number, or an array of them for many layouts at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Number = float | np.ndarray
# What is computed again for the backward pass.
# Between the ends: attention's scores alone; or all but the results of matrix products
# and of attention, as selective checkpointing has it.
NOTHING, ATTENTION, SELECTIVE, ALL = 0, 1, 2, 3
AGAIN = ("", "recomputing attention", "recomputing in part", "recomputing")


class Layout(NamedTuple):
    """A plan as people speak of it: who does what.

    (A pipeline's `Plan` is another thing: which operation a device does next.)

    Attributes:
        devices: at work.
        layerwise: devices that share each layer.
        stages: of the pipeline.
        micro_batches: one after the other in a step, on each replica.
        zero: what replicas share out instead of copying: 0 nothing, 1 the optimizer's
            state, 2 gradients too, 3 parameters too (Rajbhandari et al. 2020).
        copies: of what is shared out: 1, or as many as there are nodes where each node
            has all of it (HSDP).
        recompute: for the backward pass: `NOTHING`, `ATTENTION`, `SELECTIVE` or `ALL`.
        chunks: runs of layers that each device of a pipeline has. With 1, a stage is
            one run; with more, stages are interleaved (Narayanan et al.,
            arXiv:2104.04473).
    """

    devices: int | np.ndarray
    layerwise: int | np.ndarray = 1
    stages: int | np.ndarray = 1
    micro_batches: int | np.ndarray = 1
    zero: int | np.ndarray = 0
    copies: int | np.ndarray = 1
    recompute: int | np.ndarray = NOTHING
    chunks: int | np.ndarray = 1

    @property
    def data(self) -> int | np.ndarray:
        """Replicas that share the batch."""
        return self.devices // (self.layerwise * self.stages)

    @property
    def shards(self) -> int | np.ndarray:
        """Devices over which what `zero` names is shared out."""
        return self.data // self.copies

    @property
    def words(self) -> str:
        """What people call it: "8 devices: data 4 x layerwise 2, 4 micro-batches"."""
        axes = {"data": self.data, "layerwise": self.layerwise}
        axes["pipeline"] = self.stages
        cut = [f"{axis} {n}" for axis, n in axes.items() if n > 1]
        said = [" x ".join(cut) or "one replica"]
        if self.zero:
            said.append(f"ZeRO {self.zero}")
        if self.copies > 1:
            said.append(f"{self.copies} copies")
        if self.chunks > 1:
            said.append(f"{self.chunks} chunks a device")
        if self.micro_batches > 1:
            said.append(f"{self.micro_batches} micro-batches")
        if self.recompute:
            said.append(AGAIN[self.recompute])
        device = "device" if self.devices == 1 else "devices"
        return f"{self.devices} {device}: {', '.join(said)}"

    def check(self, devices: int | None = None) -> None:
        """Refuse layouts in which some device would have no part.

        Args:
            devices: the most that there are; None: any number.

        Raises:
            TypeError: a field holds something else than whole numbers.
            ValueError: a number below 1, no stage of ZeRO, no kind of recomputing, more
                devices than there are, or parts that don't divide them.
        """
        most = {"devices": devices, "zero": 3, "recompute": ALL}  # the last kind
        for name, value in zip(self._fields, self, strict=True):
            least = 0 if name in ("zero", "recompute") else 1
            _check_field(name, value, least, most.get(name))
        if np.any(self.devices % (self.layerwise * self.stages)):
            raise ValueError(
                f"layerwise x stages must divide devices, got {self.layerwise} x "
                f"{self.stages} of {self.devices}"
            )
        if np.any(self.data % self.copies):
            raise ValueError(
                f"copies must divide the {self.data} replicas, got {self.copies}"
            )

    def at(self, i: int) -> Layout:
        """The one at this place of the arrays, in plain numbers."""
        return Layout(*(field[i].item() for field in self))


def _check_field(name: str, value: Any, least: int, most: int | None) -> None:
    """Refuse a field of a layout that has others than whole numbers in a range."""
    numbers = np.asarray(value)
    known = numbers.dtype.kind in "iubf"  # recompute may be False, a quotient 4.0
    if not known or not np.all(numbers == np.floor(numbers)):
        raise TypeError(f"{name} must be whole numbers, got {value!r}")
    if np.any(numbers < least) or (most is not None and np.any(numbers > most)):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be {bounds}, got {value}")
