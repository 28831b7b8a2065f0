"""What the chapters' functions refuse, but for the steps.

What a check tells apart is in test_checks.py: a row here says that it is called.
"""

import math
import secrets
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from manygpu import scratch
from manygpu.processes.door import Deadline, Door
from manygpu.scratch import Delayed, ErrorFeedback, LocalAdam, LossScale, Meeting
from manygpu.scratch.beyond import many_workers, step_hangs, worker_dies
from manygpu.scratch.engine import mixed_precision as mixed
from manygpu.scratch.in_step.asynchronous import arrivals
from manygpu.scratch.splitting.batch_normalization import synced_batch_norm
from manygpu.scratch.splitting.hybrid_meshes import MeshShards, joined_shards
from manygpu.scratch.splitting.network import Layer
from manygpu.scratch.splitting.pipeline import dense_layers
from manygpu.scratch.splitting.program_over_ranks import Mesh, Spread
from manygpu.scratch.splitting.sharded_state import adam_change
from manygpu.scratch.start.three_ways_to_split import (
    by_data,
    by_layer,
    by_network,
    dense,
)
from tests import refusals
from tests.refusals import good
from tests.unit.helpers import EIGHT

TWO, SECRET = EIGHT[:2], secrets.token_bytes(32)
X, y = tf.ones((3, 28, 28, 1)), tf.constant([3, 1, 0])
PARAMS = scratch.init_params()
ONE, NAN, INF = tf.ones(2), math.nan, math.inf
WHOLE_PARAMS = [tf.cast(p, tf.int32) for p in PARAMS]


# The start.

WAY = {"X": X, "params": PARAMS, "devices": TWO}
BAD_WAY = (
    ("params", [PARAMS[:7]], ValueError, "params must hold 8 tensors, got 7"),
    ("devices", [[]], ValueError, "devices is empty"),
    ("devices", [["/device:CPU:99"]], ValueError, "devices[0] '/device:CPU:99' does"),
    ("X", [np.zeros((2, 28, 28))], ValueError, "X must have rank 4"),
)


def in_a_graph(devices: list) -> tf.Tensor:
    """Of a batch whose number of samples is known when it runs."""
    any_batch = [tf.TensorSpec((None, 28, 28, 1))]
    way = tf.function(lambda X: by_data(X, PARAMS, devices), any_batch, autograph=False)
    return way.get_concrete_function()


START = [
    *good(scratch.init_params, seed=3, scale=None, dtype=tf.float32).refuses(
        ("dtype", [tf.int32], TypeError, "dtype must be floating point, got int32"),
        ("scale", [-1], ValueError, "scale must be finite and not negative,"),
        ("scale", ["He"], TypeError, "scale must be a number or None, got 'He'"),
        ("seed", [0.5], TypeError, "seed must be a whole number, got 0.5"),
    ),
    *good(scratch.he_normal, shape=(3, 2), seed=(0, 0)).refuses(
        ("shape", [(0, 3)], ValueError, "shape must be at least 1, got 0")
    ),
    *good(scratch.lenet, X=X, params=PARAMS).refuses(
        ("X", [X[:0]], ValueError, "X holds no images"),
        ("params", [PARAMS[:7]], ValueError, "params must hold 8 tensors, got 7"),
        ("params", [WHOLE_PARAMS], TypeError, "params[0] must be floating point"),
        ("params", [PARAMS[::-1]], ValueError, "params[0] must have shape (3, 3, 1, 2"),
    ),
    *good(scratch.cross_entropy, logits=tf.ones((3, 10)), y=y).refuses(
        ("y", [tf.constant([3, 10, 0])], ValueError, "y must hold labels from 0 to 9"),
        ("logits", [tf.ones((3, 10), tf.int32)], TypeError, "logits must be floating"),
    ),
    *good(
        scratch.sgd, params=[tf.Variable(ONE)] * 2, grads=[ONE, -ONE], lr=0.1
    ).refuses(
        ("grads", [[ONE], [ONE] * 3], ValueError, "grads must hold 2 gradients, one a"),
        ("lr", [0, 10**400], ValueError, "lr must be positive"),
        ("lr", [tf.constant([0.1, 0.2])], TypeError, "lr must be one number"),
    ),
    *(
        row
        for way in (by_network, by_layer, by_data)
        for row in good(way, **WAY).refuses(*BAD_WAY)
    ),
    *good(by_layer, **WAY).refuses(
        ("devices", [EIGHT[:1] * 11], ValueError, "devices has 11 entries for 10 clas")
    ),
    *good(by_data, **WAY).refuses(
        ("devices", [EIGHT[:4]], ValueError, "devices has 4 entries for 3 samples")
    ),
    *good(in_a_graph, devices=TWO).refuses(
        ("devices", [TWO], ValueError, "X must have a known number of samples")
    ),
]

# The engine.

GRADS = [[ONE], [ONE]]
ENGINE = [
    *good(scratch.keras_lenet, params=PARAMS).refuses(
        ("params", [PARAMS[:7]], ValueError, "params must hold 8 tensors, got 7")
    ),
    *good(LossScale, scale=8, patience=3).refuses(
        ("scale", ["8", True], TypeError, "scale must be a number, got"),
        ("scale", [0.0, -8.0, 1000.0, 2.0**101], ValueError, "scale must be a power o"),
        ("scale", [INF, NAN], ValueError, "scale must be a power of two"),
        ("patience", [0], ValueError, "patience must be at least 1"),
    ),
    *good(mixed.all_finite, tensors=[ONE]).refuses(
        ("tensors", [[]], ValueError, "tensors is empty"),
        ("tensors", [[tf.range(3)]], TypeError, "tensors[0] must be floating"),
    ),
    *good(mixed.unscale, grads=[ONE], scale=2.0).refuses(
        ("grads", [[]], ValueError, "grads is empty"),
        ("scale", [0.0], ValueError, "scale must be positive and finite"),
    ),
    *good(
        mixed.mixed_gradients, X=X, y=y, params=PARAMS, dtype=tf.float16, scale=1.0
    ).refuses(("scale", [0.0], ValueError, "scale must be positive and finite")),
    *good(mixed.lenet_stored, X=X, params=PARAMS).refuses(
        ("X", [X[..., 0]], ValueError, "X must have rank 4"),
        ("params", [PARAMS[:4]], ValueError, "params must hold 8"),
    ),
    *good(mixed.allreduce_stored, grads=GRADS, dtype=tf.float16).refuses(
        ("grads", [[[ONE], [None]]], TypeError, "grads[1][0] must be a tensor"),
        ("dtype", [tf.int32], TypeError, "dtype must be floating point, got int32"),
    ),
    *good(
        mixed.step_if_finite, state=LossScale(), finite=True, update=lambda: None
    ).refuses(
        ("finite", ["no"], TypeError, "finite must be one truth value, got 'no'")
    ),
]

# Split models.

M, V = tf.Variable(ONE), tf.Variable(ONE)
IMAGES = tf.ones((4, 2))


def synced(h: tf.Tensor) -> Spread:
    own, mesh = [], Mesh(TWO[:1], data=1)
    for v in (1.0, 0.0, 0.0, 1.0):
        own.append(Spread(mesh, [tf.Variable([v, v])]))
    return synced_batch_norm("data", Spread(mesh, [h]), *own)


def chained(*shapes: tuple[int, ...]) -> object:
    params = [tf.Variable(tf.zeros(shape)) for shape in shapes]
    pairs = zip(params[::2], params[1::2], strict=True)
    return MeshShards([Layer("one", dense, own) for own in pairs], Mesh(TWO, data=2))


def joined_part(part: int) -> list:
    ranks = Mesh(TWO, data=2)
    return joined_shards(MeshShards(dense_layers([7, 6, 10]), ranks), part=part)


SPLITTING = [
    *good(adam_change, m=M, v=V, g=ONE, t=1).refuses(
        ("beta_1", [1], ValueError, "beta_1 must be below 1"),
        ("beta_2", [1], ValueError, "beta_2 must be below 1"),
        ("epsilon", [-1], ValueError, "epsilon must be finite and not"),
    ),
    *good(scratch.zero_bytes, sizes=[8], k=2, stage=1).refuses(
        ("param", [-2], ValueError, "param must be"),
        ("state", ["a"], TypeError, "state must be a number"),
    ),
    *good(synced, h=IMAGES).refuses(
        ("h", [tf.cast(IMAGES, tf.uint8)], TypeError, "h[0] must be float"),
        ("h", [tf.cast(IMAGES, tf.float64)], TypeError, "gamma is float32, but h is f"),
    ),
    *good(lambda shapes: chained(*shapes), shapes=[(7, 6), (6,), (6, 4), (4,)]).refuses(
        ("shapes", [[(7, 6), (6,), (5, 4), (4,)]], ValueError, "takes 5 inputs, no mu"),
        ("shapes", [[(7, 6), (5,), (6, 4), (4,)]], ValueError, "and biases of 6 numbe"),
        ("shapes", [[(7,)] * 4], ValueError, "layers[0] (one) must have a weight"),
    ),
    *good(joined_part, part=1).refuses(
        ("part", [2, -1], ValueError, "part must be from 0 to 1, got {!r}")
    ),
]

# Rarely in step, or never.


def late_scale(scale: float) -> list:
    """Scaled back in a graph, by a scale that is known when it runs."""
    return tf.function(mixed.unscale, autograph=False)([ONE], tf.constant(scale))


def server(rate: Callable = lambda staleness: 1.0) -> scratch.ParameterServer:
    return scratch.ParameterServer([tf.zeros(2)], EIGHT[0], 2, 9, rate)


def asked() -> dict:
    made = server()
    return {"server": made, "ticket": made.pull(0), "grads": [-ONE]}


NEVER = [{"worker": 7}, {"number": 1}, {"version": 1}]
FALSE = [asked()["ticket"]._replace(**change) for change in NEVER]


def replicas(*shapes: tuple) -> list:
    return [[tf.Variable(tf.zeros(s)) for s in shapes or ((2,), (3,))] for _ in TWO]


def pushed_when_stale(rate: Callable) -> None:
    """Rank 0's ticket comes one update late."""
    made = server(rate)
    ticket, other = made.pull(0), made.pull(1)
    made.push(other, [-ONE])
    try:
        made.push(ticket, [-ONE])
    finally:  # what is refused has changed nothing
        is_one = bool(rate(1) > 0)
        assert made.ledger.version == len(made.log) == 1 + is_one
        assert np.all(np.isfinite(made.params[0]))


def meeting() -> dict:
    made = Meeting(replicas(), TWO)
    for own in made.device_params:
        own[0].assign([1.0, 2.0])  # somebody has moved
    return {"meeting": made, "samples": [1, 2], "reduce": None}


def met(meeting: Meeting, samples: list, reduce: Callable | None) -> None:
    meeting.meet(samples, *([reduce] if reduce else []))


def of_first(X, y, params):
    return tf.reduce_sum(params[0]), [tf.ones_like(p) for p in params]


ALONE = replicas()
STEP = {"X": X, "y": y, "device_params": ALONE, "devices": TWO, "of": of_first}
STEP |= {"updates": [partial(scratch.sgd, own, lr=0.1) for own in ALONE]}
LIKE = [[ONE, tf.ones((3, 2))] for _ in TWO]
WIDE = [[tf.cast(g, tf.float64) for g in own] for own in LIKE]
WHOLE = [[tf.range(2)] for _ in TWO]
HOLLOW = [[tf.ones((0, 3))] for _ in TWO]
UNLIKE = [[tf.zeros((2, 3))], [tf.zeros((3, 2))]]


def compressed(grads: list, log: scratch.MessageLog) -> object:
    return scratch.gather_compressed(scratch.OneBit(), log)(grads)


def kept(grads: list, reduce: Callable) -> object:
    return reduce(grads)


LOSSY = scratch.gather_compressed(scratch.OneBit())
STATEFUL = (
    lambda: ErrorFeedback(LOSSY, LIKE),
    lambda: scratch.LowRank(LIKE, 2),
    lambda: Delayed([[tf.Variable(p) for p in own] for own in LIKE], 1),
)
BAD_MODELS = (
    ("device_params", [[]], ValueError, "device_params is empty"),
    ("device_params", [WHOLE], TypeError, "device_params[0][0] must be floating"),
    ("device_params", [UNLIKE], ValueError, "device_params[1][0] is float32 of shape"),
)
IN_STEP = [
    *good(late_scale, scale=1.0).refuses(
        ("scale", [0.0, INF], tf.errors.InvalidArgumentError, "scale must be positive")
    ),
    *good(scratch.Ledger, workers=2, bound=0).refuses(
        ("bound", [-1, 1.5, True, "2"], ValueError, "bound must be 0, 1, 2"),
        ("workers", [0], ValueError, "workers must be at least 1"),
    ),
    *good(arrivals, seconds=lambda worker, number: 1.0, workers=2, updates=3).refuses(
        ("updates", [0], ValueError, "updates must be at least 1"),
        ("seconds", [lambda *_: -1.0], ValueError, "end must not be before start"),
    ),
    *good(server().pull, worker=1).refuses(
        ("worker", [-1, 2], ValueError, "worker must be below 2, got {!r}")
    ),
    *good(lambda server, **named: server.push(**named), asked).refuses(
        ("grads", [[-ONE] * 2], ValueError, "grads must hold 1 gradients"),
        ("ticket", FALSE, ValueError, "was never handed out: pull one"),
    ),
    *good(pushed_when_stale, rate=lambda staleness: 1.0).refuses(
        (
            "rate",
            [lambda stale: 1.0 - stale, lambda stale: tf.constant(1 - 2.0 * stale)],
            ValueError,
            "rate must be positive",
        ),
    ),
    *good(
        lambda order: server().replay(order, lambda ticket: [-ONE]), order=[0, 1]
    ).refuses(
        (
            "order",
            [[0] * 10],
            ValueError,
            "must have at most 9 updates, got more",
        )
    ),
    *good(
        scratch.run_workers,
        lambda: {"server": server(), "computes": [lambda ticket: [-ONE]] * 2},
    ).refuses(
        ("computes", [[len]], ValueError, "computes has 1 entries for 2 workers")
    ),
    *good(met, meeting).refuses(
        ("samples", [[1]], ValueError, "samples has 1 entries for 2 devices"),
        ("samples", [[1, 0]], ValueError, "samples[1] must be at least 1"),
        ("reduce", [lambda g: g[:1]], ValueError, "grads has 1 devices, but what is k"),
    ),
    *good(Meeting, device_params=replicas(), devices=TWO, lr=1.0, momentum=0.9).refuses(
        ("lr", [0.0], ValueError, "lr must be positive"),
        ("momentum", [1], ValueError, "momentum must be below 1"),
        ("devices", [EIGHT[:3]], ValueError, "device_params has 2 replicas for 3"),
    ),
    *good(scratch.local_step, **STEP).refuses(
        ("updates", [STEP["updates"][:1]], ValueError, "updates must have 2 entries, "),
        ({"X": X[:1], "y": y[:1]}, ValueError, "for 1 samples"),
        ("devices", [EIGHT[:3]], ValueError, "device_params has 2 replicas for 3"),
    ),
    *good(Delayed, device_params=replicas(), steps=2).refuses(
        ("steps", [0], ValueError, "steps must be at least 1"),
        ("device_params", [[]], ValueError, "device_params is empty"),
    ),
    *good(LocalAdam, params=replicas()[0], lr=0.001).refuses(
        ("lr", [-1.0], ValueError, "lr must be positive"),
        ("params", [[]], ValueError, "params is empty"),
    ),
    *good(
        kept, lambda: {"grads": LIKE[0], "reduce": LocalAdam(replicas((2,), (3, 2))[0])}
    ).refuses(("grads", [[ONE]], ValueError, "grads must hold 2 gradients")),
    *good(scratch.TopK, share=0.1).refuses(
        ("share", [1.1], ValueError, "share must be from 0 to 1")
    ),
    *good(compressed, lambda: {"grads": LIKE, "log": scratch.MessageLog()}).refuses(
        ("grads", [[LIKE[0], LIKE[1][:1]]], ValueError, "grads[1] holds 1 gradients"),
        ("grads", [WHOLE], TypeError, "must be floating point, got int32"),
        ("grads", [HOLLOW], ValueError, "must hold numbers, got shape (0, 3)"),
    ),
    *(
        row
        for make in STATEFUL
        for row in good(
            kept, lambda make=make: {"grads": LIKE, "reduce": make()}
        ).refuses(
            ("grads", [LIKE[:1]], ValueError, "grads has 1 devices, but what is kept"),
            ("grads", [WIDE], TypeError, "grads[0][0] is float64, what is kept float3"),
        )
    ),
    *good(ErrorFeedback, lossy=None, device_params=LIKE).refuses(*BAD_MODELS),
    *good(scratch.LowRank, device_params=LIKE, rank=1).refuses(
        *BAD_MODELS,
        ("rank", [0], ValueError, "rank must be at least 1"),
    ),
]

# Beyond one process.


def opened(**arguments) -> None:
    Door(**arguments).close()


def joined(many: int) -> None:
    door = Door(0, 1, SECRET)
    try:
        many_workers.join_ring(door, [door.address] * many, 60.0).close()
    finally:
        door.close()


def called(host: str) -> None:
    door = Door(0, 2, SECRET)
    try:
        many_workers.call_on((host, 9), door, Deadline(0.1))
    finally:
        door.close()


def noted(steps: list) -> None:
    recorder = step_hangs.FlightRecorder(0)
    next(recorder.steps(steps), None)
    recorder.note(finite=True)


def diagnosed(ranks: list[int]) -> object:
    return step_hangs.diagnose([step_hangs.FlightLog(rank) for rank in ranks])


ELSEWHERE = ["0.0.0.0", "192.168.0.7", "::", "example.org"]
TIMES = {"work": 1, "save_time": 1, "restart_time": 1, "mean_life": 1}
HUGE = np.broadcast_to(np.float32(0), many_workers.MOST_BYTES)
BEYOND = [
    *good(Deadline, timeout_s=0.1).refuses(
        ("timeout_s", [0], ValueError, "timeout_s must be above 0 and f")
    ),
    *good(
        many_workers.header_of, rank=0, message=0, like=np.ones(2, np.float16)
    ).refuses(
        ("like", [np.array([1j])], TypeError, "real numbers, got complex128: cast"),
        ("like", [np.array([True])], TypeError, "real numbers, got bool"),
        ("like", [np.array(["a"])], TypeError, "real numbers, got <U1"),
        ("like", [HUGE], ValueError, f"holds {len(HUGE)} bytes, got 4294967296: cut"),
    ),
    *good(opened, rank=0, size=2, secret=SECRET, host="127.0.0.1").refuses(
        ("rank", [5], ValueError, "rank must be 0 to 1, got {!r}"),
        ("secret", ["s" * 32], TypeError, "secret must be bytes, got str"),
        ("secret", [b"abc"], ValueError, "secret must have at least 16 bytes, got 3"),
        ("host", ELSEWHERE, ValueError, "host must be 127.0.0.1, got {!r} without"),
    ),
    *good(called, host="127.0.0.1").refuses(
        ("host", ELSEWHERE, ValueError, "host must be 127.0.0.1, got {!r} without")
    ),
    *good(joined, many=1).refuses(
        ("many", [2], ValueError, "addresses must name 1 doors, got 2")
    ),
    *good(step_hangs.FlightRecorder, rank=np.int64(0), keep=2).refuses(
        ("keep", [0], ValueError, "keep must be at least 1"),
        ("rank", [-1], ValueError, "rank must be 0 to"),
    ),
    *good(noted, steps=[[1]]).refuses(
        ("steps", [[]], RuntimeError, "no step is under way: note it inside of")
    ),
    *good(diagnosed, ranks=[1, 0]).refuses(
        ("ranks", [[], [1], [0, 0], [0, 2]], ValueError, "one log of each rank from 0")
    ),
    *good(worker_dies.Checkpoint, step=0, state={"w": np.ones(2)}).refuses(
        ("step", [-1], ValueError, "step must be"),
        ("step", [1.0, True], TypeError, "step must be a whole number"),
        ("step", [2**64], ValueError, "step must be below 2**64"),
        ("state", [{"w": [1.0]}], TypeError, "state['w'] must be a plain array"),
    ),
    *good(worker_dies.goodput, **(TIMES | {"work": np.array([1.0, 2.0])})).refuses(
        *((name, [NAN], ValueError, f"{name} must be") for name in TIMES),
        ("mean_life", [0], ValueError, "mean_life must be above 0"),
        ("save_time", [-1], ValueError, "save_time must be at least 0"),
        ("restart_time", [-1], ValueError, "restart_time must be at least 0"),
    ),
    *good(worker_dies.young_daly, save_time=1.0, mean_life=100.0).refuses(
        ("save_time", [0.0], ValueError, "save_time must be positive"),
        ("mean_life", [0.0], ValueError, "mean_life must be positive"),
    ),
    *good(
        worker_dies.launch_again, start=lambda: None, progress=lambda: 0, patience=1
    ).refuses(("patience", [0], ValueError, "patience must be at least 1")),
]
REFUSED = [*START, *ENGINE, *SPLITTING, *IN_STEP, *BEYOND]
# A call that is good only elsewhere: in eager code, on a machine with that host.
NO_GOOD = (in_a_graph, called)


@pytest.mark.parametrize("refusal", REFUSED, ids=str)
def test_it_is_refused_by_name_and_nothing_has_changed(refusal):
    refusals.is_refused(refusal)


@pytest.mark.parametrize(
    "refusal", [r for r in refusals.goods(REFUSED) if r.call not in NO_GOOD], ids=str
)
def test_the_rest_of_the_call_is_right(refusal):
    refusals.is_taken(refusal)


def test_a_bad_number_to_keep_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="keep must be"):
        worker_dies.save_checkpoint(tmp_path, worker_dies.Checkpoint(1, {}), 0)
    assert list(tmp_path.iterdir()) == []
