"""Record which piece of a network ran where; count bytes and draw from the record.

The functions of chapter "Three ways to split" hand each piece of work to a `run`
function. `Placement.run` is one that takes notes. It notes what TensorFlow reports
about the tensors themselves, so a drawing or a sum made from the notes can't disagree
with what was computed. Eager code only: inside a `tf.function` tensors have no place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from matplotlib.axes import Axes

from manygpu import figures
from manygpu.checks import short_device_name
from manygpu.costs import kept_bytes
from manygpu.measure import nbytes


@dataclass(frozen=True)
class Piece:
    """One piece of work.

    Attributes:
        device: where its result lies.
        layer: which layer it is a piece of, from 0.
        shape: of the result, samples first and channels last.
        out: bytes of the result.
        params: bytes of the parameters it read.
        reads: (device, bytes) of each tensor it read that is no parameter.
        kept: bytes that its backward pass needs, see `manygpu.costs.kept_bytes`.
    """

    device: str
    layer: int
    shape: tuple[int, ...]
    out: int
    params: int
    reads: tuple[tuple[str, int], ...]
    kept: int = 0


@dataclass
class Placement:
    """The pieces that ran, in order."""

    pieces: list[Piece] = field(default_factory=list)

    def run(self, device: str, layer: int, work: Callable, *inputs: Any) -> tf.Tensor:
        """Run `work(*inputs)` on `device`, note it, return its result.

        Args:
            device: name of the device.
            layer: number of the layer, from 0.
            work: takes the inputs and nothing else, returns one tensor. It is traced
                once more, to see what its backward pass needs.
            *inputs: first what comes from the layer below (a tensor, or a list with
                one from each device), then the parameters.

        Raises:
            RuntimeError: the result lies on another device, or it was called
                inside a `tf.function`.
            TypeError: `work` returns no tensor.
        """
        if not tf.executing_eagerly():
            raise RuntimeError("Placement.run works in eager code: call it outside")
        with tf.device(device):
            out = work(*inputs)
        if not isinstance(out, (tf.Tensor, tf.Variable)):
            raise TypeError(f"work must return one tensor, got {type(out).__name__}")
        place = short_device_name(out.device)
        if place != short_device_name(device):
            raise RuntimeError(f"a piece sent to {device} ran on {place}")
        below, params = tf.nest.flatten(inputs[:1]), tf.nest.flatten(inputs[1:])
        reads = tuple((short_device_name(t.device), nbytes(t)) for t in below)
        shape = tuple(out.shape)
        sizes = nbytes(out), nbytes(params)
        kept = kept_bytes(work, *inputs)
        self.pieces.append(Piece(place, layer, shape, *sizes, reads, kept))
        return out

    def on(self, device: str) -> list[Piece]:
        """The pieces that ran on `device`."""
        return [p for p in self.pieces if p.device == short_device_name(device)]

    def params(self, device: str) -> int:
        """Bytes of parameters that `device` read."""
        return sum(p.params for p in self.on(device))

    def activations(self, device: str) -> int:
        """Bytes that `device` keeps for the backward pass, the last output among them.

        What the loss keeps is its gradient, which has the shape of that output.
        """
        last = max((p.layer for p in self.pieces), default=0)
        return sum(p.kept + p.out * (p.layer == last) for p in self.on(device))

    def received(self, device: str) -> int:
        """Bytes of activations that came to `device` from other devices.

        What the first layer reads is left out: that is the batch, which comes from
        the input pipeline.
        """
        here = short_device_name(device)
        between = [p for p in self.on(device) if p.layer > 0]
        return sum(n for p in between for source, n in p.reads if source != here)

    def sent(self, device: str) -> int:
        """Bytes of activations that other devices read from `device`."""
        here = short_device_name(device)
        others = [p for p in self.pieces if p.device != here and p.layer > 0]
        return sum(n for p in others for source, n in p.reads if source == here)

    def tiles(self, layer: int, whole: tuple[int, ...]) -> list[tuple]:
        """Where each piece of a layer lies in the layer, as shares of 1.

        Args:
            layer: number of the layer.
            whole: shape of the whole layer's result.

        Returns:
            list of (device, x, y, width, height): x runs over the channels, y over
            the samples.

        Raises:
            ValueError: the pieces, side by side, are not the whole layer.
        """
        pieces = [p for p in self.pieces if p.layer == layer]
        samples = [p.shape[0] for p in pieces]
        channels = [p.shape[-1] for p in pieces]
        all_samples, all_channels = whole[0], whole[-1]
        found, at = [], 0
        if set(samples) == {all_samples} and sum(channels) == all_channels:
            for p in pieces:
                width = p.shape[-1] / all_channels
                found.append((p.device, at, 0.0, width, 1.0))
                at += width
        elif set(channels) == {all_channels} and sum(samples) == all_samples:
            for p in pieces:
                height = p.shape[0] / all_samples
                found.append((p.device, 0.0, at, 1.0, height))
                at += height
        else:
            shapes = [p.shape for p in pieces]
            raise ValueError(f"pieces {shapes} of layer {layer} do not make {whole}")
        return found

    def draw(
        self,
        ax: Axes,
        whole: Placement,
        devices: Sequence[str],
        layers: Sequence[str],
        title: str,
    ) -> None:
        """Draw each layer as a tile, cut into its pieces, a colour a device.

        Args:
            ax: where.
            whole: the record of a run in which no layer was cut.
            devices: names; a piece shows the place of its device in this list.
            layers: names of the layers, first at the bottom.
            title: above the tiles. Devices without a piece are named below them.
        """
        names = [short_device_name(d) for d in devices]
        for p in whole.pieces:
            tiles = self.tiles(p.layer, p.shape)
            for device, x, y, width, height in tiles:
                d = names.index(device)
                low = 0.1 + p.layer + 0.8 * y
                edges = (x, low), (width, 0.8 * height)
                figures.box(ax, *edges, "", figures.color(d))
                # Flat strips are too low for their numbers: these go up as stairs.
                over = (d + 0.5) / len(tiles) if height < 0.3 else x + width / 2
                middle = low + 0.4 * height
                style = {"ha": "center", "va": "center_baseline", "fontsize": 8}
                ax.text(over, middle, str(d), **style)
        ax.set(xlim=(-0.01, 1.01), ylim=(-0.02, len(layers)), title=title)
        ax.set_yticks([i + 0.5 for i in range(len(layers))], layers)
        ax.tick_params(length=0)
        ax.set_xticks([])
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        idle = [str(d) for d, name in enumerate(names) if not self.on(name)]
        if idle:
            ax.set_xlabel("idle: " + ", ".join(idle), fontsize=9)
