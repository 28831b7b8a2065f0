"""What the chapters' functions refuse, but for the steps.

What a check tells apart is in test_checks.py: a row here says that it is called.
"""

from __future__ import annotations

import math
import secrets
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from manygpu.scratch import (
    Delayed,
    ErrorFeedback,
    Ledger,
    LocalAdam,
    LowRank,
    Meeting,
    MessageLog,
    OneBit,
    ParameterServer,
    TopK,
    arrivals,
    cross_entropy,
    gather_compressed,
    init_params,
    keras_lenet,
    lenet,
    local_step,
    run_workers,
    sgd,
)
from manygpu.scratch.beyond import many_workers, step_hangs, worker_dies
from manygpu.scratch.engine import mixed_precision as mixed
from manygpu.scratch.start.three_ways_to_split import by_data, by_layer, by_network
from tests import refusals
from tests.refusals import of
from tests.unit.helpers import EIGHT

TWO, SECRET = EIGHT[:2], secrets.token_bytes(32)
X, y = tf.ones((3, 28, 28, 1)), tf.constant([3, 1, 0])
PARAMS = init_params()
ONE, NAN, INF = tf.ones(2), math.nan, math.inf


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
    *of(
        init_params,
        {"seed": 3, "scale": None, "dtype": tf.float32},
        ("dtype", [tf.int32], TypeError, "dtype must be floating point, got int32"),
        ("scale", [NAN, -1, INF], ValueError, "scale must be finite and not negative,"),
        ("scale", ["He"], TypeError, "scale must be a number or None, got 'He'"),
        ("seed", [0.5, "a"], TypeError, "seed must be a whole number, got {!r}"),
    ),
    *of(
        lenet,
        {"X": X, "params": PARAMS},
        ("X", [X[:0]], ValueError, "X holds no images"),
        ("X", [X[..., 0]], ValueError, "X must have rank 4"),
        ("params", [PARAMS[:7]], ValueError, "params must hold 8 tensors, got 7"),
        (
            {"params": [tf.cast(p, tf.int32) for p in PARAMS]},
            TypeError,
            "params[0] must be floating point, got int32",
        ),
        ({"params": PARAMS[::-1]}, ValueError, "params[0] must have shape (3, 3, 1, 2"),
    ),
    *of(
        cross_entropy,
        {"logits": tf.ones((3, 10)), "y": y},
        ("y", [tf.constant([0.0, 1.0, 2.0])], TypeError, "y must hold whole numbers"),
    ),
    *of(
        sgd,
        {"params": [tf.Variable(ONE)] * 2, "grads": [ONE, -ONE], "lr": 0.1},
        ("grads", [[ONE], [ONE] * 3], ValueError, "grads must hold 2 gradients, one a"),
        ("grads", [[ONE, None]], TypeError, "grads[1] must be a tensor, got NoneType"),
        ("lr", [0], ValueError, "lr must be positive"),
        ("lr", ["a"], TypeError, "lr must be a number"),
    ),
    *(row for way in (by_network, by_layer, by_data) for row in of(way, WAY, *BAD_WAY)),
    *of(
        by_layer,
        WAY,
        ("devices", [EIGHT[:1] * 11], ValueError, "devices has 11 entries for 10 clas"),
    ),
    *of(
        by_data,
        WAY,
        ("devices", [EIGHT[:4]], ValueError, "devices has 4 entries for 3 samples"),
    ),
    *of(
        in_a_graph,
        {"devices": TWO},
        ("devices", [TWO], ValueError, "X must have a known number of samples"),
    ),
]

# The engine.

GRADS = [[ONE], [ONE]]
ENGINE = [
    *of(
        keras_lenet,
        {"params": PARAMS},
        ("params", [PARAMS[:7]], ValueError, "params must hold 8 tensors, got 7"),
    ),
    *of(
        mixed.LossScale,
        {"scale": 8, "patience": 3},
        ("scale", ["8", None, True, [8.0]], TypeError, "scale must be a number, got"),
        ("scale", [0.0, -8.0, 1000.0, 2.0**101], ValueError, "scale must be a power o"),
        ("scale", [INF, NAN], ValueError, "scale must be a power of two"),
        ("patience", [0], ValueError, "patience must be at least 1"),
        ("patience", [1.5], TypeError, "patience must be a whole number"),
    ),
    *of(
        mixed.all_finite,
        {"tensors": [ONE]},
        ("tensors", [[]], ValueError, "tensors is empty"),
        ("tensors", [ONE], TypeError, "tensors must be a list"),
        ("tensors", [[None]], TypeError, "tensors[0] must be a tensor"),
    ),
    *of(
        mixed.unscale,
        {"grads": [ONE], "scale": 2.0},
        ("grads", [[]], ValueError, "grads is empty"),
        ("grads", [ONE], TypeError, "grads must be a list"),
        ("grads", [[None]], TypeError, "grads[0] must be a tensor"),
        ("scale", [0.0, -1.0, NAN, INF], ValueError, "scale must be positive and fin"),
    ),
    *of(
        mixed.mixed_gradients,
        {"X": X, "y": y, "params": PARAMS, "dtype": tf.float16, "scale": 1.0},
        ("scale", [0.0, -1.0, NAN, INF], ValueError, "scale must be positive and fin"),
    ),
    *of(
        mixed.lenet_stored,
        {"X": X, "params": PARAMS},
        ("X", [X[..., 0]], ValueError, "X must have rank 4"),
        ("params", [PARAMS[:4]], ValueError, "params must hold 8"),
    ),
    *of(
        mixed.allreduce_stored,
        {"grads": GRADS, "dtype": tf.float16},
        ("grads", [[]], ValueError, "grads is empty"),
        ("grads", [[[ONE], [None]]], TypeError, "grads[1][0] must be a tensor"),
        ("grads", [tf.ones((2, 2))], TypeError, "grads must be"),
    ),
]

# Rarely in step, or never.


def late_scale(scale: float) -> list:
    """Scaled back in a graph, by a scale that is known when it runs."""
    return tf.function(mixed.unscale, autograph=False)([ONE], tf.constant(scale))


def server(rate=lambda staleness: 1.0) -> ParameterServer:
    return ParameterServer([tf.zeros(2)], EIGHT[0], 2, 9, rate)


def asked() -> dict:
    made = server()
    return {"server": made, "ticket": made.pull(0), "grads": [-ONE]}


ASKED = asked()
NEVER = [{"worker": 7}, {"number": 1}, {"version": 1}]
FALSE = [ASKED["ticket"]._replace(**change) for change in NEVER]


def replicas(*shapes: tuple) -> list:
    return [[tf.Variable(tf.zeros(s)) for s in shapes or ((2,), (3,))] for _ in TWO]


def pushed_when_stale(rate) -> None:
    """Rank 0's ticket comes one update late."""
    made = server(rate)
    ticket, other = made.pull(0), made.pull(1)
    made.push(other, [-ONE])
    try:
        made.push(ticket, [-ONE])
    finally:  # what is refused has changed nothing
        assert made.ledger.version == len(made.log) == 1 + (rate(1) > 0)


def meeting() -> dict:
    made = Meeting(replicas(), TWO)
    for own in made.device_params:
        own[0].assign([1.0, 2.0])  # somebody has moved
    return {"meeting": made, "samples": [1, 2], "reduce": None}


def met(meeting, samples, reduce) -> None:
    meeting.meet(samples, *([reduce] if reduce else []))


def of_first(X, y, params):
    return tf.reduce_sum(params[0]), [tf.ones_like(p) for p in params]


ALONE = replicas()
STEP = {"X": X, "y": y, "device_params": ALONE, "devices": TWO, "of": of_first}
STEP |= {"updates": [partial(sgd, own, lr=0.1) for own in ALONE]}
LIKE = [[ONE, tf.ones((3, 2))] for _ in TWO]
WHOLE = [[tf.range(2)] for _ in TWO]
HOLLOW = [[tf.ones((0, 3))] for _ in TWO]


def compressed(grads, log) -> object:
    return gather_compressed(OneBit(), log)(grads)


def kept(grads, reduce) -> object:
    return reduce(grads)


LOSSY = gather_compressed(OneBit())
IN_STEP = [
    *of(
        late_scale,
        {"scale": 1.0},
        (
            "scale",
            [0.0, -1.0, NAN, INF],
            tf.errors.InvalidArgumentError,
            "scale must be positive",
        ),
    ),
    *of(
        Ledger,
        {"workers": 2, "bound": 0},
        ("bound", [-1, 1.5, True, "2"], ValueError, "bound must be 0, 1, 2"),
        ("workers", [0], ValueError, "workers must be at least 1"),
    ),
    *of(
        arrivals,
        {"seconds": lambda worker, number: 1.0, "workers": 2, "updates": 3},
        ("updates", [0], ValueError, "updates must be at least 1"),
        ("seconds", [lambda *_: -1.0], ValueError, "end must not be before start"),
    ),
    *of(
        server().pull,
        {"worker": 1},
        ("worker", [-1, 2], ValueError, "worker must be below 2, got {!r}"),
    ),
    *of(
        lambda server, **named: server.push(**named),
        asked,
        ("grads", [[-ONE] * 2], ValueError, "grads must hold 1 gradients"),
        ("ticket", FALSE, ValueError, "was never handed out: pull one"),
    ),
    *of(
        pushed_when_stale,
        {"rate": lambda staleness: 1.0},
        ("rate", [lambda stale: 1.0 - stale], ValueError, "rate must be positive"),
    ),
    *of(
        lambda order: server().replay(order, lambda ticket: [-ONE]),
        {"order": [0, 1]},
        ("order", [[0] * 10], ValueError, "order goes on after 9 updates: cut it"),
    ),
    *of(
        run_workers,
        lambda: {"server": server(), "computes": [lambda ticket: [-ONE]] * 2},
        ("computes", [[len]], ValueError, "computes has 1 entries for 2 workers"),
    ),
    *of(
        met,
        meeting,
        ("samples", [[1]], ValueError, "samples has 1 entries for 2 devices"),
        ("samples", [[1, 0]], ValueError, "samples[1] must be at least 1"),
        ("samples", [[1, 1.5]], TypeError, "samples[1] must be a whole number"),
        ("reduce", [lambda g: g[:1]], ValueError, "grads has 1 devices, but what is k"),
    ),
    *of(
        Meeting,
        {"device_params": replicas(), "devices": TWO, "lr": 1.0, "momentum": 0.9},
        ("lr", [0.0], ValueError, "lr must be positive"),
        ("momentum", [1], ValueError, "momentum must be below 1"),
        ("momentum", [-0.1], ValueError, "momentum must be from 0 to 1"),
        ("momentum", ["0.9"], TypeError, "momentum must be a number"),
        ("devices", [EIGHT[:3]], ValueError, "device_params has 2 replicas for 3"),
    ),
    *of(
        local_step,
        STEP,
        ("updates", [STEP["updates"][:1]], ValueError, "updates has 1 entries, device"),
        ({"X": X[:1], "y": y[:1]}, ValueError, "for 1 samples"),
        ("devices", [EIGHT[:3]], ValueError, "device_params has 2 replicas for 3"),
    ),
    *of(
        Delayed,
        {"device_params": replicas(), "steps": 2},
        ("steps", [0, -1], ValueError, "steps must be at least 1"),
        ("steps", [1.5, True], TypeError, "steps must be a whole number"),
        ("device_params", [[]], ValueError, "device_params is empty"),
    ),
    *of(
        LocalAdam,
        {"params": replicas()[0], "lr": 0.001},
        ("lr", [-1.0], ValueError, "lr must be positive"),
    ),
    *of(
        kept,
        lambda: {"grads": LIKE[0], "reduce": LocalAdam(replicas((2,), (3, 2))[0])},
        ("grads", [[ONE]], ValueError, "grads must hold 2 gradients"),
    ),
    *of(
        TopK,
        {"share": 0.1},
        ("share", [-0.1, 1.1], ValueError, "share must be from 0 to 1"),
        ("share", ["all", True], TypeError, "share must be a number from 0 to 1"),
    ),
    *of(
        compressed,
        lambda: {"grads": LIKE, "log": MessageLog()},
        ("grads", [[]], ValueError, "grads is empty"),
        ("grads", [[LIKE[0], LIKE[1][:1]]], ValueError, "grads[1] holds 1 gradients"),
        ("grads", [WHOLE], TypeError, "must be floating point, got int32"),
        ("grads", [HOLLOW], ValueError, "must hold numbers, got shape (0, 3)"),
    ),
    *(
        row
        for make in (lambda: ErrorFeedback(LOSSY, LIKE), lambda: LowRank(LIKE, 2))
        for row in of(
            kept,
            lambda make=make: {"grads": LIKE, "reduce": make()},
            ("grads", [LIKE[:1]], ValueError, "grads has 1 devices, but what is kept"),
            (
                {"grads": [[tf.cast(g, tf.float64) for g in LIKE[0]]] * 2},
                TypeError,
                "grads[0][0] is float64, what is kept float32",
            ),
        )
    ),
    *of(
        ErrorFeedback,
        {"lossy": None, "device_params": LIKE},
        ("device_params", [[]], ValueError, "device_params is empty"),
        ("device_params", [WHOLE], TypeError, "device_params[0][0] must be floating"),
    ),
    *of(
        LowRank,
        {"device_params": LIKE, "rank": 1},
        ("device_params", [[]], ValueError, "device_params is empty"),
        ("device_params", [WHOLE], TypeError, "device_params[0][0] must be floating"),
        ("rank", [0], ValueError, "rank must be at least 1"),
        ("rank", [1.5], TypeError, "rank must be a whole number"),
    ),
]

# Beyond one process.


def opened(**arguments) -> None:
    many_workers.Door(**arguments).close()


def joined(many: int) -> None:
    door = many_workers.Door(0, 1, SECRET)
    try:
        many_workers.join_ring(door, [door.address] * many, 60.0).close()
    finally:
        door.close()


def called(host: str) -> None:
    door = many_workers.Door(0, 2, SECRET)
    try:
        many_workers.call_on((host, 9), door, many_workers.Deadline(0.1))
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
BEYOND = [
    *of(
        many_workers.Deadline,
        {"timeout_s": 0.1},
        ("timeout_s", [0, -1, NAN, INF], ValueError, "timeout_s must be above 0 and f"),
    ),
    *of(
        many_workers.header_of,
        {"rank": 0, "message": 0, "like": np.ones(2, np.float16)},
        ("like", [np.array([1j])], TypeError, "real numbers, got complex128: cast"),
        ("like", [np.array([True])], TypeError, "real numbers, got bool"),
        ("like", [np.array(["a"])], TypeError, "real numbers, got <U1"),
        (
            {"like": np.broadcast_to(np.float32(0), many_workers.MOST_BYTES)},
            ValueError,
            f"a frame holds {many_workers.MOST_BYTES} bytes, got 4294967296: cut it",
        ),
    ),
    *of(
        opened,
        {"rank": 0, "size": 2, "secret": SECRET, "host": "127.0.0.1"},
        ("rank", [5, -1], ValueError, "rank must be 0 to 1, got {!r}"),
        ("rank", ["a", 1.0, True], TypeError, "rank must be a whole number, got {!r}"),
        ("size", [0], ValueError, "size must be at least 1, got 0"),
        ("secret", ["s" * 32], TypeError, "secret must be bytes, got str"),
        ("secret", [b"abc"], ValueError, "secret must have at least 16 bytes, got 3"),
        ("host", ELSEWHERE, ValueError, "host must be 127.0.0.1, got {!r} without"),
    ),
    *of(
        called,
        {"host": "127.0.0.1"},
        ("host", ELSEWHERE, ValueError, "host must be 127.0.0.1, got {!r} without"),
    ),
    *of(
        joined,
        {"many": 1},
        ("many", [2], ValueError, "addresses must name 1 doors, got 2"),
    ),
    *of(
        many_workers.worker_batches,
        {"files": ["a", "b"], "rows": 2, "index": 0, "of": 2},
        ("of", [3], ValueError, "need at least one file per worker, got 2 files"),
    ),
    *of(
        step_hangs.FlightRecorder,
        {"rank": np.int64(0), "keep": 2},
        ("keep", [0], ValueError, "keep must be at least 1"),
        ("keep", [1.5], TypeError, "keep must be a whole number"),
        ("rank", [-1], ValueError, "rank must be 0 to"),
        ("rank", ["a"], TypeError, "rank must be a whole number"),
    ),
    *of(
        noted,
        {"steps": [[1]]},
        ("steps", [[]], RuntimeError, "no step is under way: note it inside of"),
    ),
    *of(
        diagnosed,
        {"ranks": [1, 0]},
        (
            "ranks",
            [[], [1], [0, 0], [0, 2]],
            ValueError,
            "logs must hold one log of each rank from 0, got [",
        ),
    ),
    *of(
        worker_dies.Checkpoint,
        {"step": 0, "state": {"w": np.ones(2)}},
        ("step", [-1], ValueError, "step must be"),
        ("step", [1.0, True], TypeError, "step must be a whole number"),
        ("step", [2**64], ValueError, "step must be below 2**64"),
        ("state", [{"w": [1.0]}], TypeError, "state['w'] must be a plain array"),
        ("state", [{3: np.ones(2)}], TypeError, "state must have texts as names"),
    ),
    *of(
        worker_dies.goodput,
        TIMES | {"work": np.array([1.0, 2.0])},
        *((name, [True], TypeError, f"{name} must be real numbers") for name in TIMES),
        *((name, [NAN, INF], ValueError, f"{name} must be") for name in TIMES),
        ("work", [0, np.array([1.0, NAN])], ValueError, "work must be above 0"),
        ("mean_life", [0], ValueError, "mean_life must be above 0"),
        ("save_time", [-1], ValueError, "save_time must be at least 0"),
        ("restart_time", [-1], ValueError, "restart_time must be at least 0"),
    ),
    *of(
        worker_dies.young_daly,
        {"save_time": 1.0, "mean_life": 100.0},
        ("save_time", [0.0], ValueError, "save_time must be positive"),
        ("mean_life", [0.0], ValueError, "mean_life must be positive"),
    ),
    *of(
        worker_dies.launch_again,
        {"start": lambda: None, "progress": lambda: 0, "patience": 1},
        ("patience", [0, -1], ValueError, "patience must be at least 1"),
        ("patience", [True, 1.5], TypeError, "patience must be a whole number"),
    ),
]
REFUSED = [*START, *ENGINE, *IN_STEP, *BEYOND]
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


@pytest.mark.parametrize("keep, error", [(0, ValueError), (1.5, TypeError)])
def test_a_bad_number_to_keep_is_refused_before_anything_is_written(
    tmp_path, keep, error
):
    with pytest.raises(error, match="keep must be"):
        worker_dies.save_checkpoint(tmp_path, worker_dies.Checkpoint(1, {}), keep)
    assert list(tmp_path.iterdir()) == []
