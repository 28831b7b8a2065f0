"""What layers cost: FLOPs, activations, parameters, and the bytes they hand on.

Nothing is computed: each layer's forward and backward pass is traced on shapes, and
what is counted are the operations and tensors of that graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from manygpu import _tensorflow as tf
from manygpu.checks import check_not_empty
from manygpu.measure import nbytes

# These ask an input for its shape only, or make a tensor out of nothing.
_ASKS_SHAPE = {"Shape", "ShapeN", "Size", "Rank", "BroadcastGradientArgs", "ZerosLike"}
_SAME_MEMORY = {"Identity", "IdentityN", "StopGradient", "Reshape", "ExpandDims"}
NOT_KEPT = {"Const", "ReadVariableOp", "VarHandleOp", *_ASKS_SHAPE}
_UNKNOWN = {"Conv3D", "Conv2DBackpropInput", "While", "StatelessWhile"}
_UNKNOWN |= {"PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf"}


class LayerCost(NamedTuple):
    """What a layer costs, for each sample that passes through it.

    Attributes:
        name: the layer's.
        flops: multiplications and additions of the products in its forward pass; all
            else is small beside them. The backward pass has twice as many, or as many
            where nobody wants the gradient for the layer's input.
        activations: bytes a sample that must be kept for its backward pass, its input
            among them, but not its output: that is the next layer's input. So a run
            of layers keeps their sum. (Where the last one needs its own output, as a
            ReLU does, that comes on top.) What is there once a batch, such as the
            mean of a batch normalization, counts as one sample's.
        params: bytes of its parameters, whatever the batch.
        output: bytes a sample that it hands on.
    """

    name: str
    flops: int
    activations: int
    params: int
    output: int


def layer_costs(
    layers: Sequence[Any], sample: Sequence[int] | None = None
) -> list[LayerCost]:
    """Return what each layer costs, the layers one behind the other.

    Args:
        layers: each a `Layer`, as `make_stages` takes them; recomputed segments,
            which keep their input only.
        sample: shape of one sample; None if the first layer tells what it takes.

    Raises:
        TypeError: no list of layers.
        ValueError: an empty list, no shape, samples that a layer can't take, or a
            layer with operations whose FLOPs are not known here.
    """
    check_not_empty("layers", layers)
    for i, one in enumerate(layers):
        if not callable(getattr(one, "apply", None)):
            raise TypeError(f"layers[{i}] must be a Layer, got {type(one).__name__}")
    sample = layers[0].takes if sample is None else tuple(sample)
    if sample is None:
        raise ValueError("sample is needed: the first layer doesn't tell what it takes")
    dtype = next((p.dtype for one in layers for p in one.params), tf.float32)
    costs = []
    with tf.Graph().as_default():
        h = tf.compat.v1.placeholder(dtype, (1, *sample))
        for one in layers:
            try:
                h, cost = _cost(one, h)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"layers: {one.name} can't be traced with a sample of shape "
                    f"{tuple(h.shape[1:])}: {error}"
                ) from error
            costs.append(cost)
    return costs


def kept_bytes(work: Callable[..., tf.Tensor], below: Any, *params: Any) -> int:
    """Return the bytes that must be kept until the backward pass of a piece of work.

    They are counted as `LayerCost.activations` is, for all samples at once: what of
    `below`, and of what the work makes, its backward pass reads, but not its output.

    Args:
        work: takes `below` and the parameters, returns one tensor, and uses nothing
            else.
        below: what comes from the layer below: a tensor, or a list of them.
        *params: tensors or variables. They are kept anyway, and not counted.
    """
    with tf.Graph().as_default():
        h = tf.nest.map_structure(_stand_in, below)
        params = [_stand_in(p) for p in params]
        output, forward, backward = _traced(lambda: work(h, *params), [h, *params])
        return nbytes(_kept(forward, backward, tf.nest.flatten(h), output))


def _stand_in(tensor: tf.Tensor | tf.Variable) -> tf.Tensor:
    return tf.compat.v1.placeholder(tensor.dtype, tensor.shape)


def _cost(one: Any, h: tf.Tensor) -> tuple[tf.Tensor, LayerCost]:
    """The layer's output for h, and what the layer costs."""
    params = [_stand_in(p) for p in one.params]
    state = [tf.Variable(tf.zeros(v.shape, v.dtype)) for v in one.state]
    output, forward, backward = _traced(
        lambda: one.apply(h, *params, *state), [h, *params]
    )
    kept = _kept(forward, backward, [h], output)
    flops = sum(_flops(op) for op in forward)
    sizes = nbytes(kept), nbytes(params), nbytes(output)
    return output, LayerCost(one.name, flops, *sizes)


def model_costs(
    forward: Callable[[Any], tf.Tensor], batch: Any, params: Sequence[tf.Variable]
) -> tuple[int, int]:
    """Return FLOPs of a whole model's forward pass, and bytes kept for the backward.

    For a model that is no chain of layers; what is counted is what `LayerCost` says,
    of the batch and not of a sample.

    Args:
        forward: (batch) -> the loss, by operations on `params` and the batch.
        batch: tensors, nested as you like, whose shapes are known.
        params: that are trained.

    Raises:
        ValueError: operations whose FLOPs, or tensors whose shapes, are not known here.
    """
    seen: dict[str, Any] = {}

    def passes(batch: Any) -> list:
        graph = tf.compat.v1.get_default_graph()
        seen["inputs"] = [t for t in tf.nest.flatten(batch) if t.dtype.is_floating]
        seen["start"] = len(graph.get_operations())
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(params)
            seen["loss"] = loss = forward(batch)
        seen["middle"] = len(graph.get_operations())
        return [g for g in tape.gradient(loss, params) if g is not None]

    traced = tf.function(passes, autograph=False).get_concrete_function(batch)
    operations = traced.graph.get_operations()
    ahead = operations[seen["start"] : seen["middle"]]
    kept = _kept(ahead, operations[seen["middle"] :], seen["inputs"], seen["loss"])
    return sum(_flops(op) for op in ahead), nbytes(kept)


def _traced(
    work: Callable[[], tf.Tensor], sources: list
) -> tuple[tf.Tensor, list[tf.Operation], list[tf.Operation]]:
    """The output of `work`, and the operations of its forward and backward pass."""
    graph = tf.compat.v1.get_default_graph()
    start = len(graph.get_operations())
    with tf.GradientTape() as tape:
        tape.watch(sources)
        output = work()
    middle = len(graph.get_operations())
    tape.gradient(output, sources)
    operations = graph.get_operations()
    return output, operations[start:middle], operations[middle:]


def _kept(
    forward: Sequence[tf.Operation],
    backward: Sequence[tf.Operation],
    inputs: Sequence[tf.Tensor],
    output: tf.Tensor,
) -> list[tf.Tensor]:
    """What the backward pass reads, of the inputs and of what the forward pass made."""
    made, last = set(forward), _stored_as(output).ref()
    first = {_stored_as(h).ref() for h in inputs}
    read = kept_tensors(backward)
    own = [t for t in read if t.op in made and t.op.type not in NOT_KEPT]
    found = {t.ref(): t for t in read if t.ref() in first} | {t.ref(): t for t in own}
    found.pop(last, None)
    return list(found.values())


def kept_tensors(
    backward: Iterable[tf.Operation], by_device: bool = False
) -> list[tf.Tensor]:
    """Return what operations of a backward pass read, each piece of memory once.

    Tensors of which they ask only the shape are left out. What is made for the backward
    pass itself, and parameters (`NOT_KEPT`), are still among them.

    Args:
        backward: operations of a traced step.
        by_device: whether a copy on another device is memory of its own.
    """
    read = {}
    for op in backward:
        for tensor in [] if op.type in _ASKS_SHAPE else op.inputs:
            tensor = _stored_as(tensor, by_device)
            read[tensor.ref()] = tensor
    return list(read.values())


def _stored_as(tensor: tf.Tensor, by_device: bool = False) -> tf.Tensor:
    """The tensor whose memory `tensor` shares."""
    while tensor.op.type in _SAME_MEMORY:
        source = tensor.op.inputs[tensor.value_index]
        if by_device and source.op.device != tensor.op.device:
            break
        tensor = source
    return tensor


def _flops(op: tf.Operation) -> int:
    """Multiplications and additions of an operation, if it is a product."""
    if op.type in _UNKNOWN:
        raise ValueError(f"the FLOPs of {op.type} are not known here")
    if op.type == "Einsum":
        return _einsum_flops(op)
    if op.type in ("MatMul", "BatchMatMulV2"):
        turned = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
        terms = op.inputs[0].shape[-2 if turned else -1]
    elif op.type in ("Conv2D", "DepthwiseConv2dNative"):
        *window, depth, _ = op.inputs[1].shape
        terms = window[0] * window[1] * (depth if op.type == "Conv2D" else 1)
    else:
        return 0
    return 2 * op.outputs[0].shape.num_elements() * terms


def _einsum_flops(op: tf.Operation) -> int:
    """Those of a product of two tensors: two for each combination of all indices."""
    equation = op.get_attr("equation").decode()
    if len(op.inputs) == 1:
        return 0
    if len(op.inputs) > 2 or "." in equation:
        raise ValueError(f"the FLOPs of Einsum {equation} are not known here")
    sizes = {
        letter: size
        for letters, tensor in zip(
            equation.partition("->")[0].split(","), op.inputs, strict=True
        )
        for letter, size in zip(letters, tensor.shape, strict=True)
    }
    return 2 * math.prod(sizes.values())
