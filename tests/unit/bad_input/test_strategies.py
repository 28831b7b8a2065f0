"""What the parts on data parallelism and on splitting refuse, but for a step's batch.

What a check tells apart is in test_checks.py: a row here says that it is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from manygpu._devices import StartedError
from manygpu.scratch import (
    GradualWarmup,
    MessageLog,
    accumulate,
    get_params,
    hierarchical_allreduce,
    init_params,
)
from manygpu.scratch.data_parallel import all_reduce, collectives, many_devices
from manygpu.scratch.data_parallel import hiding_communication as hiding
from manygpu.scratch.splitting import batch_normalization as norms
from manygpu.scratch.splitting import (
    dtensor,
    layerwise,
    network,
    pipeline,
    recomputation,
    smaller_bubble,
    transformer,
)
from manygpu.scratch.splitting import hybrid_meshes as meshes
from manygpu.scratch.splitting import running_a_pipeline as running
from manygpu.scratch.splitting import sharded_state as zero
from manygpu.scratch.splitting.layerwise import COLUMNS, ROWS, WHOLE
from manygpu.scratch.splitting.network import Layer
from manygpu.scratch.splitting.pipeline import Op, Slot, dense_layers, gpipe
from manygpu.scratch.splitting.program_over_ranks import (
    WHOLE_LAYER,
    Mesh,
    Spread,
    spread_out,
)
from manygpu.scratch.splitting.what_a_tensor_means import S
from tests.refusals import refused
from tests.unit.helpers import EIGHT, batch, same, values
from tests.unit.scratch.splitting.helpers import norm_layer, nowhere
from tests.unit.scratch.splitting.test_transformer import tokens

TWO, NOWHERE, LOG = EIGHT[:2], ["/device:CPU:99"], MessageLog()
ONE, THREE, WIDE = tf.ones(2), tf.ones(3), tf.ones(2, tf.float64)
X, y = tf.ones((4, 6)), tf.constant([0, 1, 2, 3])
SWAPPED = [[ONE, THREE], [THREE, ONE]]  # of one size altogether

# What bad calls are given, and must leave as it is.
REPLICAS = [get_params(init_params(), device) for device in TWO]
PAIR = [tf.Variable(ONE), tf.Variable(ONE)]
NORM, OTHER_NORM, WIDER_NORM = norm_layer(2), norm_layer(2), norm_layer(3)
FIRST, SECOND = PRODUCT = dense_layers([6, 5, 4])
LENET = network.lenet_layers(REPLICAS[0])
STAGES = network.make_stages(PRODUCT, [1], TWO)
DEEP = dense_layers([6, 4, 4, 4, 4])
GRID = Mesh(EIGHT, data=2, layerwise=2)
SHARDS = meshes.MeshShards(DEEP, GRID)
ZERO = {stage: zero.ZeroState(PRODUCT, TWO, stage) for stage in (0, 3)}
GRADS = {stage: zero.zero_gradients(state, X, y)[1] for stage, state in ZERO.items()}
HELD = [*sum(REPLICAS, []), *PAIR, *NORM.params, *NORM.state, *sum(SHARDS, [])]
for state in ZERO.values():
    HELD += [v for own in state.held for one in own if one for v in one.parts]
    HELD.append(state.t)


def traced(work: Callable, *shapes: tuple) -> object:
    kinds = [tf.TensorSpec(shape) for shape in shapes]
    return tf.function(work, kinds, autograph=False).get_concrete_function()


# Data parallel.


def step(**changed) -> tf.Tensor:
    images, labels = batch(4)
    given = {"X": images, "y": labels, "device_params": REPLICAS, "devices": TWO}
    return many_devices.train_batch(**(given | {"lr": 0.1} | changed))


def trained(**changed) -> dict:
    epoch = tf.data.Dataset.from_tensors(batch(4))
    given = {"num_gpus": 1, "batch_size": 4, "lr": 0.1, "num_epochs": 1}
    return many_devices.train(**(given | {"data": (epoch, epoch)} | changed))


def moved(sums: list, lr: float = 0.1) -> None:
    many_devices.take_step([PAIR[:1], PAIR[1:]], sums, lr, 2)


def in_groups(*groups: list[int]) -> list[tf.Tensor]:
    return hierarchical_allreduce([ONE, ONE], list(groups), LOG)


def in_buckets(buckets: list, grads: list | None = None) -> list:
    ring = collectives.allreduce_with(collectives.ring_allreduce, LOG)
    return hiding.allreduce_buckets(grads or [[ONE, THREE]] * 2, buckets, ring)


def gathered(a: tf.Tensor, b: tf.Tensor) -> list[tf.Tensor]:
    with tf.device(TWO[0]):
        return collectives.all_gather([tf.identity(a), tf.identity(b)])


def filled(buffer: object) -> list[tf.Tensor]:
    return hiding.unflatten(buffer, [tf.zeros((2, 2)), ONE])


def warmup(base_lr=0.1, peak_lr=0.4, steps=10) -> GradualWarmup:
    return GradualWarmup(base_lr, peak_lr, steps)


naive, ring = collectives.naive_allreduce, collectives.ring_allreduce
in_chunks, reduce_scatter = collectives.in_chunks, collectives.reduce_scatter
all_to_all, TABLES = collectives.all_to_all, [tf.ones((2, 3, 4)), tf.ones((2, 2, 4))]
OTHER_FORM = "grads[1][0] is float32 of shape (3,), but grads[0][0] float32 of (2,)"
PARALLEL = [
    (lambda: get_params([], TWO[0]), ValueError, "params is empty"),
    (lambda: get_params([ONE], *NOWHERE), ValueError, "CPU:99' does not exist"),
    (lambda: all_reduce.allreduce([PAIR[0], None]), TypeError, "data[1] must be a"),
    (lambda: all_reduce.allreduce(PAIR[:1] * 2), ValueError, "the same variable twice"),
    (lambda: many_devices.allreduce_gradients(SWAPPED), ValueError, OTHER_FORM),
    (lambda: step(devices=EIGHT[:3]), ValueError, "has 2 replicas for 3 devices"),
    (lambda: step(device_params=REPLICAS[:1] * 2), ValueError, "the same variable"),
    (
        lambda: step(device_params=[own[:7] for own in REPLICAS]),
        ValueError,
        "params must hold 8 tensors, got 7",
    ),
    (lambda: moved([[ONE]]), ValueError, "sums has 1 lists for 2 replicas"),
    (lambda: moved([[ONE], [THREE]]), ValueError, "sums[1][0] must have the shape"),
    (lambda: moved([[ONE], [ONE]], lr=0.0), ValueError, "lr must be positive"),
    (lambda: trained(num_gpus=0), ValueError, "num_gpus must be at least 1"),
    (lambda: trained(num_gpus=9), StartedError, "n is 9"),
    (lambda: trained(num_epochs=0), ValueError, "num_epochs must be at least 1"),
    (lambda: trained(batch_size=0, data=None), ValueError, "batch_size must be at l"),
    (lambda: in_chunks(ONE, 0), ValueError, "n must be at least 1, got 0"),
    (lambda: in_chunks(ONE, 2, 0), ValueError, "owners must be at least 1, got 0"),
    (lambda: reduce_scatter([ONE] * 2, LOG, 3), ValueError, "owners must be at most"),
    (lambda: collectives.all_gather(ONE, LOG), TypeError, "chunks must be a list"),
    (lambda: collectives.all_gather([tf.ones(())], LOG), ValueError, "known lengths"),
    (lambda: traced(gathered, [None], [None]), ValueError, "must have known lengths"),
    (lambda: collectives.all_gather([X, X[1:]], LOG, 1), ValueError, "only along 1"),
    (lambda: collectives.all_gather([ONE] * 2, LOG, 1), ValueError, "dim must be from"),
    (lambda: all_to_all(ONE, 0, 1, LOG), TypeError, "chunks must be a list"),
    (lambda: all_to_all([ONE] * 2, 0, 1, LOG), ValueError, "dim must be from -1 to 0"),
    (lambda: all_to_all([ONE] * 2, -2, 0, LOG), ValueError, "dim must be from -1 to 0"),
    (lambda: all_to_all(TABLES, 0, 2, LOG), ValueError, "chunks must differ only al"),
    (
        lambda: all_to_all([ONE] * 2, 0, 0, LOG, [[1]]),
        ValueError,
        "sizes must have 2 l",
    ),
    (lambda: in_chunks(ONE, 2, dim=1), ValueError, "dim must be from -1 to 0, got 1"),
    (lambda: reduce_scatter([ONE] * 2, LOG, dim=2), ValueError, "dim must be from -1"),
    (lambda: traced(lambda t: in_chunks(t, 2), [None]), ValueError, "a known shape"),
    (lambda: traced(lambda t: naive([t]), [None]), ValueError, "have known shapes"),
    (lambda: traced(lambda t: naive([t]), [2]), ValueError, "data[0] has no device"),
    (lambda: collectives.allreduce_with(ring, LOG)(SWAPPED), ValueError, OTHER_FORM),
    (lambda: in_groups(), ValueError, "groups is empty"),
    (lambda: in_groups([0, 1], []), ValueError, "groups[1] is empty"),
    (lambda: in_groups(0, 1), TypeError, "groups[0] must be a list"),
    *(
        (lambda groups=groups: in_groups(*groups), ValueError, "0 to 1 exactly once")
        for groups in ([[0]], [[0, 1], [1]], [[0, 2]], [[0.0, 1.0]], [[False, True]])
    ),
    (lambda: hiding.make_buckets([], 1), ValueError, "sizes is empty"),
    (lambda: hiding.make_buckets([4, 2.5], 1), TypeError, "sizes[1] must be a whole"),
    (lambda: hiding.make_buckets([4, -1], 1), ValueError, "must not be negative, got"),
    (lambda: hiding.make_buckets([4], 0), ValueError, "limit must be at least 1"),
    (lambda: hiding.flatten([ONE, WIDE]), TypeError, "tensors must have one dtype"),
    (lambda: hiding.unflatten(ONE, [[1.0]]), TypeError, "like[0] must be a tensor or"),
    (lambda: filled(tf.zeros(5)), ValueError, "buffer must have shape (6,) to fill"),
    (lambda: filled(tf.zeros((2, 3))), ValueError, "buffer must have shape (6,)"),
    (lambda: filled(tf.zeros(6, tf.float64)), TypeError, "buffer is float64, like fl"),
    (lambda: filled([0.0] * 6), TypeError, "buffer must be a tensor, got list"),
    (lambda: in_buckets([[0, 1]], SWAPPED), ValueError, OTHER_FORM),
    (lambda: in_buckets([]), ValueError, "buckets is empty"),
    (lambda: in_buckets([[0, 1], []]), ValueError, "buckets[1] is empty"),
    *(
        (lambda buckets=buckets: in_buckets(buckets), ValueError, "each of the 2 must")
        for buckets in ([[0]], [[0], [1], [1]], [[0, 1, 2]], [[0.0, 1]], [["a"], [0]])
    ),
    (lambda: accumulate(X, y, [], 0), ValueError, "micro_batches must be at least 1"),
    (lambda: accumulate(X, y, [], 5), ValueError, "parts is 5 for 4 samples"),
    (lambda: warmup(base_lr=0.0), ValueError, "base_lr must be positive"),
    (lambda: warmup(peak_lr=math.inf), ValueError, "peak_lr must be positive and fin"),
    (lambda: warmup(peak_lr=0.05), ValueError, "peak_lr is 0.05, below base_lr 0.1"),
    (lambda: warmup(steps=0), ValueError, "warmup_steps must be at least 1"),
    (lambda: warmup()(np.int64(-1)), ValueError, "step must not be negative"),
    (lambda: warmup()(tf.range(-1, 2)), ValueError, "step must not be negative"),
]

# Stages and plans.


def staged(layers=LENET, cuts=(2,), devices=TWO) -> list[network.Stage]:
    return network.make_stages(layers, cuts, devices)


LENET_STAGES = staged()


def any_batch(images: tf.Tensor) -> tf.Tensor:
    labels = tf.zeros(tf.shape(images)[0], tf.int32)
    return network.partitioned_gradients(images, labels, LENET_STAGES)[0]


def synced(layers=(NORM, OTHER_NORM), **options) -> Spread:
    mesh = Mesh(TWO[:1], shared=True, data=2)
    of_ranks = zip(*((*one.params, *one.state) for one in layers), strict=True)
    h = spread_out(tf.ones((4, 2), tf.float64), {"data": S(-2)}, mesh, LOG)
    own = [Spread(mesh, variables) for variables in of_ranks]
    return norms.synced_batch_norm("data", h, *own, **options)


def normed(**options: float) -> tf.Tensor:
    return NORM.apply(WIDE[None], *NORM.params, *NORM.state, **options)


def interleaved(stages=2, micro_batches=2, devices=2, group=2) -> pipeline.Plan:
    return smaller_bubble.interleaved(stages, micro_batches, devices, group)


def checked(*ops: tuple) -> pipeline.Plan:
    """As a plan for one stage."""
    plan = [Slot(0, tick, Op(kind, 0, m)) for tick, (kind, m) in enumerate(ops)]
    return pipeline.check_plan(plan, nowhere(1))


def of_keras(*layers) -> list[Layer]:
    return pipeline.keras_layers(tf.keras.Sequential([tf.keras.Input((4,)), *layers]))


def functional() -> tf.keras.Model:
    entry = tf.keras.Input((4,))
    return tf.keras.Model(entry, K.Dense(3)(entry))


K = tf.keras.layers
CROSSED = [[Op("F", 0, 1)], [Op("B", 1, 0), Op("F", 1, 0)]]
SHARED_STATE = [NORM, OTHER_NORM._replace(state=NORM.state), FIRST]
costs_cut, earliest = pipeline.balanced_cuts, pipeline.earliest_spans
NETWORK = [
    (lambda: network.even_cuts(4, 5), ValueError, "stages is 5, but there are 4 lay"),
    (lambda: network.even_cuts(4, 0), ValueError, "stages must be at least 1"),
    (lambda: network.even_cuts(0, 1), ValueError, "layers must be at least 1"),
    (lambda: staged(layers=[]), ValueError, "layers is empty"),
    (lambda: staged(layers=[ONE]), TypeError, "layers[0] must be a Layer"),
    (lambda: staged([FIRST, SECOND, FIRST]), ValueError, "layers share a variable"),
    (lambda: staged(SHARED_STATE), ValueError, "layers share a variable"),
    (lambda: staged(cuts=2), TypeError, "cuts must be a list, got 2"),
    (lambda: staged(cuts=[1.5]), TypeError, "cuts must be a whole number"),
    (lambda: staged(cuts=[4]), ValueError, "cuts must rise from 1 to at most 3"),
    (lambda: staged(cuts=[2, 2]), ValueError, "cuts must rise from 1 to at most 3"),
    (lambda: staged(devices=[]), ValueError, "devices is empty"),
    (lambda: staged(devices=NOWHERE), ValueError, "CPU:99' does not exist"),
    (lambda: network.partitioned_gradients(X, y, []), ValueError, "stages is empty"),
    (  # where the last layer doesn't tell what it gives
        lambda: network.loss_gradient(X, tf.constant([0, 1, 2, 6])),
        ValueError,
        "y must hold labels from 0 to 5, got 0 to 6",
    ),
    *(
        (
            lambda count=count: count(traced(any_batch, [None, 28, 28, 1]).graph),
            ValueError,
            "trace with a batch of known size",
        )
        for count in (network.transfers, network.held_for_backward)
    ),
    (
        lambda: network.Model([FIRST]).gradients(X, y, PAIR[:1]),
        ValueError,
        "params must hold 2 tensors, got 1",
    ),
    (lambda: normed(momentum=5), ValueError, "momentum must be from 0 to 1"),
    (lambda: normed(epsilon=-1), ValueError, "epsilon must be positive"),
    (lambda: synced(momentum=5), ValueError, "momentum must be from 0 to 1"),
    (lambda: synced(epsilon=-1), ValueError, "epsilon must be positive"),
    (lambda: synced([NORM] * 2), ValueError, "gamma has the same variable twice"),
    (lambda: synced([WIDER_NORM] * 2), ValueError, "for each of 2 channels"),
    *(
        (lambda make=make, bad=bad: make(*bad), ValueError, f"{name} must be at least")
        for make in (pipeline.forward_only, gpipe, pipeline.one_forward_one_backward)
        for name, bad in (("stages", (0, 2)), ("micro_batches", (2, 0)))
    ),
    (lambda: smaller_bubble.zero_bubble(2, 0), ValueError, "micro_batches must be at"),
    (lambda: smaller_bubble.zero_bubble(2, 2, 0), ValueError, "ahead must be at least"),
    (lambda: interleaved(micro_batches=0), ValueError, "micro_batches must be at lea"),
    (lambda: interleaved(devices=0), ValueError, "devices must be at least 1"),
    (lambda: interleaved(devices=4), ValueError, "stages is 2, which 4 devices can't"),
    (lambda: interleaved(group=1), ValueError, "group must be at least the 2 devices"),
    (lambda: earliest([]), ValueError, "orders is empty"),
    (lambda: earliest(CROSSED), ValueError, "deadlock: device 1 can't begin"),
    (lambda: pipeline.orders_of([]), ValueError, "plan is empty"),
    (lambda: pipeline.bubble([]), ValueError, "spans is empty"),
    (lambda: smaller_bubble.bubble_without_flush([]), ValueError, "spans is empty"),
    (lambda: pipeline.check_plan(None, [1]), TypeError, "plan must be a list"),
    (lambda: pipeline.check_plan([CROSSED], [1]), TypeError, "plan must hold slots"),
    (lambda: pipeline.check_plan(gpipe(2, 2), [1]), ValueError, "is for 2 stages, go"),
    (lambda: checked(("B", 0)), ValueError, "plan has the kinds ['B']"),
    (lambda: checked(("X", 0)), ValueError, "plan has the kinds ['X']"),
    (lambda: checked(("F", 0), ("W", 0)), ValueError, "plan has the kinds ['F', 'W']"),
    (lambda: checked(("F", -1), ("F", 0)), ValueError, "plan must hold each operation"),
    (lambda: costs_cut([], 1), ValueError, "costs is empty"),
    (lambda: costs_cut([1, -1], 1), ValueError, "costs must be finite and not negati"),
    (lambda: costs_cut([1, "a"], 1), TypeError, "costs[1] must be a number"),
    (lambda: costs_cut([1, 2], 0), ValueError, "stages must be at least 1"),
    (lambda: costs_cut([1, 2], 3), ValueError, "stages is 3, of 2 layers"),
    (lambda: dense_layers([8]), ValueError, "widths must hold inputs and outputs"),
    (lambda: dense_layers([8, 0]), ValueError, "widths must be at least 1"),
    (lambda: pipeline.keras_layers(functional()), TypeError, "must be Sequential, got"),
    (lambda: of_keras(K.Flatten()), ValueError, "must have a Dense or a Conv2D layer"),
    (lambda: of_keras(K.Dense(3, "softmax")), ValueError, "let it give logits"),
    (lambda: of_keras(K.LayerNormalization()), ValueError, "Normalization: remove it"),
    (
        lambda: running.pipeline_gradients(gpipe(2, 7), STAGES, X, y),
        ValueError,
        "parts is 7 for 4 samples",
    ),
    (
        lambda: running.pipeline_gradients(pipeline.forward_only(2, 2), STAGES, X, y),
        ValueError,
        "plan has forward passes only",
    ),
]

# Layers cut, and meshes.


def cut(layers=PRODUCT, devices=TWO, cuts=None) -> layerwise.LayerShards:
    return layerwise.LayerShards(layers, devices, cuts)


def on_mesh(layers=DEEP, cuts=None, **axes: int) -> meshes.MeshShards:
    return meshes.MeshShards(layers, Mesh(EIGHT, **axes), cuts)


def along(axis: str, stages: int | None = None) -> meshes.MeshShards:
    mesh = Mesh(EIGHT, pipeline=2, data=2)
    return meshes.MeshShards(DEEP, mesh, stages=stages, sharded=axis)


def other_loss() -> tuple:
    """Of outputs that are cut: nobody has all of a sample's."""
    shards = meshes.MeshShards(DEEP[:1], GRID, loss=lambda h, y: h[:, 0])
    return meshes.mesh_gradients(X, y, shards, GRID, send=LOG)


def mesh_step(mesh=GRID, shards=SHARDS, **options) -> tf.Tensor:
    return meshes.mesh_step(X, y, shards, mesh, 0.1, send=LOG, **options)


def predicted(widths=(8, 4, 2), samples=6, size=4, mesh=GRID) -> dict[str, int]:
    return meshes.predicted_traffic(widths, samples, mesh, size)


def device_mesh(devices=TWO, **axes: int) -> object:
    return dtensor.device_mesh(axes, devices)


def split_loss(pieces: list, y: tf.Tensor = y[:1]) -> tuple:
    return layerwise.split_cross_entropy(pieces, y, LOG)


def to_mesh(axis: int, over: str = "model") -> object:
    return dtensor.to_mesh(tf.zeros((3, 4)), device_mesh(model=2), axis, over)


PLAIN, SHUT = WHOLE_LAYER, WHOLE_LAYER._replace(takes=S(-1))
COPIES = Mesh(EIGHT, copies=2)
OPAQUE = Layer("tanh", lambda h, W: tf.tanh(h @ W), FIRST.params[:1])
COMPLEX = [tf.ones(2, tf.complex64)] * 2
OTHER_MESHES = [  # of as many ranks, but none of them would be where its shard is
    Mesh(EIGHT, layerwise=2, data=2),
    Mesh(EIGHT, layerwise=4),
    Mesh(EIGHT, pipeline=2, data=2),
    Mesh(EIGHT[1:], data=2, layerwise=2),
]
CUTS = [
    (lambda: layerwise.allreduce_max(COMPLEX, LOG), TypeError, "ones have no largest"),
    (lambda: split_loss([]), ValueError, "pieces is empty"),
    (lambda: split_loss([ONE]), ValueError, "pieces[0] must have shape (1, some clas"),
    (lambda: split_loss([X[:1], X]), ValueError, "pieces[1] must have shape (1, some"),
    (lambda: split_loss([X], y[None]), ValueError, "y must hold one label per sample"),
    (lambda: cut([1]), TypeError, "layers[0] must be a Layer"),
    (lambda: cut([FIRST, NORM]), ValueError, "layers[1] (norm) keeps state"),
    (lambda: cut(devices=EIGHT[:6]), ValueError, "only 5 outputs for 6 devices"),
    (lambda: cut(devices=TWO[0]), TypeError, "devices must be a list"),
    (lambda: cut(devices=NOWHERE), ValueError, "CPU:99' does not exist"),
    (lambda: cut(cuts=[WHOLE]), ValueError, "cuts has 1 entries for 2 layers"),
    (lambda: cut(cuts=[ROWS, WHOLE]), ValueError, "cuts[0] takes S(-1), but it gets I"),
    (lambda: cut(cuts=[COLUMNS, WHOLE]), ValueError, "takes I, but it gets S(-1): let"),
    (lambda: cut(cuts=[COLUMNS] * 2), ValueError, "takes I, but it gets S(-1): let"),
    (lambda: cut(cuts=[WHOLE, 1]), TypeError, "cuts[1] must be a Cut, such as COLUMN"),
    (lambda: cut([SECOND, FIRST]), ValueError, "takes 6 inputs, no multiple of 4"),
    (lambda: cut([OPAQUE], cuts=[COLUMNS]), ValueError, "layers[0] (tanh) can't be c"),
    (
        lambda: layerwise.layerwise_step(X, y, [FIRST.params] * 2, 0.1),
        TypeError,
        "shards must be LayerShards",
    ),
    (lambda: Mesh(EIGHT[:3], data=4), ValueError, "need 4 devices, got 3"),
    (lambda: Mesh(TWO[0], data=1), TypeError, "devices must be a list"),
    (lambda: Mesh(NOWHERE, data=1), ValueError, "CPU:99' does not exist"),
    (lambda: Mesh(EIGHT, data=0), ValueError, "data must be at least 1"),
    (lambda: meshes.groups_along(GRID, "dta"), ValueError, "one of ['data', 'layerwi"),
    (lambda: zero.axis_between(GRID, 0, 3), ValueError, "0 and 3 differ in"),
    (lambda: zero.axis_between(GRID, 1, 1), ValueError, "1 and 1 differ in []"),
    (lambda: on_mesh(layerwise=5), ValueError, "only 4 outputs for 5"),
    (lambda: on_mesh(pipeline=3), ValueError, "pipeline 3, but the model only 2 bl"),
    (lambda: on_mesh(), ValueError, "mesh must have an axis, got none"),
    (lambda: along("layerwise"), ValueError, "one of ['data'], got 'layerwise'"),
    (lambda: along("pipeline"), ValueError, "one of ['data'], got 'pipeline'"),
    (lambda: along("data", 3), ValueError, "a multiple of pipeline, 2, got 3"),
    (lambda: along("data", 0), ValueError, "stages must be at least 1"),
    (lambda: on_mesh(cuts=[WHOLE, 1] * 2, data=2), TypeError, "cuts[1] must be a Cut"),
    (lambda: on_mesh(cuts=[PLAIN, SHUT] * 2, data=2), ValueError, "cuts[1] takes S(-"),
    (lambda: on_mesh([NORM], [PLAIN], data=2), ValueError, "layers[0] (norm) keeps st"),
    (other_loss, ValueError, "loss must be cross_entropy where the last layer is cut"),
    (lambda: on_mesh(cuts=[COLUMNS, WHOLE] * 2, data=2), ValueError, "takes I, but it"),
    (
        lambda: on_mesh([*DEEP[:2], DEEP[1]], data=2),
        ValueError,
        "shares a parameter that is S(-2) elsewhere, but here S(-1)",
    ),
    (lambda: predicted(samples=-5), ValueError, "samples must be at least 1"),
    (lambda: predicted(size=-4), ValueError, "size must be at least 1"),
    (lambda: predicted(mesh=COPIES), ValueError, "no axis but three, got Mesh(copies"),
    (lambda: predicted(widths=[8, -4, 2]), ValueError, "widths must be at least 1"),
    (lambda: meshes.clip_grads([[X]], [X], 0.0), ValueError, "limit must be positive"),
    (lambda: meshes.clip_grads([[X]], [X, X], 1.0), ValueError, "2 entries for 1"),
    (lambda: mesh_step(micro_batches=4), ValueError, "parts is 8 for 4 samples"),
    (lambda: mesh_step(micro_batches=0), ValueError, "micro_batches must be at least"),
    (lambda: mesh_step(schedule=pipeline.forward_only), ValueError, "forward passes"),
    (lambda: mesh_step(shards=[]), TypeError, "shards must be MeshShards"),
    *(
        (lambda mesh=mesh: mesh_step(mesh), ValueError, "cut for the mesh Mesh")
        for mesh in OTHER_MESHES
    ),
    (lambda: device_mesh(model=3), ValueError, "start with MANYGPU_DEVICES=3"),
    (lambda: device_mesh(model=0), ValueError, "axes['model'] must be at least 1"),
    (lambda: device_mesh(TWO[:1] * 2, model=2), ValueError, "2 different devices"),
    (lambda: device_mesh(NOWHERE, model=1), ValueError, "devices[0] '/device:CPU:99'"),
    (lambda: dtensor.device_mesh(["model"], TWO), TypeError, "axes must say how long"),
    (lambda: to_mesh(0), ValueError, "axis 0 of a tensor of shape (3, 4)"),
    (lambda: to_mesh(2), ValueError, "axis must be one of [-2, -1, 0, 1]"),
    (lambda: to_mesh(1, "data"), ValueError, "over must be one of"),
    (lambda: dtensor.dtensor_step(len, PAIR, 0.1), TypeError, "params[0] must be on a"),
    (lambda: dtensor.dtensor_step(len, PAIR, -1), ValueError, "lr must be positive"),
]

# Memory, and a transformer's block.


def of_a_variable() -> tf.Tensor:
    with tf.GradientTape():
        return recomputation.recomputed(lambda h: h * PAIR[0])(ONE)


def sharded(layers=PRODUCT, devices=TWO, stage=1, **options) -> zero.ZeroState:
    return zero.ZeroState(layers, devices, stage, **options)


def updated(stage: int, change: Callable = list, lr: float = 0.1) -> None:
    zero.zero_update(ZERO[stage], change(GRADS[stage]), lr)


def widened(grads: list[tf.Tensor]) -> list[tf.Tensor]:
    return [tf.cast(g, tf.float64) for g in grads]


def by_adam(g=ONE, t=1, lr=0.1) -> tf.Tensor:
    return zero.adam_change(*PAIR, g, t, lr)


def split(params: int) -> tuple:
    x = spread_out(tokens(3, 1), {}, Mesh(TWO, layerwise=2), LOG)
    return transformer.block_gradients(transformer.BLOCK, x, x, [x] * params)


def gpt(blocks=1, vocabulary=5, tokens=3, width=6, heads=2) -> list:
    return transformer.gpt_layers(blocks, vocabulary, tokens, width, heads)


again, in_segments = recomputation.recomputed, recomputation.recomputed_layers
BAD_GRADIENTS = [
    (len, TypeError, "grads must be a list"),
    (lambda g: g[:1], ValueError, "grads has 1 entries for 2 vectors: one each"),
    (lambda g: [g[0], g[1][:1], *g[2:]], ValueError, "grads[1] must hold 2 tensors"),
    (lambda g: g[::-1], ValueError, "grads[0] must be vectors of"),
    (lambda g: [[g[0][0], ONE], *g[1:]], ValueError, "grads[0] must be vectors of"),
    (lambda g: [widened(g[0]), *g[1:]], TypeError, "grads[0] must be float32, got flo"),
]
WHOLE_NUMBERS = Layer("whole", tf.add, (tf.Variable([1]),))
EXACT = dense_layers([5, 4], dtype=tf.float64)
MEMORY = [
    (lambda: again(3), TypeError, "segment must be a function"),
    (lambda: again(lambda h: [h])(ONE), TypeError, "segment must return one tensor"),
    (lambda: again(tf.identity)([1.0]), TypeError, "h must be a tensor or variable"),
    (lambda: again(tf.identity)(y), TypeError, "h must be of floating point"),
    (lambda: again(tf.add)(ONE, 1.0), TypeError, "params[0] must be a tensor"),
    (of_a_variable, TypeError, "variables"),  # its gradient would be forgotten
    (lambda: recomputation.as_segment([]), ValueError, "layers is empty"),
    (lambda: in_segments([FIRST, NORM], 1), ValueError, "layers[1] (norm) keeps state"),
    (lambda: in_segments([ONE], 1), TypeError, "layers[0] must be a Layer"),
    (lambda: in_segments([FIRST], 0), ValueError, "length must be at least 1"),
    (lambda: in_segments([FIRST], 2), ValueError, "length is 2 for 1 layers"),
    (lambda: recomputation.kept_activations(4, 5), ValueError, "length is 5, but n"),
    (lambda: recomputation.kept_activations(0, 1), ValueError, "n must be at least 1"),
    (lambda: recomputation.best_length(0), ValueError, "n must be at least 1"),
    (lambda: recomputation.peak_bytes(len, *NOWHERE), ValueError, "does not exist"),
    (lambda: zero.zero_bytes([10], 2, 4), ValueError, "stage must be 0"),
    (lambda: zero.zero_bytes([10], 0, 1), ValueError, "k must be at least 1"),
    (lambda: zero.zero_bytes([10, 0], 2, 1), ValueError, "sizes must be at least 1"),
    (lambda: zero.zero_bytes(5, 2, 1), TypeError, "sizes must be a list"),
    (lambda: sharded(stage=4), ValueError, "stage must be 0"),
    (lambda: sharded(stage=1.0), TypeError, "stage must be a whole number"),
    (lambda: sharded(stage=True), TypeError, "stage must be a whole number"),
    (lambda: sharded([ONE]), TypeError, "layers[0] must be a Layer"),
    (lambda: sharded([NORM, FIRST]), ValueError, "layers[0] (norm) keeps state"),
    (lambda: sharded([Layer("relu", tf.nn.relu)]), ValueError, "must have parameters"),
    (lambda: sharded([FIRST, *EXACT]), TypeError, "layers must have one dtype"),
    (lambda: sharded([WHOLE_NUMBERS]), TypeError, "layers must be floating point"),
    (lambda: sharded(devices=TWO[0]), TypeError, "devices must be a list"),
    (lambda: sharded(devices=NOWHERE), ValueError, "CPU:99' does not exist"),
    (lambda: sharded(store=tf.int32), TypeError, "store must be floating point"),
    (lambda: sharded(devices=GRID, axis="rows"), ValueError, "axis must be one of"),
    *(
        (lambda change=change, s=s: updated(s, change), error, said)
        for s in ZERO
        for change, error, said in BAD_GRADIENTS
    ),
    (lambda: updated(0, lr=-1), ValueError, "lr must be positive"),
    (lambda: by_adam(g=THREE), ValueError, "one shape"),
    (lambda: by_adam(g=WIDE), TypeError, "m, v, g must have one dtype"),
    (lambda: by_adam(t=0), ValueError, "t must be at least 1"),
    (lambda: by_adam(t=tf.constant(0)), ValueError, "t must be at least 1"),
    (lambda: by_adam(lr=0.0), ValueError, "lr must be positive"),
    (lambda: split(9), ValueError, "letters has 10 entries for 9 params"),
    (lambda: gpt(blocks=0), ValueError, "blocks must be at least 1"),
    (lambda: gpt(vocabulary=1.5), TypeError, "vocabulary must be a whole number"),
    (lambda: gpt(tokens=0), ValueError, "tokens must be at least 1"),
    (lambda: gpt(width=0), ValueError, "width must be at least 1"),
    (lambda: gpt(heads=4), ValueError, "heads must divide width 6, got 4"),
    (lambda: transformer.gpt_cuts(0), ValueError, "blocks must be at least 1"),
]
REFUSED = [*PARALLEL, *NETWORK, *CUTS, *MEMORY]


@pytest.mark.parametrize(
    "call, error, said", REFUSED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_it_is_refused_by_name_and_nothing_has_changed(call, error, said):
    before = values(HELD)
    refused(call, error, said)
    assert same(values(HELD), before)
    assert LOG.messages == []
