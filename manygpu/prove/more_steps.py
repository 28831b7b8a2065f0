"""More of the book's steps: members, meetings, a server, an engine, other layers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Queue
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import manygpu
from manygpu.measure import shares
from manygpu.prove.adapters import Parts, Variables, of_variables
from manygpu.prove.adapters.engine import mirrored
from manygpu.prove.adapters.variables import MOST_DEVICES
from manygpu.prove.run_again import check_run_again
from manygpu.prove.small import (
    LR,
    Started,
    dense,
    draw,
    replicas_of,
    subject,
    together,
)
from manygpu.prove.subject import ADAM, MOMENTUM, RISING, Subject
from manygpu.scratch.beyond import worker_dies
from manygpu.scratch.beyond.many_workers import (
    Deadline,
    Ring,
    check_header,
    member_step,
)
from manygpu.scratch.data_parallel.large_batches import GradualWarmup
from manygpu.scratch.data_parallel.many_devices import (
    allreduce_gradients,
    shard_gradients,
    split_batch,
    take_step,
)
from manygpu.scratch.data_parallel.parameters_and_devices import get_params
from manygpu.scratch.engine.mirrored_strategy import mirrored_step
from manygpu.scratch.engine.mixed_precision import (
    LossScale,
    all_finite,
    allreduce_stored,
    mixed_gradients,
    step_if_finite,
    unscale,
)
from manygpu.scratch.in_step.asynchronous import ParameterServer
from manygpu.scratch.in_step.meeting_seldom import LocalAdam, Meeting, local_step
from manygpu.scratch.in_step.sending_less import (
    ErrorFeedback,
    LowRank,
    TopK,
    gather_compressed,
)
from manygpu.scratch.splitting.batch_normalization import (
    batch_norm,
    synced_batch_norm,
    synced_batch_norm_gradients,
)
from manygpu.scratch.splitting.network import (
    Layer,
    Model,
    gradients_of,
    kept_pass,
    loss_gradient,
)
from manygpu.scratch.splitting.program_over_ranks import Mesh, Spread, spread_out
from manygpu.scratch.splitting.recomputation import recomputed, recomputed_layers
from manygpu.scratch.splitting.transformer import (
    BLOCK_CUT_TOKENS,
    BlockParams,
    block_gradients,
    transformer_block,
)
from manygpu.scratch.start.one_device import gradients, init_params, sgd


class Neighbour(NamedTuple):
    """A neighbour in a ring of threads: its frames wait in a queue, not in a socket."""

    rank: int
    frames: Queue

    def send(self, header: bytes, numbers: np.ndarray, deadline: Deadline) -> None:
        self.frames.put((header, numbers))

    def receive(self, expected: bytes, deadline: Deadline) -> np.ndarray:
        header, numbers = self.frames.get(timeout=deadline.left())
        check_header(header, expected)
        return numbers


def ring_of_threads(size: int) -> list[Ring]:
    """Return the places of all members of a ring; queue i leads from i - 1 to i."""
    queues = [Queue() for _ in range(size)]
    rings = []
    for rank in range(size):
        right = (rank + 1) % size
        left = Neighbour((rank - 1) % size, queues[rank])
        peers = [left, Neighbour(right, queues[right])]
        rings.append(Ring(rank, size, peers, timeout_s=5.0))
    return rings


def as_members(layers, devices) -> Started:
    """The members of a ring, each in a thread, with a copy of its own."""
    model = Model(layers)
    rings, replicas = ring_of_threads(len(devices)), replicas_of(layers, devices)

    def member(X, y, lr, ring):
        with tf.device(devices[ring.rank]):
            return member_step(ring, X, y, replicas[ring.rank], lr, model.gradients)

    def take(X, y, lr):
        with ThreadPoolExecutor(len(rings)) as threads:
            losses = list(threads.map(partial(member, X, y, lr), rings))
        return losses[0]

    return Started(take, lambda: replicas, sum(replicas, []))


def met_at_once(layers, devices) -> Started:
    """Each device takes a step alone, and all meet behind it."""
    replicas = replicas_of(layers, devices)
    meeting, of = Meeting(replicas, devices), Model(layers).gradients

    def take(X, y, lr):
        updates = [partial(sgd, own, lr=lr) for own in replicas]
        loss = local_step(X, y, replicas, devices, updates, of)
        meeting.meet(shares(len(y), len(devices)))
        return loss

    return Started(take, lambda: replicas, sum(replicas, []))


def local_adam(layers, devices) -> Started:
    """A device whose averages never leave it; Adam."""
    model = Model(layers)
    (own,) = replicas_of(layers, devices)
    adam = LocalAdam(own, LR)

    def take(X, y, lr):
        return local_step(X, y, [own], devices, [adam], model.gradients)

    return Started(take, lambda: [own], own, lambda: {"t": [adam.t]})


def by_server(layers, devices) -> Started:
    """A parameter server whose workers are in step: each adds its shard's gradients."""
    model, rate = Model(layers), tf.Variable(0.0, dtype=tf.float64)
    bounds = {"updates": 10**6, "rate": lambda staleness: rate, "bound": 0}
    server = ParameterServer(model.params, devices[0], len(devices), **bounds)

    def take(X, y, lr):
        rate.assign(lr / len(y))
        shards = [*zip(*split_batch(X, y, devices), strict=True)]

        def compute(ticket):
            with tf.device(devices[ticket.worker]):
                of_shard = model.gradients(*shards[ticket.worker], ticket.params)
            return of_shard[1]

        server.replay(range(len(devices)), compute)

    return Started(take, lambda: [server.params], server.params)


def by_engine(layers, devices) -> Started:
    """The book's step of a `MirroredStrategy`."""
    strategy, of = mirrored(devices), Model(layers).gradients
    with strategy.scope():
        params = [tf.Variable(p) for p in Model(layers).params]
    step = mirrored_step(strategy, params, of)

    def take(X, y, lr):
        shards = split_batch(X, y, devices)
        X, y = (
            strategy.experimental_distribute_values_from_function(
                lambda replica, own=own: own[replica.replica_id_in_sync_group]
            )
            for own in shards
        )
        return step(X, y, tf.constant(lr, tf.float64))

    def copies():
        each = [strategy.experimental_local_results(p) for p in params]
        return [list(own) for own in zip(*each, strict=True)]

    return Started(take, copies, params)


def loss_scaled(layers, devices) -> Started:
    """A scaled loss, whose step is left out if any device's gradients are not finite.

    All in float32, which has no need of it: so the step is that of plain SGD.
    """
    replicas, scale = replicas_of(layers, devices), LossScale(8.0)
    model = Model(layers).outputs
    of = partial(mixed_gradients, dtype=tf.float32, scale=scale.scale, model=model)

    def take(X, y, lr):
        shards = split_batch(X, y, devices)
        losses, grads = shard_gradients(*shards, replicas, devices, of)
        finite = all_finite(sum(grads, []))
        sums = [unscale(own, scale.scale) for own in allreduce_gradients(grads)]
        update = partial(take_step, replicas, sums, lr, len(y))
        step_if_finite(scale, finite, update)
        return tf.add_n(losses) / len(y)

    def kept():
        return {"scale": [scale.scale], "good": [scale.good]}

    return Started(take, lambda: replicas, sum(replicas, []), kept)


def recomputed_in_pairs(layers, devices) -> Started:
    """Two layers at a time, computed once more on the way back."""
    check_run_again(recomputed)
    of = Model(recomputed_layers(layers, 2)).gradients
    return together(layers, devices, of=of)


def stored_sums(layers, devices) -> Started:
    """Gradients that are sent in a dtype of their own."""
    return together(
        layers, devices, partial(allreduce_stored, dtype=layers[0].params[0].dtype)
    )


def fed_back(layers, devices, lossy) -> Started:
    """What a lossy sum leaves out comes with the next one."""
    replicas = replicas_of(layers, devices)
    feedback = ErrorFeedback(lossy(replicas), replicas)
    return together(layers, devices, feedback)


def warmed_up(layers, devices) -> Started:
    """A rate that rises; the judge knows which one each step must have."""
    started, taken = together(layers, devices), []

    def take(X, y, lr):
        step = len(taken)  # the second rate is past its peak in step 1
        rate = GradualWarmup(lr, 4 * lr, 4)(step) * GradualWarmup(1, 2, 1)(2 * step)
        taken.append(started.take(X, y, lr=rate))
        return taken[-1]

    return started._replace(take=take)


# A layer that is normalized over the batch, between two dense ones.
NORM_SHAPES = ((6, 8), (8,), (8,), (8,), (8, 5), (5,))


class NormedModel(NamedTuple):
    """Replicas of that model, each with averages of its own.

    norms: the layer in the middle, one a device.
    """

    devices: list[str]
    replicas: list[Variables]
    norms: list[Layer]


def normed_step(model: NormedModel, X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Take a step whose statistics are those of all shards; return the mean loss."""
    X_shards, y_shards = split_batch(X, y, model.devices)
    firsts = []
    for device, own, part in zip(model.devices, model.replicas, X_shards, strict=True):
        with tf.device(device):
            firsts.append(kept_pass(dense, tf.identity(part), own[:2]))
    places = model.norms, model.devices
    normed = synced_batch_norm([one.output for one in firsts], *places)
    losses, behind = [], []
    for one, own, labels in zip(normed, model.replicas, y_shards, strict=True):
        with tf.device(one.output.device):
            last = kept_pass(lambda h, V, c: h @ V + c, one.output, own[4:])
            loss, up = loss_gradient(last.output, labels)
            behind.append(gradients_of(last, up))
        losses.append(loss)
    ups = [own[0] for own in behind]
    ups, of_norms = synced_batch_norm_gradients(normed, ups, *places)
    grads = []
    for first, up, (_, *of_last) in zip(firsts, ups, behind, strict=True):
        with tf.device(up.device):
            grads.append(gradients_of(first, up, first.params) + of_last)
    sums = [
        [*own[:2], *of_norm, *own[2:]]
        for own, of_norm in zip(allreduce_gradients(grads), of_norms, strict=True)
    ]
    take_step(model.replicas, sums, LR, len(y))
    return tf.add_n(losses) / len(y)


def with_synced_norm(params: Variables, devices: list[str]) -> Parts:
    """Start a training of that model; its averages are what it keeps."""
    replicas, norms = [get_params(params, device) for device in devices], []
    for device, own in zip(devices, replicas, strict=True):
        with tf.device(device):
            averages = [tf.Variable(tf.zeros_like(own[3])) for _ in range(2)]
        norms.append(Layer("norm", batch_norm, tuple(own[2:4]), tuple(averages)))
    model = NormedModel(devices, replicas, norms)

    def kept():
        both = zip(*(one.state for one in norms), strict=True)
        return dict(zip(("mean", "variance"), map(list, both), strict=True))

    return Parts(partial(normed_step, model), lambda: replicas, kept)


def normed_subject(name: str) -> Subject:
    """Return the subject of the model with a normalization."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) / 2 for shape in NORM_SHAPES]
    return of_variables(with_synced_norm, None, weights, draw, LR, name=name)


# A transformer's block on sequences of 6 tokens; 3 heads of size 2, 6 hidden numbers.
TOKENS, WIDTH = 6, 4
BLOCK_SHAPES = BlockParams(
    *[(WIDTH,)] * 2,
    *[(WIDTH, 3, 2)] * 3,
    (3, 2, WIDTH),
    *[(WIDTH,)] * 2,
    (WIDTH, 6),
    (6, WIDTH),
)


def asked_of(y: tf.Tensor) -> tf.Tensor:
    """Return by what each output counts in the loss: (tokens, sequences, width)."""
    table = np.random.default_rng(1).normal(size=(TOKENS, 5, WIDTH))
    return tf.gather(tf.constant(table), y, axis=1)


def by_tokens(X: tf.Tensor) -> tf.Tensor:
    """Return (samples, tokens, width) as (tokens, samples, width)."""
    return tf.transpose(X, (1, 0, 2))


def block_reference(X: tf.Tensor, y: tf.Tensor, params: Variables) -> tuple:
    """Return the summed loss of a block on one device, and its gradients."""
    with tf.GradientTape() as tape:
        out = transformer_block(by_tokens(X), *params)
        loss = tf.reduce_sum(out * asked_of(y))
    return loss, tape.gradient(loss, params)


def with_cut_tokens(params: Variables, devices: list[str]) -> Parts:
    """Start a training of a block whose heads and tokens are cut over the devices."""
    mesh, cut = Mesh(devices, layerwise=len(devices)), BLOCK_CUT_TOKENS
    spread = [
        spread_out(p, {"layerwise": kind}, mesh)
        for p, kind in zip(params, cut.letters, strict=True)
    ]
    own = zip(*(one.parts for one in spread), strict=True)
    parts = [get_params(list(p), d) for p, d in zip(own, devices, strict=True)]

    def over_ranks():
        """What the ranks hold of each parameter."""
        return [list(held) for held in zip(*parts, strict=True)]

    def take(X, y):
        given = by_tokens(X), asked_of(y)
        x, asked = (spread_out(t, {"layerwise": cut.takes}, mesh) for t in given)
        held = [Spread(mesh, one) for one in over_ranks()]
        output, _, grads = block_gradients(cut, x, asked, held)
        grads = [list(g) for g in zip(*(one.parts for one in grads), strict=True)]
        take_step(parts, grads, LR, len(y))
        pairs = zip(output.parts, asked.parts, strict=True)
        return tf.add_n([tf.reduce_sum(o * a) for o, a in pairs]) / len(y)

    def copies():
        whole = [
            [tf.concat(one, kind.dim)] * len(devices) if kind.letter == "S" else one
            for one, kind in zip(over_ranks(), cut.letters, strict=True)
        ]
        return [list(of_rank) for of_rank in zip(*whole, strict=True)]

    return Parts(take, copies)


def block_subject(name: str) -> Subject:
    """Return the subject of the block."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) / 2 for shape in BLOCK_SHAPES]

    def drawn(samples, seed):
        own = np.random.default_rng(seed)
        X = own.normal(size=(samples, TOKENS, WIDTH))
        return X, own.integers(0, 5, samples)

    about = {"name": name, "names": BlockParams._fields, "most_devices": 3}
    return of_variables(with_cut_tokens, block_reference, weights, drawn, LR, **about)


def with_own_batches(params: Variables, devices: list[str], size: int) -> Parts:
    """Start a training that draws its batches itself, in its second epoch.

    Of 7 samples, `size` a step, which are not those that the judge draws.
    """
    X, y = np.random.default_rng(0).random((7, 28, 28, 1)), np.arange(7)
    training, drawn = worker_dies.Training(X, y, size), [y[:size]]
    training.params = params
    training.step, training.epoch, training.used = 4, 1, size % 6

    def sums(X, y, params):
        drawn.append(np.array(y))  # of 7 samples with 7 labels, these tell which
        return gradients(X, y, params)

    def take(*ignored):
        return worker_dies.momentum_step(training, sums)

    def kept():
        now = worker_dies.state_of(training)
        own = {name: [a] for name, a in now.items() if "param" not in name}
        return own | {"step": [np.array(training.step)], "drawn": drawn[-1:]}

    def save():
        return drawn[-1], training.step, worker_dies.state_of(training)

    def resume(saved):
        drawn.append(saved[0])
        worker_dies.restore(training, *saved[1:])

    return Parts(take, lambda: [training.params], kept, save, resume)


def own_batches(name: str, size: int) -> Subject:
    """Return the subject of a training that draws its batches itself."""
    manygpu.devices(MOST_DEVICES, quiet=True)  # before a variable starts TensorFlow
    weights = init_params(dtype=tf.float64)
    about = {"name": name, "rule": MOMENTUM, "most_devices": 1}
    about["apart"] = {"drawn": "each step has its own", "noise": "it goes on"}
    start = partial(with_own_batches, size=size)
    return of_variables(start, None, weights, draw, 0.02, **about)


BY_NAME: dict[str, Callable[[str], Subject]] = {
    "members": partial(subject, as_members, most_devices=3),
    "met at once": partial(subject, met_at_once),
    "local Adam": partial(subject, local_adam, rule=ADAM, most_devices=1),
    "server": partial(subject, by_server),
    "engine": partial(subject, by_engine, most_devices=3),
    "loss scale": partial(subject, loss_scaled, dtype=np.float32, guarded=True),
    "stored sums": partial(subject, stored_sums, dtype=np.float32),
    "recomputed": partial(subject, recomputed_in_pairs),
    "error feedback": partial(
        subject, partial(fed_back, lossy=lambda _: gather_compressed(TopK(1.0)))
    ),
    "full rank": partial(
        subject, partial(fed_back, lossy=lambda replicas: LowRank(replicas, rank=8))
    ),
    "warm-up": partial(subject, warmed_up, rule=RISING, lr=0.25),
    "own batches": partial(own_batches, size=2),
    "own epochs": partial(own_batches, size=6),
    "synced norm": normed_subject,
    "cut tokens": block_subject,
}
