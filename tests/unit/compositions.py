"""Four small models, the ways to split them, and what must hold of each cell.

Nothing here asks the book's code for what it expects: gradients come from one tape on
one device, slices from `np.array_split`, and bytes from letters and shapes. What is
wrong is said by the judge of `manygpu.prove`.
"""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf

from manygpu import scratch
from manygpu.prove.ranks import RankGradients, misses
from manygpu.scratch import COLUMNS, ROWS, WHOLE, Layer
from manygpu.scratch.splitting import hybrid_meshes as meshes
from manygpu.scratch.splitting import program_over_ranks as programs
from manygpu.scratch.splitting.layerwise import in_pairs
from manygpu.scratch.splitting.layerwise_lenet import LENET_CUTS
from manygpu.scratch.splitting.pipeline import gpipe, one_forward_one_backward
from manygpu.scratch.splitting.smaller_bubble import interleaved, zero_bubble
from manygpu.scratch.splitting.transformer import (
    BLOCK,
    BLOCK_CUT_TOKENS,
    EMBEDDING_CUT_TOKENS,
)
from manygpu.scratch.splitting.what_a_tensor_means import I, Kind, P, R, S
from manygpu.scratch.start.one_device import init_params
from manygpu.trainings.contract import Ranks
from tests.unit.helpers import EIGHT, in_graph, places, runs_on

SAMPLES, SIZE = 7, 8  # no axis divides the batch; bytes of a number
PRODUCTS = ("MatMul", "BatchMatMulV2", "Conv2D", "Einsum")


class Net(NamedTuple):
    """A model, a batch for it, what one device makes of it, and how it may be cut."""

    layers: list[Layer]
    X: tf.Tensor
    y: tf.Tensor
    outputs: Callable[[tf.Tensor], tf.Tensor]
    cuts: dict[str, list]

    @property
    def params(self) -> list[tf.Variable]:
        params = [p for one in self.layers for p in one.params]
        return list({id(p): p for p in params}.values())


# The transformer is the book's GPT, whose matrix of words is at both ends.

WIDTH, HEADS, WORDS, TOKENS = 8, 4, 11, 5
LETTERS = {COLUMNS: (S(-1),), ROWS: (S(-2), I), WHOLE: (I,)}
# What moves in a layer: its input or its output, from one letter to another.
MOVED = {
    COLUMNS: [("in", I, R)],
    ROWS: [("out", P, I)],
    BLOCK: [("in", I, R), ("in", P, I)] * 2,
    BLOCK_CUT_TOKENS: [("in", S(-3), R), ("in", P, S(-3))] * 2,
    EMBEDDING_CUT_TOKENS: [("out", R, S(-3))],
}
RINGS = {"PR": 2, "PI": 2, "PS": 1, "SR": 1, "SI": 1}  # all but one chunk, or twice


def drawn(*shape: int, scale: float = 1.0, seed: int = 0) -> tf.Variable:
    return tf.Variable(scale * np.random.default_rng(seed).normal(size=shape))


def transformer() -> Net:
    layers = scratch.gpt_layers(2, WORDS, TOKENS, WIDTH, HEADS, "float64")
    X, y = np.random.default_rng(1).integers(0, WORDS, (2, SAMPLES, TOKENS))
    cuts = {
        "whole": [WHOLE] * 4,
        "tensor": scratch.gpt_cuts(2),
        "tokens": scratch.gpt_cuts(2, cut_tokens=True),
    }
    return Net(layers, tf.constant(X), tf.constant(y), in_order(layers), cuts)


def in_order(layers: list[Layer]) -> Callable[[tf.Tensor], tf.Tensor]:
    def outputs(h: tf.Tensor) -> tf.Tensor:
        for one in layers:
            h = one.apply(h, *one.params)
        return h

    return outputs


def labels(classes: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(3).integers(0, classes, SAMPLES))


def lenet_of_12() -> Net:
    params = init_params(dtype=tf.float64)
    params[6:] = [drawn(params[6].shape[0], 12, scale=0.1), drawn(12, scale=0.1)]
    layers = scratch.lenet_layers(params)
    X = tf.constant(np.random.default_rng(2).random((SAMPLES, 28, 28, 1)))
    cuts = {"whole": [WHOLE] * 4, "tensor": list(LENET_CUTS)}
    return Net(layers, X, labels(12), lambda h: lenet(h, *params), cuts)


def lenet(h, W1, b1, W2, b2, W3, b3, W4, b4) -> tf.Tensor:
    """By TensorFlow's own functions."""
    for W, b in ((W1, b1), (W2, b2)):
        h = tf.nn.relu(tf.nn.conv2d(h, W, 1, "VALID") + b)
        h = tf.nn.avg_pool2d(h, 2, 2, "VALID")
    h = tf.nn.relu(tf.reshape(h, (h.shape[0], -1)) @ W3 + b3)
    return h @ W4 + b4


def chain() -> Net:
    layers = scratch.dense_chain(8, 6, "float64")
    for i, one in enumerate(layers):  # no bias is 0
        one.params[1].assign(0.3 + drawn(6, scale=0.1, seed=i))
    X = tf.constant(np.random.default_rng(2).normal(size=(SAMPLES, 6)))
    cuts = {"whole": [WHOLE] * 8, "tensor": in_pairs(layers)}
    return Net(layers, X, labels(6), in_order(layers), cuts)


def keras() -> Net:
    """A reader's, whose reference is the Keras model itself."""
    L, options = tf.keras.layers, {"dtype": "float64"}
    widths = [(8, "tanh"), (7, "relu"), (6, "tanh"), (8, "relu"), (5, None)]
    dense = [L.Dense(n, activation=f, **options) for n, f in widths]
    model = tf.keras.Sequential([tf.keras.Input((6,), dtype="float64"), *dense])
    for i, v in enumerate(model.trainable_variables):
        v.assign(drawn(*v.shape, scale=0.5, seed=i))
    layers = scratch.keras_layers(model)
    X = tf.constant(np.random.default_rng(2).normal(size=(SAMPLES, 6)))
    cuts = {"whole": [WHOLE] * 5, "tensor": in_pairs(layers)}
    return Net(layers, X, labels(5), model, cuts)


NETS = {
    "LeNet, 12 classes": lenet_of_12(),
    "dense chain": chain(),
    "transformer": transformer(),
    "Keras": keras(),
}


# The strategies.


class Row(NamedTuple):
    """A strategy: the mesh, how layers are cut, the plan, and what is sharded."""

    axes: dict[str, int]
    cut: str = "whole"
    micro: int = 1
    schedule: Callable = one_forward_one_backward
    stages: int | None = None
    sharded: str | None = None
    zero: int | None = None  # the stage of a ZeroState


two = partial(interleaved, devices=2)
ROWS_OF = {
    "data": Row({"data": 3}, micro=2),
    "network": Row({"pipeline": 2}),
    "GPipe": Row({"pipeline": 3}, micro=3, schedule=gpipe),
    "1F1B": Row({"pipeline": 3}, micro=3),
    "interleaved": Row({"pipeline": 2}, micro=3, schedule=two, stages=4),
    "zero bubble": Row({"pipeline": 3}, micro=3, schedule=zero_bubble),
    "tensor": Row({"layerwise": 2}, "tensor"),
    "cut tokens": Row({"layerwise": 3}, "tokens"),
    "ZeRO 1": Row({"data": 3}, zero=1),
    "ZeRO 2": Row({"data": 3}, zero=2),
    "ZeRO 3": Row({"data": 3}, sharded="data"),
    "ZeRO 3, gathered twice": Row({"data": 3}, zero=3),
    "HSDP 2 x 2": Row({"copies": 2, "data": 2}, sharded="data"),
    "data x tensor": Row({"data": 2, "layerwise": 2}, "tensor"),
    "data x pipe x tensor": Row(
        {"data": 2, "pipeline": 2, "layerwise": 2}, "tensor", micro=2
    ),
    "data x pipe x tokens, zero bubble": Row(
        {"data": 2, "pipeline": 2, "layerwise": 2}, "tokens", 2, zero_bubble
    ),
}
# The axes that exist, for all pairs and triples: their name on a mesh, and how it cuts.
AXES: dict[str, tuple[str, dict]] = {
    "copies": ("copies", {}),
    "shards": ("shards", {"sharded": "shards"}),
    "state": ("data", {"zero": 1}),
    "stages": ("pipeline", {}),
    "slices": ("layerwise", {"cut": "tensor"}),
    "tokens": ("layerwise", {"cut": "tokens"}),
}
BOTH = "slices and tokens both cut a layer along layerwise"
NO_TOKENS = "a sample has no tokens"
SHARDED = "shards and state both say which optimizer state a rank has"
STATE_ALONE = "a ZeroState takes only axes that cut the samples"


def combined() -> Iterator[tuple[str, Row | str]]:
    """All pairs and triples of axes, or why there is none."""
    for count in (2, 3):
        for names in combinations(AXES, count):
            sizes = {AXES[name][0]: 2 for name in names}
            options: dict[str, Any] = {}
            for name in names:
                options |= AXES[name][1]
            parts = 2 ** len({"copies", "shards"} & set(names))
            micro = 1 if parts == 4 or "state" in names else 2
            row = Row(sizes, micro=micro, **options)
            yield " x ".join(names), unbuilt(set(names)) or row


def unbuilt(names: set[str]) -> str:
    """Why axes can't be combined, or ""."""
    if {"slices", "tokens"} <= names:
        return BOTH
    if "state" in names and names & {"stages", "slices", "tokens"}:
        return STATE_ALONE
    return SHARDED if {"shards", "state"} <= names else ""


TABLE = ROWS_OF | dict(combined())


def why_not(net: Net, row: Row | str) -> str:
    """Why a cell has no meaning, or ""."""
    if isinstance(row, str):
        return row
    return NO_TOKENS if row.cut not in net.cuts else ""


CELLS = [
    (net, row)
    for net, row in product(NETS, TABLE)
    if not why_not(NETS[net], TABLE[row])
]


# One device.


def summed_loss(net: Net, X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, net.outputs(X))
    return tf.reduce_sum(each)


def alone(net: Net, X: tf.Tensor, y: tf.Tensor) -> tuple[float, list[np.ndarray]]:
    """The loss and its gradients, by one tape."""
    with tf.GradientTape() as tape:
        loss = summed_loss(net, X, y)
    grads = tape.gradient(loss, net.params)
    return float(loss), [tf.convert_to_tensor(g).numpy() for g in grads]


# What must come out, by letters and shapes.


class Meant(NamedTuple):
    """A parameter: its letter along layerwise, its stages, its channels if rows."""

    letter: Kind
    stages: list[int]
    channels: int


class Expected:
    """What a cell must give: who holds which slice, and how many bytes travel."""

    def __init__(self, net: Net, row: Row) -> None:
        self.net, self.row, self.cuts = net, row, net.cuts[row.cut]
        self.p, self.t = row.axes.get("pipeline", 1), row.axes.get("layerwise", 1)
        starts = [j for j, cut in enumerate(self.cuts) if cut != ROWS]
        runs = np.array_split(starts, row.stages or self.p)
        self.edges = [*(int(run[0]) for run in runs), len(self.cuts)]
        self.meant = self.meanings()
        self.shapes = [p.shape for p in net.params]
        self.all = range(len(net.params))

    def stage_of(self, j: int) -> int:
        return sum(edge <= j for edge in self.edges) - 1

    def meanings(self) -> list[Meant]:
        numbers = {id(p): n for n, p in enumerate(self.net.params)}
        found: dict[int, Meant] = {}
        for j, (one, cut) in enumerate(zip(self.net.layers, self.cuts, strict=True)):
            for i, p in enumerate(one.params):
                own = LETTERS.get(cut, cut.letters)
                before = self.net.layers[j - 1].params
                channels = before[0].shape[-1] if cut == ROWS and i == 0 else 0
                n = numbers[id(p)]
                stages = found[n].stages if n in found else []
                stages = [*stages, self.stage_of(j)]
                found[n] = Meant(own[min(i, len(own) - 1)], stages, channels)
        return [found[n] for n in range(len(numbers))]

    def users(self, p: tf.Variable) -> int:
        """How many layers use a parameter."""
        return sum(any(p is q for q in one.params) for one in self.net.layers)

    def indices(self, n: int) -> list[int]:
        """Where along the pipeline a parameter is."""
        return sorted({s % self.p for s in self.meant[n].stages})

    def letter(self, n: int, axis: str) -> Kind:
        if axis == self.row.sharded:
            return S(-1)
        return self.meant[n].letter if axis == "layerwise" else R

    def part(self, n: int, whole: np.ndarray, place: dict[str, int]) -> np.ndarray:
        """What the rank at a place holds of parameter n, cut by NumPy."""
        kind, _, channels = self.meant[n]
        if kind.letter == "S":
            if channels:
                shape = *whole.shape[:-2], -1, channels, whole.shape[-1]
                whole = whole.reshape(shape)
            whole = np.array_split(whole, self.t, kind.dim)[place.get("layerwise", 0)]
            if channels:
                shape = *whole.shape[:-3], whole.shape[-3] * whole.shape[-2], -1
                whole = whole.reshape(shape)
        axis = self.row.sharded
        if axis is None:
            return whole
        return np.array_split(whole.ravel(), self.row.axes[axis])[place[axis]]

    def ranks(self, keys: list[tuple[int, ...]], moved: list, own: list) -> Ranks:
        """Who holds what, and what each rank was moved by and had found."""
        sizes, sharded = self.row.axes, {"data": S(-1)} if self.row.zero else {}
        at = [
            dict(zip(sizes, place, strict=True))
            for place in product(*map(range, sizes.values()))
        ]

        def part(key: tuple[int, ...], whole: list, rank: int) -> np.ndarray:
            if not sharded:
                return self.part(*key, whole[key[0]], at[rank])
            flat = np.concatenate([whole[n].ravel() for n in key])
            return np.array_split(flat, sizes["data"])[at[rank]["data"]]

        letters = {
            key: {a: sharded.get(a, self.letter(key[0], a)).letter for a in sizes}
            for key in keys
        }
        return Ranks(sizes, [self.seen(p) for p in at], letters, part, moved, own)

    def seen(self, place: dict[str, int]) -> list[int]:
        """The samples that the rank at a place computes with."""
        found = []
        for share in np.array_split(np.arange(SAMPLES), self.row.micro):
            for axis, i in place.items():
                if axis not in ("pipeline", "layerwise"):
                    share = np.array_split(share, self.row.axes[axis])[i]
            found += share.tolist()
        return found

    def times(self, n: int, *but: str) -> int:
        """How many copies of a parameter there are along all axes but these."""
        axes = [a for a in self.row.axes if a not in ("pipeline", *but)]
        copied = [a for a in axes if self.letter(n, a).letter != "S"]
        return math.prod(self.row.axes[a] for a in copied)

    def bytes(self) -> dict[str, int]:
        """All bytes along each axis, as the letters foretell."""
        if self.row.zero is not None:
            return self.bytes_of_state()
        found = dict.fromkeys(self.row.axes, 0)
        for n, shape in enumerate(self.shapes):
            for axis, size in self.row.axes.items():
                at = self.indices(n)
                ring = len(at) if axis == "pipeline" else size
                lines = 1 if axis == "pipeline" else len(at)
                if self.letter(n, axis) == R:
                    numbers = math.prod(shape) * self.times(n, axis)
                    found[axis] += 2 * (ring - 1) * lines * numbers
                if axis == self.row.sharded:  # gathered, and scattered: each stage
                    uses = self.row.micro * len(set(self.meant[n].stages))
                    numbers = math.prod(shape) * self.times(n, axis)
                    found[axis] += 2 * (size - 1) * uses * numbers
        if self.t > 1:
            found["layerwise"] += self.within_layers()
        if self.p > 1:
            found["pipeline"] += self.at_cuts()
        return {axis: SIZE * numbers for axis, numbers in found.items()}

    def bytes_of_state(self) -> dict[str, int]:
        """Those of a ZeroState: each parameter is scattered, gathered and summed."""
        found = dict.fromkeys(self.row.axes, 0)
        ranks = math.prod(self.row.axes.values())
        for p, shape in zip(self.net.params, self.shapes, strict=True):
            uses = self.users(p)
            # In 1 after the backward pass, in 2 and 3 for each layer that uses it.
            scatters = 1 if self.row.zero == 1 else uses
            gathers = 2 * uses if self.row.zero == 3 else 1
            numbers = math.prod(shape)
            for axis, size in self.row.axes.items():
                if axis == "data":
                    lines = ranks // size
                    found[axis] += (size - 1) * lines * (scatters + gathers) * numbers
                else:  # the shards of all ranks of a line make the parameter once
                    found[axis] += 2 * (size - 1) * scatters * numbers
        return {axis: SIZE * numbers for axis, numbers in found.items()}

    def sizes(self) -> list[int]:
        """How many numbers go into each layer, and come out of the last."""
        h = self.net.X
        found = [tf.size(h)]
        for one in self.net.layers:
            h = one.apply(h, *one.params)
            found.append(tf.size(h))
        return [int(n) for n in found]

    def within_layers(self) -> int:
        """Numbers that move along layerwise, in layers and in the loss."""
        total, sizes = 0, self.sizes()
        for j, cut in enumerate(self.cuts):
            params = any(one.params for one in self.net.layers[:j])
            for of, source, target in MOVED.get(cut, []):
                wanted = of == "out" or params or self.stage_of(j) > 0
                ways = source.letter + target.letter
                turned = ways[::-1].translate(str.maketrans("RP", "PR"))
                rings = RINGS.get(ways, 0) + RINGS.get(turned, 0) * wanted
                total += rings * (self.t - 1) * sizes[j + (of == "out")]
        if self.cuts[-1] == COLUMNS:  # the largest logit, and two sums, per sample
            total += 2 * (self.t - 1) * 3 * SAMPLES
        return total

    def at_cuts(self) -> int:
        """Numbers that go from stage to stage, and back."""
        total, sizes = 0, self.sizes()
        for s, edge in enumerate(self.edges[1:-1]):
            if s % self.p != (s + 1) % self.p:
                cut = self.cuts[edge - 1]
                whole = cut.gives == I
                total += 2 * sizes[edge] * (self.t if whole else 1)
        return total


# A cell.


class Ran(NamedTuple):
    """What a step on a mesh gave."""

    mesh: scratch.Mesh
    loss: float
    ranks: Ranks
    log: scratch.MessageLog
    devices: set[str]
    apart: list[float]  # other differences from one device


def traced(work: Callable, mesh: scratch.Mesh) -> tuple[Callable, set[str]]:
    """Return some work as one graph, and the devices that compute products in it."""
    work = in_graph(work).get_concrete_function()
    found = [places(work.graph, kind) for kind in PRODUCTS]
    return work, {device for kind in found for device in kind}


def run(expected: Expected, graph: bool = False, limit: float = 0) -> Ran:
    """Take the gradients of a step, eagerly or as one graph.

    limit: of the norm to which their sum over the batch is clipped; 0 for none.
    """
    net, row, own = expected.net, expected.row, []
    mesh, log = scratch.Mesh(EIGHT, **row.axes), scratch.MessageLog()
    options = {"stages": row.stages, "sharded": row.sharded}
    shards = meshes.MeshShards(net.layers, mesh, net.cuts[row.cut], **options)
    total = meshes.sum_gradients

    def noted(shards, grads, send):
        if not graph:
            own.extend({(n,): g.numpy() for n, g in of.items()} for of in grads)
        return total(shards, grads, send)

    def work():
        loss, grads = scratch.mesh_gradients(
            net.X, net.y, shards, mesh, row.micro, row.schedule, log
        )
        if limit:
            norms = meshes.norms_on_mesh(shards, grads)
            grads = meshes.clip_grads(grads, norms, limit)
        return loss, grads

    devices = set(EIGHT[: mesh.count])
    with mock.patch.object(meshes, "sum_gradients", noted):
        if graph:
            work, devices = traced(work, mesh)
        loss, grads = work()
    if not graph:
        for rank, held in enumerate(grads):
            here = mesh.device(rank)
            assert all(runs_on(t, here) for t in [*held, *shards[rank]])
    for rank, held in enumerate(shards.held):
        index = scratch.place_of(mesh, rank).get("pipeline", 0)
        assert [*held] == [n for n in expected.all if index in expected.indices(n)]
    moved = [
        {(n,): g.numpy() for n, g in zip(held, of, strict=True)}
        for held, of in zip(shards.held, grads, strict=True)
    ]
    ranks = expected.ranks(
        [(n,) for n in expected.all], moved, own or [{}] * len(grads)
    )
    return Ran(mesh, float(loss), ranks, log, devices, [])


LR = 0.001  # of Adam


def run_state(expected: Expected, graph: bool = False) -> Ran:
    """Take a step of Adam whose state is sharded; the averages tell the gradients."""
    net, row, held = expected.net, expected.row, []
    mesh, log = scratch.Mesh(EIGHT, **row.axes), scratch.MessageLog()
    state = scratch.ZeroState(net.layers, mesh, row.zero)

    def work():
        return scratch.zero_step(state, net.X, net.y, LR, log)

    devices = set(EIGHT[: mesh.count])
    if graph:
        work, devices = traced(work, mesh)
    loss = work() * SAMPLES
    keys = [tuple(shapes) for shapes in state.vectors.shapes]
    for rank in range(mesh.count):
        spreads = [one for own in state.held for one in own if one]
        assert all(runs_on(one.parts[rank], mesh.device(rank)) for one in spreads)
        moments = [own.m.parts[rank].numpy() for own in state.held]
        grads = [m / (1 - 0.9) * SAMPLES for m in moments]
        held.append(dict(zip(keys, grads, strict=True)))
    grads, apart = alone(net, net.X, net.y)[1], []
    for rank in range(mesh.count):
        copy = scratch.zero_params(state, rank)
        for p, g, found in zip(net.params, grads, copy, strict=True):
            g = g / SAMPLES
            right = p.numpy() - LR * g / (np.abs(g) + 1e-7 / math.sqrt(1 - 0.999))
            apart.append(np.abs(found.numpy() - right).max() / np.abs(right).max())
    ranks = expected.ranks(keys, held, [{}] * mesh.count)
    return Ran(mesh, float(loss), ranks, log, devices, apart)


class Cell(NamedTuple):
    """The worst difference from one device, and all that is wrong, in words."""

    worst: float
    wrong: list[str]
    seconds: float


def examined(net: Net, row: Row, graph: bool = False) -> Cell:
    """Run a cell and compare it with one device."""
    start = time.process_time()
    expected, (loss, whole) = Expected(net, row), alone(net, net.X, net.y)
    ran = (run if row.zero is None else run_state)(expected, graph)
    grads = RankGradients(ran.ranks, whole)
    differences = [abs(ran.loss / loss - 1), *ran.apart, *from_one_device(grads)]
    wrong = sent_otherwise(ran, expected)
    if grads.wrong():
        batches = [(net.X[i : i + 1], net.y[i : i + 1]) for i in range(SAMPLES)]
        wrong += misses(grads, [alone(net, *own)[1] for own in batches])
    if ran.devices != set(EIGHT[: ran.mesh.count]):
        wrong.append(f"products are on {sorted(ran.devices)} only")
    return Cell(max(differences), wrong, time.process_time() - start)


def from_one_device(grads: RankGradients) -> Iterator[float]:
    """How far each array of each rank is from its part of one device's gradient."""
    for rank, held in enumerate(grads.ranks.moved):
        for key, moved in held.items():
            largest = max(np.abs(grads.whole[n]).max() for n in key)
            yield apart(moved, grads.part(key, grads.whole, rank)) / largest


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference; without end if the shapes differ."""
    if one.shape != other.shape:
        return math.inf
    return float(np.abs(one - other).max(initial=0))


def sent_otherwise(ran: Ran, expected: Expected) -> list[str]:
    """Axes along which other bytes travelled than the letters foretell."""
    try:
        seen = scratch.traffic(ran.log, ran.mesh)
    except ValueError as refused:
        return [str(refused)]
    planned = expected.bytes()
    return [
        f"{axis}: {seen[axis] - planned[axis]:+} bytes"
        for axis in seen
        if seen[axis] != planned[axis]
    ]


# A mistake that two files of tests plant.


def scattered_to_the_neighbour():
    """Each rank gets the chunk of the next one."""
    scatter = programs.reduce_scatter

    def broken(data, send, dim=None):
        chunks = scatter(data, send, dim=dim)
        moved = []
        for chunk, own in zip(chunks[1:] + chunks[:1], data, strict=True):
            with tf.device(own.device):
                moved.append(tf.identity(chunk))
        return moved

    return mock.patch.object(programs, "reduce_scatter", broken)
