"""Blocks of the parts `start` and `data-parallel`."""

import given
import numpy as np
import tensorflow as tf

from manygpu.scratch.data_parallel.bookkeeping import EarlyStopping, evaluate
from manygpu.scratch.data_parallel.collectives import (
    all_gather,
    all_to_all,
    dealt,
    reduce_scatter,
    ring_allreduce,
)
from manygpu.scratch.data_parallel.gradient_accumulation import accumulate
from manygpu.scratch.data_parallel.hiding_communication import make_buckets
from manygpu.scratch.data_parallel.large_batches import GradualWarmup
from manygpu.scratch.data_parallel.many_devices import (
    allreduce_gradients,
    shard_gradients,
    split_batch,
    train_batch,
)
from manygpu.scratch.data_parallel.parameters_and_devices import get_params
from manygpu.scratch.data_parallel.trees_and_hierarchy import tree_allreduce
from manygpu.scratch.splitting.network import Model
from manygpu.scratch.start.one_device import gradients, sgd
from manygpu.scratch.start.one_device import lenet as logits_of
from ours.cases import DEVICES, LR, case, flat, layers, lenet, mean_gradients

TWO = DEVICES[:2]


def trained(batches, params, lr: float = LR, of=gradients) -> np.ndarray:
    """Return the parameters after a step of `train_batch` per batch, on two devices."""
    replicas = [get_params(params, device) for device in TWO]
    for X, y in batches:
        train_batch(tf.constant(X), tf.constant(y), replicas, TWO, lr, of=of)
    return flat(replicas[1])


def shard_sums(X, y) -> list[list[tf.Tensor]]:
    """Return each of two devices' gradients of the summed loss of its share."""
    shards = split_batch(tf.constant(X), tf.constant(y), TWO)
    replicas = [get_params(lenet(), device) for device in TWO]
    return shard_gradients(*shards, replicas, TWO)[1]


@case("start/devices", 1)
def devices(found):
    return {"raised": [False, False, True, True]}  # as the comments say


@case("start/one-device", 1)
def one_device(found):
    (X, y), params = given.images(8), lenet()
    own = {"logits": logits_of(tf.constant(X), params)}
    loss, grads = gradients(tf.constant(X), tf.constant(y), params)
    sgd(params, [g / len(y) for g in grads], LR)
    own |= {"loss": loss / len(y), "grads": flat(grads, len(y))}
    return own | {"params": flat(params)}


@case("start/two-devices", 1)
def two_devices(found):
    X, y = given.images(8)
    after = trained([(X, y)], lenet())
    return {"grads": mean_gradients(X, y, lenet())[1], "params": after}


@case("start/three-ways-to-split", 1)
def three_ways(found):
    X, y = given.features(8, 6, 4)
    model = Model(layers(6, 8, 4))
    _, grads = model.gradients(tf.constant(X), tf.constant(y), model.params)
    whole = dict.fromkeys(("ddp", "fsdp", "tp"), flat(grads, 8))
    halves = {"pipeline@0": flat(grads[:2], 8), "pipeline@1": flat(grads[2:], 8)}
    return whole | halves


@case("data-parallel/parameters-and-devices", 1)
def parameters_and_devices(found):
    # The first step with momentum is one without.
    return {"params": trained([given.images(8)], lenet(), 0.1)}


@case("data-parallel/all-reduce", 1)
def all_reduce(found):
    X, y = given.images(7)
    sums = allreduce_gradients(shard_sums(X, y))
    return {f"grads@{rank}": flat(own, 7) for rank, own in enumerate(sums)}


@case("data-parallel/many-devices", 1)
def many_devices(found):
    (X, y), batches = given.images(512), []
    first, second = (found[f"for ours: order@{rank}"] for rank in range(2))
    for start in (0, 128):
        step = slice(start, start + 128)
        batches.append(np.concatenate([first[step], second[step]]))
    return {"params": trained([(X[b], y[b]) for b in batches], lenet())}


@case("data-parallel/float32-parts-ways", 1)
def float32_parts_ways(found):
    # rtol 1.3e-6 lies between 1.2e-6 and 1.5e-6, atol 1e-5 between 0.9e-5 and 1.1e-5
    return {"close": [True, False, True, False], "repeats": True, "switch": True}


@case("data-parallel/why-slower", 1)
def why_slower(found):
    model = Model(layers(6, 8, 4))
    batches = [given.features(8, 6, 4)] * 2
    return {"params": trained(batches, model.params, of=model.gradients)}


@case("data-parallel/collectives", 1)
def collectives(found):
    data = dealt(TWO, list(given.features(2, 6, 2)[0]))
    steps = [ring_allreduce(data)]
    steps.append(reduce_scatter(steps[0]))
    steps.append(all_gather(steps[1]))
    steps.append(all_to_all(steps[2], 0, 0))
    own = enumerate(steps)
    return {f"after {i}@{r}": t for i, ts in own for r, t in enumerate(ts)}


@case("data-parallel/trees-and-hierarchy", 1)
def trees(found):
    sums = tree_allreduce(dealt(TWO, list(given.features(2, 6, 2)[0])))
    return {f"sum@{rank}": own for rank, own in enumerate(sums)}


@case("data-parallel/hiding-communication", 1)
def hiding_communication(found):
    model = Model(layers(*[1000] * 9))
    X, y = (tf.constant(a) for a in given.features(4, 1000, 1000))
    sizes = [8 * p.shape.num_elements() for p in model.params]
    order = [i // 2 for bucket in make_buckets(sizes, 25 * 2**20) for i in bucket]
    shards, replicas = split_batch(X, y, TWO), [model.params] * 2
    _, grads = shard_gradients(*shards, replicas, TWO, model.gradients)
    [sums, _] = allreduce_gradients(grads)
    own = {"grads": flat(sums, 4), "layers": list(dict.fromkeys(order))}
    return own | {"several": True, "small first": True}


@case("data-parallel/gradient-accumulation", 1)
def gradient_accumulation(found):
    # DDP divides the sum by the number of ranks, as the page says below the block.
    X, y = given.images(12)
    _, sums = accumulate(tf.constant(X), tf.constant(y), lenet(), 6)
    return {"grads": flat(sums, 2), "sums of bucket 0": 1}


@case("data-parallel/large-batches", 1)
def large_batches(found):
    return {"rates": GradualWarmup(0.1, 0.4, 5)(tf.range(8))}


@case("data-parallel/critical-batch", 1)
def critical_batch(found):
    X, y = given.images(8)
    sums = shard_sums(X, y)
    own = {f"squares@{r}": (flat(g, 4) ** 2).sum() for r, g in enumerate(sums)}
    return own | {"grads": mean_gradients(X, y, lenet())[1]}


@case("data-parallel/bookkeeping", 1)
def bookkeeping(found):
    X, y = (tf.constant(a) for a in given.images(12))
    validation = [tf.constant(a) for a in given.images(13, seed=2)]
    replicas = [get_params(lenet(), device) for device in TWO]
    stopper, sums = EarlyStopping(2), []
    while not stopper.stop and len(sums) < 20:
        train_batch(X, y, replicas, TWO, LR)
        sums.append(evaluate(*validation, replicas, TWO))
        if stopper.note(float(sums[-1][0]) / 13):
            best = flat(replicas[0])
    own = {"sums": [[float(c) for c in counts] for counts in sums], "best": best}
    return own | {"stops": len(sums) - 1, "orders": True}
