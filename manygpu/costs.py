"""What a training step of LeNet costs, counted by hand: FLOPs and bytes, per operation.

Nothing here runs TensorFlow: the counts follow from the shapes of the weights. The
chapter "One device" proves them equal to what TensorFlow counts and keeps.

A multiply-add is two FLOPs. As in TensorFlow's own count, a bias is one FLOP a number,
an average pooling one FLOP for each number it reads, and a ReLU none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from manygpu.checks import check_count, check_not_empty

POOL = 2  # height, width and stride of each pooling window
# How many numbers an optimizer remembers for each parameter.
OPTIMIZER_COPIES = {"sgd": 0, "momentum": 1, "adam": 2}


@dataclass(frozen=True)
class Op:
    """One operation of the forward pass; shapes are those of one sample.

    Attributes:
        name: 'conv 1', 'conv 1 bias', 'conv 1 relu', 'conv 1 pool', 'dense 1', ...
        kind: 'conv', 'dense', 'bias', 'relu' or 'pool'.
        layer: 0, 1, 2, ...; its weights and bias are parameters 2 * layer and the next.
        source: shape of what goes in.
        target: shape of what comes out.
        weights: shape of the parameter it uses; () if it has none.
    """

    name: str
    kind: str
    layer: int
    source: tuple[int, ...]
    target: tuple[int, ...]
    weights: tuple[int, ...] = ()

    @property
    def products(self) -> int:
        """Multiply-adds a sample: each weight, at each place where it is used."""
        if self.kind == "conv":
            return prod(self.weights) * prod(self.target[:2])
        return prod(self.weights) if self.kind == "dense" else 0

    def forward_flops(self, samples: int = 1) -> int:
        """FLOPs of the forward pass for so many samples."""
        samples = check_count("samples", samples)
        if self.kind == "bias":
            return samples * prod(self.target)
        if self.kind == "pool":
            return samples * prod(self.target) * POOL**2
        return samples * 2 * self.products

    def backward_flops(self, samples: int = 1) -> int:
        """FLOPs of the backward pass for so many samples.

        A convolution or dense layer has two gradients, for its weights and for its
        input, of as many multiply-adds as the forward pass each. The images need no
        gradient: the first layer has only the first. A bias sums what comes back; a
        pooling spreads it, two FLOPs for each number.
        """
        samples = check_count("samples", samples)
        if self.kind == "bias":
            return samples * prod(self.target) - self.weights[0]
        if self.kind == "pool":
            return samples * prod(self.target) * POOL**2 * 2
        return samples * 2 * self.products * (1 if self.layer == 0 else 2)

    def moved_bytes(self, samples: int = 1, itemsize: int = 4) -> int:
        """Bytes of its input, its weights and its output: each moved once, no less."""
        samples = check_count("samples", samples)
        numbers = samples * (prod(self.source) + prod(self.target))
        numbers += prod(self.weights) if self.weights else 0
        return numbers * check_count("itemsize", itemsize)


def lenet_ops(
    shapes: Sequence[tuple[int, ...]], image: tuple[int, int, int] = (28, 28, 1)
) -> list[Op]:
    """Return the operations of a LeNet's forward pass, in order.

    Weights of rank 4 (height, width, channels in and out) make a convolution without
    padding, with bias, ReLU and average pooling; weights of rank 2 make a dense layer
    with bias and, but for the last layer, ReLU.

    Args:
        shapes: of the parameters, weights and bias in turn, without samples.
        image: height, width and channels of a sample.

    Raises:
        TypeError: `shapes` is not a list or tuple.
        ValueError: empty, not in pairs, or a layer that does not fit the one before.
    """
    check_not_empty("shapes", shapes)
    if len(shapes) % 2:
        raise ValueError(
            f"shapes must hold weights and bias in turn, got {len(shapes)} entries"
        )
    ops: list[Op] = []
    shape, seen = tuple(image), {"conv": 0, "dense": 0}
    for layer, (weights, bias) in enumerate(
        zip(shapes[::2], shapes[1::2], strict=True)
    ):
        kind = {4: "conv", 2: "dense"}.get(len(weights), "")
        if kind == "dense":
            shape = (prod(shape),)
        _check_layer(layer, kind, tuple(weights), tuple(bias), shape)
        seen[kind] += 1
        name = f"{kind} {seen[kind]}"
        out = (weights[-1],)
        if kind == "conv":
            out = (shape[0] - weights[0] + 1, shape[1] - weights[1] + 1, *out)
        ops.append(Op(name, kind, layer, shape, out, tuple(weights)))
        ops.append(Op(f"{name} bias", "bias", layer, out, out, tuple(bias)))
        if kind == "conv" or layer < len(shapes) // 2 - 1:
            ops.append(Op(f"{name} relu", "relu", layer, out, out))
        shape = out
        if kind == "conv":
            shape = (out[0] // POOL, out[1] // POOL, out[2])
            ops.append(Op(f"{name} pool", "pool", layer, out, shape))
    return ops


def kept(ops: Sequence[Op]) -> dict[str, tuple[int, ...]]:
    """Return what the backward pass needs of the forward pass: name to shape a sample.

    A convolution or dense layer needs what went in (times what comes back, that is
    its weights' gradient), a ReLU what came out (where it is zero, nothing passes), the
    loss its own gradient. A bias and an average pooling need nothing. A tensor that
    two of them need is kept once. Weights are not listed: they are kept anyway.
    """
    check_not_empty("ops", ops)
    needed = {}
    for before, op in zip([None, *ops], [*ops, None], strict=True):
        name = before.name if before else "images"
        reads = op is not None and op.kind in ("conv", "dense")
        if reads or (before and before.kind == "relu"):
            needed[name] = before.target if before else op.source
    return {**needed, "loss": ops[-1].target}


def training_bytes(
    ops: Sequence[Op], samples: int, optimizer: str = "sgd", itemsize: int = 4
) -> dict[str, int]:
    """Return the bytes that a step keeps, by what they are.

    Less than the peak: an operation may need room to work in, and gradients of
    activations come and go during the backward pass.

    Args:
        ops: see `lenet_ops`.
        samples: of the batch on this device.
        optimizer: a key of `OPTIMIZER_COPIES`.
        itemsize: bytes of a number: 4 for float32.

    Returns:
        'parameters', 'gradients', 'optimizer state' and 'activations', in bytes.
    """
    samples = check_count("samples", samples)
    itemsize = check_count("itemsize", itemsize)
    if optimizer not in OPTIMIZER_COPIES:
        known = sorted(OPTIMIZER_COPIES)
        raise ValueError(f"optimizer must be one of {known}, got {optimizer!r}")
    activations = samples * sum(prod(shape) for shape in kept(ops).values())
    parameters = sum(prod(op.weights) for op in ops if op.weights)
    return {
        "parameters": parameters * itemsize,
        "gradients": parameters * itemsize,
        "optimizer state": OPTIMIZER_COPIES[optimizer] * parameters * itemsize,
        "activations": activations * itemsize,
    }


def _check_layer(
    layer: int,
    kind: str,
    weights: tuple[int, ...],
    bias: tuple[int, ...],
    shape: tuple[int, ...],
) -> None:
    """Refuse weights that don't fit what comes in, or a bias that doesn't fit them."""
    if not kind:
        raise ValueError(f"shapes[{2 * layer}] must have rank 4 or 2, got {weights}")
    if kind == "conv" and len(shape) != 3:
        raise ValueError(
            f"shapes[{2 * layer}] is a convolution after a dense layer: {weights}"
        )
    fits = weights[-2] == shape[-1]
    if kind == "conv":
        fits = fits and all(k <= s for k, s in zip(weights, shape[:2], strict=False))
    if not fits:
        raise ValueError(
            f"shapes[{2 * layer}] is {weights}, which does not fit an input of {shape}"
        )
    if bias != weights[-1:]:
        raise ValueError(
            f"shapes[{2 * layer + 1}] must be {weights[-1:]}, got {bias}: one bias "
            f"an output"
        )
