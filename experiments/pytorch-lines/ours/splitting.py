"""Blocks of the part `splitting`."""

import given
import numpy as np
import tensorflow as tf

from manygpu.scratch.splitting.hybrid_meshes import (
    MeshShards,
    clip_grads,
    joined_shards,
    mesh_gradients,
    norms_on_mesh,
)
from manygpu.scratch.splitting.layerwise import (
    LayerShards,
    gather_params,
    layerwise_gradients,
)
from manygpu.scratch.splitting.network import Model, make_stages, partitioned_gradients
from manygpu.scratch.splitting.pipeline import (
    gpipe,
    one_forward_one_backward,
    orders_of,
)
from manygpu.scratch.splitting.program_over_ranks import (
    Backward,
    Mesh,
    groups_along,
    joined,
    spread_out,
    summed,
)
from manygpu.scratch.splitting.recomputation import as_segment, recomputed
from manygpu.scratch.splitting.running_a_pipeline import pipeline_gradients
from manygpu.scratch.splitting.sharded_state import (
    ZeroState,
    zero_gradients,
    zero_params,
    zero_step,
)
from manygpu.scratch.splitting.smaller_bubble import interleaved
from manygpu.scratch.splitting.transformer import BLOCK, block_gradients
from manygpu.scratch.splitting.what_a_tensor_means import I, P, R, S
from manygpu.scratch.start.one_device import lenet as logits_of
from ours.cases import DEVICES, case, flat, layers, lenet, mean_gradients

WIDTHS = 6, 8, 8, 8, 4


def batch(samples: int, width: int = 6) -> tuple[tf.Tensor, tf.Tensor]:
    X, y = given.features(samples, width, 4)
    return tf.constant(X), tf.constant(y)


def normal(*shapes: tuple) -> list[tf.Tensor]:
    rng = np.random.default_rng(0)
    return [tf.constant(rng.normal(size=shape)) for shape in shapes]


@case("splitting/network", 1)
def network(found):
    (X, y), own = batch(8), layers(6, 8, 4)
    _, grads = partitioned_gradients(X, y, make_stages(own, [1], DEVICES[:2]))
    logits = Model(own).outputs(X, Model(own).params)
    return {"logits": logits, "grads": flat(sum(grads, []), 8)}


@case("splitting/what-a-tensor-means", 1)
def what_a_tensor_means(found):
    x, W, b = normal((4, 6), (6, 3), (3,))
    mesh = Mesh(DEVICES[:2], k=2)
    product = spread_out(x, {"k": S(-1)}, mesh) @ spread_out(W, {"k": S(-2)}, mesh)
    added = product.move("k", P, I) + spread_out(b, {}, mesh)
    hidden = added.apply(tf.nn.relu)
    own = {"output": joined(added, {"k": I}), "hidden": joined(hidden, {"k": I})}
    return own | {"placements": ["P(sum)", "R"]}


def pair(x: tf.Tensor, A: tf.Tensor, B: tf.Tensor, bend=lambda h: h) -> tuple:
    """Return the output and both gradients of its squares, on two axes of two ranks."""
    mesh = Mesh(DEVICES[:4], data=2, layerwise=2)
    x = spread_out(x, {"data": S(-2)}, mesh)
    A = spread_out(A, {"data": R, "layerwise": S(-1)}, mesh)
    B = spread_out(B, {"data": R, "layerwise": S(-2)}, mesh)
    y = (x.move("layerwise", I, R) @ A).apply(bend) @ B
    y = y.move("layerwise", P, I)
    grads = Backward(y, [2 * part for part in y.parts]).to([A, B])
    cuts = {"layerwise": S(-1)}, {"layerwise": S(-2)}
    grads = [joined(summed(g, cut), cut) for g, cut in zip(grads, cuts, strict=True)]
    return joined(y, {"data": S(-2), "layerwise": I}), *grads


@case("splitting/program-over-ranks", 1)
def program_over_ranks(found):
    y, A, B = pair(*normal((4, 6), (6, 8), (8, 3)), tf.tanh)
    kinds = [["S(0)", "P(sum)"], ["S(0)", "R"]]
    return {"y": y, "A": A, "B": B, "placements": kinds}


@case("splitting/dtensor", 1)
def dtensor(found):
    y, W1, W2 = pair(*normal((4, 6), (6, 8), (8, 4)))
    return {"y": y, "W1": W1, "W2": W2, "local": [6, 4]}


@case("splitting/batch-normalization", 1)
def batch_normalization(found):
    return {}


def said(orders: list) -> dict[str, list[str]]:
    """Return each device's order, as texts."""
    found = {}
    for rank, order in enumerate(orders):
        found[f"order@{rank}"] = [f"{o.kind}{o.stage}.{o.micro_batch}" for o in order]
    return found


@case("splitting/pipeline", 1)
def pipeline(found):
    # PyTorch's backward passes come in the order of the forward passes.
    orders = [[*o[:8], *reversed(o[8:])] for o in orders_of(gpipe(4, 8))]
    return said(orders)


@case("splitting/running-a-pipeline", 1)
def running_a_pipeline(found):
    plan = one_forward_one_backward(4, 8)
    stages = make_stages(layers(*WIDTHS), [1, 2, 3], DEVICES[:4])
    _, grads = pipeline_gradients(plan, stages, *batch(16))
    own = {f"grads@{rank}": flat(of_stage, 16) for rank, of_stage in enumerate(grads)}
    return own | said(orders_of(plan))


@case("splitting/smaller-bubble", 1)
def smaller_bubble(found):
    plan = interleaved(4, 8, 2)
    stages = make_stages(layers(*WIDTHS), [1, 2, 3], DEVICES[:2])
    _, grads = pipeline_gradients(plan, stages, *batch(16))
    own = {f"grads@{rank}": flat(grads[rank] + grads[rank + 2], 16) for rank in (0, 1)}
    return own | said(orders_of(plan))


@case("splitting/layerwise", 1)
def layerwise(found):
    (X, y), own = batch(8), layers(6, 16, 4)
    shards = LayerShards(own, DEVICES)
    _, grads = layerwise_gradients(X, y, shards)
    logits = Model(own).outputs(X, Model(own).params)
    found = {"logits": logits, "grads": flat(gather_params(shards, grads), 8)}
    return found | {"numbers": shards[0][0].shape.num_elements()}


@case("splitting/layerwise-lenet", 1)
def layerwise_lenet(found):
    X, y = given.images(8)
    logits = logits_of(tf.constant(X), lenet())
    return {"logits": logits, "grads": mean_gradients(X, y, lenet())[1]}


@case("splitting/transformer", 1)
def transformer(found):
    D, h = 16, 8
    shapes = [(D,), (D,), *[(D, D)] * 4, (D,), (D,), (D, 4 * D), (4 * D, D)]
    by_heads = [(D, h, D // h)] * 3 + [(h, D // h, D)]
    shaped = [*shapes[:2], *by_heads, *shapes[6:]]
    rng = np.random.default_rng(5)
    x, upstream = (tf.constant(rng.normal(size=(5, 3, D))) for _ in range(2))
    mesh, blocks = Mesh(DEVICES, layerwise=h), []
    for seed in range(2):
        arrays = given.params(shapes, seed)
        whole = [tf.reshape(a, s) for a, s in zip(arrays, shaped, strict=True)]
        cut = [
            spread_out(p, {"layerwise": kind}, mesh)
            for p, kind in zip(whole, BLOCK.letters, strict=True)
        ]
        blocks.append((whole, cut))
    given_x = [spread_out(x, {}, mesh)]
    for _, cut in blocks:
        output, _, _ = block_gradients(BLOCK, given_x[-1], given_x[-1], cut)
        given_x.append(spread_out(tf.constant(joined(output, {})), {}, mesh))
    grads, up = [], spread_out(upstream, {}, mesh)
    for (_, cut), start in zip(blocks[::-1], given_x[-2::-1], strict=True):
        _, up, own = block_gradients(BLOCK, start, up, cut)
        pairs = zip(own, BLOCK.letters, strict=True)
        grads = [joined(g, {"layerwise": kind}) for g, kind in pairs] + grads
        up = spread_out(tf.constant(joined(up, {})), {}, mesh)
    found = {"output": joined(given_x[-1], {}), "grads": flat(grads)}
    return found | {"numbers": blocks[0][1][8].parts[0].shape.num_elements()}


@case("splitting/recomputation", 1)
def recomputation(found):
    own, runs = layers(6, 8, 6, last=True), []
    segment = as_segment(own)

    def counted(*inputs):
        runs.append(1)
        return segment.apply(*inputs)

    h = tf.Variable(given.features(8, 6, 4)[0])
    with tf.GradientTape() as tape:
        output = tf.reduce_sum(recomputed(counted)(h, *segment.params) ** 2)
    of_h, *grads = tape.gradient(output, [h, *segment.params])
    return {"grads": flat(grads), "of h": of_h, "runs": len(runs)}


@case("splitting/sharded-state", 1)
def sharded_state(found):
    (X, y), mesh = batch(16), Mesh(DEVICES, copies=2, data=4)
    state = ZeroState(layers(6, 8, 4), mesh, stage=3)
    _, grads = zero_gradients(state, X, y)
    whole = [np.concatenate([own[i] for i in range(4)]) for own in grads]
    held = sum(one.param.parts[0].shape.num_elements() for one in state.held)
    zero_step(state, X, y)
    own = {"grads": flat(whole), "params": flat(zero_params(state))}
    return own | {"numbers": held}


@case("splitting/hybrid-meshes", 1)
def hybrid_meshes(found):
    mesh = Mesh(DEVICES, copies=2, data=2, layerwise=2)
    shards = MeshShards(layers(6, 8, 4), mesh, sharded="data")
    _, grads = mesh_gradients(*batch(8), shards, mesh)
    whole = joined_shards(shards, grads)
    weights = sum(shards[0][n].shape.num_elements() for n in (0, 2))
    return {"grads": flat(whole, 8), "weights": weights}


@case("splitting/hybrid-meshes", 2)
def clipped_on_a_mesh(found):
    mesh = Mesh(DEVICES, pipeline=2, data=2, layerwise=2)
    shards = MeshShards(layers(*WIDTHS), mesh)
    _, grads = mesh_gradients(*batch(8), shards, mesh)
    grads = [[10 * g / 8 for g in own] for own in grads]  # theirs: of 10 times the mean
    norms = norms_on_mesh(shards, grads)
    by = [norm + 1e-6 for norm in norms]  # as PyTorch does
    whole = joined_shards(shards, clip_grads(grads, by, 1.0))
    stages = flat(whole[:4]), flat(whole[4:])
    result = {f"grads@{rank}": stages[rank // 4] for rank in range(8)}
    return result | {f"norm@{rank}": norms[rank] for rank in range(8)}


@case("splitting/mesh-layout", 1)
def mesh_layout(found):
    mesh, own = Mesh(DEVICES, shared=True, pp=8, dp=8, tp=8), {}
    for name, axis in {"inside_a_node": "tp", "between_nodes": "dp"}.items():
        for rank in (0, 9, 511):
            [group] = [g for g in groups_along(mesh, axis) if rank in g]
            own[f"{name} {rank}"] = group
    return own
