"""Bad input is refused by name, and nothing has changed.

Every training step refuses the same; below, what single functions refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from manygpu.costs import layer_costs
from manygpu.measure import distance
from manygpu.scratch import (
    ErrorFeedback,
    GradualWarmup,
    LocalAdam,
    LossScale,
    LowRank,
    ParameterServer,
    zero_bytes,
)
from manygpu.scratch.beyond.many_workers import worker_batches
from manygpu.scratch.data_parallel.many_devices import train_batch
from manygpu.scratch.data_parallel.parameters_and_devices import get_params
from manygpu.scratch.engine.mixed_precision import (
    all_finite,
    allreduce_stored,
    step_if_finite,
)
from manygpu.scratch.in_step.meeting_seldom import Delayed
from manygpu.scratch.splitting.batch_normalization import (
    batch_norm,
    guide_cnn_layers,
    synced_batch_norm,
)
from manygpu.scratch.splitting.hybrid_meshes import (
    Mesh,
    MeshShards,
    joined_shards,
    mesh_step,
)
from manygpu.scratch.splitting.layerwise import (
    LENET_CUTS,
    LayerShards,
    layerwise_step,
)
from manygpu.scratch.splitting.network import (
    Layer,
    lenet_layers,
    make_stages,
    partitioned_step,
)
from manygpu.scratch.splitting.pipeline import (
    dense_layers,
    one_forward_one_backward,
)
from manygpu.scratch.splitting.running_a_pipeline import pipeline_step
from manygpu.scratch.splitting.sharded_state import ZeroState, adam_change, zero_step
from manygpu.scratch.splitting.smaller_bubble import zero_bubble
from manygpu.scratch.start.one_device import (
    cross_entropy,
    he_normal,
    init_params,
    sgd,
)
from manygpu.scratch.start.three_ways_to_split import dense
from tests.unit.helpers import EIGHT, same, values

TWO, SAMPLES = EIGHT[:2], 12
IMAGE, VECTOR = (28, 28, 1), (7,)


@dataclass(frozen=True)
class Step:
    """A training step on two devices, and all that it may change."""

    take: Callable[[Any, Any, Any], Any]
    state: Sequence[tf.Variable]
    sample: tuple[int, ...] = IMAGE


def data_parallel() -> Step:
    replicas = [get_params(init_params(), d) for d in TWO]
    take = lambda X, y, lr: train_batch(X, y, replicas, TWO, lr)  # noqa: E731
    return Step(take, [p for own in replicas for p in own])


def of_stages(step: Callable, layers: list, sample: tuple = IMAGE) -> Step:
    stages = make_stages(layers, [2], TWO)
    state = [v for s in stages for one in s.layers for v in one.params + one.state]
    return Step(lambda X, y, lr: step(stages, X, y, lr), state, sample)


def network() -> Step:
    def step(stages, X, y, lr):
        return partitioned_step(X, y, stages, lr)

    return of_stages(step, lenet_layers(init_params()))


def network_with_averages() -> Step:
    def step(stages, X, y, lr):
        return partitioned_step(X, y, stages, lr)

    return of_stages(step, guide_cnn_layers())


def pipeline(make: Callable) -> Step:
    plan = make(2, 4)

    def step(stages, X, y, lr):
        return pipeline_step(plan, stages, X, y, lr)

    return of_stages(step, lenet_layers(init_params()))


def layerwise() -> Step:
    shards = LayerShards(lenet_layers(init_params()), TWO, LENET_CUTS)
    take = lambda X, y, lr: layerwise_step(X, y, shards, lr)  # noqa: E731
    return Step(take, [v for own in shards for v in own])


def sharded(stage: int) -> Step:
    state = ZeroState(lenet_layers(init_params()), TWO, stage)
    held = [v for own in state.held for one in own for v in one if v is not None]
    return Step(lambda X, y, lr: zero_step(state, X, y, lr), [*held, state.t])


def mesh(**axes: int) -> Step:
    ranks = Mesh(EIGHT, **axes)
    shards = MeshShards(dense_layers([7, 6, 6, 6, 10]), ranks)
    take = lambda X, y, lr: mesh_step(X, y, shards, ranks, lr)  # noqa: E731
    return Step(take, [v for own in shards for v in own], VECTOR)


STEPS = {
    "data parallel": data_parallel,
    "network": network,
    "network with averages": network_with_averages,
    "1F1B": lambda: pipeline(one_forward_one_backward),
    "zero bubble": lambda: pipeline(zero_bubble),
    "layerwise": layerwise,
    "sharded 0": lambda: sharded(0),
    "sharded 3": lambda: sharded(3),
    "mesh data": lambda: mesh(data=2),
    "mesh of three axes": lambda: mesh(pipeline=2, data=2, layerwise=2),
}
LABELS = np.arange(SAMPLES) % 10


def images(sample: tuple, samples: int = SAMPLES, dtype: Any = np.float32) -> Any:
    numbers = np.arange(samples * int(np.prod(sample))) % 17
    return tf.constant((numbers / 17).reshape((samples, *sample)), dtype)


# What is wrong with X, given what a sample looks like.
BAD_X = {
    "none": lambda s: None,
    "a number": lambda s: 3,
    "text": lambda s: "images",
    "a list": lambda s: [0.5] * SAMPLES,
    "a dataset": lambda s: tf.data.Dataset.from_tensors(images(s)),
    "strings": lambda s: tf.fill((SAMPLES, *s), "a"),
    "truth values": lambda s: tf.ones((SAMPLES, *s), tf.bool),
    "complex": lambda s: tf.ones((SAMPLES, *s), tf.complex64),
    "objects": lambda s: np.full((SAMPLES, *s), None),
    "a scalar": lambda s: tf.constant(1.0),
    "no samples": lambda s: images(s, 0),
    "one sample": lambda s: images(s, 1),
    "one too many": lambda s: images(s, SAMPLES + 1),
    "one too few": lambda s: images(s, SAMPLES - 1),
    "only the first axis": lambda s: tf.ones(SAMPLES),
    "the last axis missing": lambda s: tf.ones((SAMPLES, *s[:-1])),
    "an axis too many": lambda s: tf.ones((SAMPLES, *s, 1)),
    "a larger last axis": lambda s: tf.ones((SAMPLES, *s[:-1], s[-1] + 2)),
    "a larger first axis": lambda s: tf.ones((SAMPLES, s[0] + 1, *s[1:])),
    "an empty axis": lambda s: tf.ones((SAMPLES, *s[:-1], 0)),
}
BAD_Y = {
    "none": None,
    "a number": 3,
    "text": "labels",
    "a list": LABELS.tolist(),
    "floats": tf.constant(LABELS, tf.float32),
    "truth values": tf.constant(LABELS > 3),
    "strings": tf.fill(SAMPLES, "a"),
    "complex": tf.zeros(SAMPLES, tf.complex64),
    "a scalar": tf.constant(3),
    "one-hot": tf.one_hot(LABELS, 10, dtype=tf.int32),
    "a column": tf.constant(LABELS[:, None]),
    "too long": tf.constant(np.append(LABELS, 1)),
    "too short": tf.constant(LABELS[1:]),
    "none at all": tf.zeros(0, tf.int32),
    "below zero": tf.constant(np.where(LABELS == 5, -1, LABELS)),
    "one past the last class": tf.constant(np.where(LABELS == 5, 10, LABELS)),
    "the last one far beyond": tf.constant([*LABELS[:-1], 2**30]),
    "unsigned and wrapped": tf.constant([*LABELS[:-1], 255], tf.uint8),
}
BAD_LR = {
    "none": None,
    "text": "a",
    "true": True,
    "a NumPy truth value": np.bool_(True),
    "a list": [0.1],
    "complex": 0.1j,
    "an array": np.array([0.1, 0.2]),
    "a vector": tf.constant([0.1]),
    "whole tensor": tf.constant(1),
    "zero": 0,
    "negative": -0.1,
    "not a number": float("nan"),
    "infinite": np.inf,
    "beyond float32": 1e40,
    "negative tensor": tf.constant(-0.1),
    "not a number, as a tensor": tf.constant(np.nan),
    "infinite variable": tf.Variable(np.inf),
    "negative NumPy": np.float32(-1),
}
CASES = [("X", name) for name in BAD_X] + [("y", name) for name in BAD_Y]
CASES += [("lr", name) for name in BAD_LR]
# What a compiled step learns only when it runs.
LATE = [("y", name) for name in list(BAD_Y)[-4:-1]]
LATE += [("lr", "negative tensor"), ("lr", "not a number, as a tensor")]


def bad_input(step: Step, argument: str, name: str) -> dict[str, Any]:
    """X, y, lr, one of which is wrong."""
    good = {"X": images(step.sample), "y": tf.constant(LABELS, tf.int32), "lr": 0.1}
    if argument == "X":
        return good | {"X": BAD_X[name](step.sample)}
    return good | {argument: (BAD_Y if argument == "y" else BAD_LR)[name]}


@pytest.fixture(scope="module", params=STEPS)
def step(request: pytest.FixtureRequest) -> Step:
    return STEPS[request.param]()


def refused_and_unchanged(
    step: Step, take: Callable, given: dict[str, Any], kinds: tuple, said: str
) -> None:
    before = values(step.state)
    with pytest.raises(kinds) as error:
        take(**given)
    assert said in str(error.value), str(error.value)
    assert same(values(step.state), before)


def test_there_are_forty_bad_inputs():
    assert len(CASES) >= 40


@pytest.mark.parametrize(("argument", "name"), CASES)
def test_it_is_refused_by_name_and_nothing_has_changed(step, argument, name):
    given = bad_input(step, argument, name)
    kinds = (TypeError, ValueError)
    refused_and_unchanged(step, step.take, given, kinds, argument)


@pytest.mark.parametrize(("argument", "name"), CASES)
def test_a_compiled_step_refuses_it_too(step, argument, name):
    given = bad_input(step, argument, name)
    kinds = (TypeError, ValueError, tf.errors.InvalidArgumentError)
    if (argument, name) in LATE:
        return  # known when it runs: the next test, with one trace for all of them
    compiled = tf.function(step.take, autograph=False)
    refused_and_unchanged(step, compiled, given, kinds, argument)


def test_what_is_known_late_is_refused_when_the_graph_runs(step):
    kinds = [
        tf.TensorSpec((SAMPLES, *step.sample), tf.float32),
        tf.TensorSpec(SAMPLES, tf.int32),
        tf.TensorSpec((), tf.float32),
    ]
    compiled = tf.function(step.take, input_signature=kinds, autograph=False)
    for argument, name in LATE:
        given = bad_input(step, argument, name)
        given["y"], given["lr"] = (
            tf.cast(given["y"], tf.int32),
            tf.cast(given["lr"], tf.float32),
        )
        late = tf.errors.InvalidArgumentError
        refused_and_unchanged(step, compiled, given, (late,), f"{argument} must")


def test_the_same_step_takes_good_input_of_any_kind_of_number(step):
    """What is refused above is refused for what is wrong with it."""
    before = values(step.state)
    y = tf.constant(LABELS, tf.int32)
    step.take(images(step.sample), y, 0.1)
    assert not same(values(step.state), before)
    step.take(images(step.sample, dtype=np.float64), y.numpy(), np.float32(0.1))
    step.take(tf.cast(images(step.sample) * 17, tf.uint8), tf.cast(y, tf.uint8), 1e-3)
    step.take(images(step.sample).numpy(), tf.cast(y, tf.int64), tf.constant(0.1))
    assert all(np.all(np.isfinite(v)) for v in values(step.state))


# What single functions refuse. A call that changes a state gets `KEPT`, which must
# stay as it is.

KEPT = tf.Variable([1.0, 2.0])
G, H = tf.constant([0.5, -0.5]), tf.ones((4, 2))
STATE = LossScale(), LocalAdam([KEPT], 0.1), Delayed([[KEPT]], 1)


def adam(**options: float) -> tf.Tensor:
    return adam_change(KEPT, KEPT, G, 1, **options)


def synced(h: tf.Tensor) -> list:
    four = (tf.Variable([v, v]) for v in (1.0, 0.0, 0.0, 1.0))
    gamma, beta, *averages = four
    layer = Layer("norm", batch_norm, (gamma, beta), tuple(averages))
    return synced_batch_norm([h], [layer], TWO[:1])


def pushed(rate: float) -> None:
    server = ParameterServer([KEPT], TWO[0], 1, 9, lambda staleness: tf.constant(rate))
    try:
        server.push(server.pull(0), [G])
    finally:
        assert np.all(np.isfinite(server.params[0])) and not server.log


def chained(*shapes: tuple[int, ...]) -> object:
    params = [tf.Variable(tf.zeros(shape)) for shape in shapes]
    pairs = zip(params[::2], params[1::2], strict=True)
    return MeshShards([Layer("one", dense, own) for own in pairs], Mesh(TWO, data=2))


def other_shapes(make: Callable) -> object:
    return make([[tf.zeros((2, 3))], [tf.zeros((3, 2))]])


def joined(part: object) -> list:
    ranks = Mesh(TWO, data=2)
    return joined_shards(MeshShards(dense_layers([7, 6, 10]), ranks), part=part)


REFUSED = {
    "two rates": (lambda: sgd([KEPT], [G], tf.constant([0.1, 0.2])), "lr must be one"),
    "a whole rate": (lambda: sgd([KEPT], [G], tf.constant(1)), "lr must be one number"),
    "a huge rate": (
        lambda: sgd([KEPT], [G], 10**400),
        "lr must be positive and finite",
    ),
    "an array": (lambda: sgd([KEPT], [G], np.array([0.1])), "lr must be a number"),
    "no number": (lambda: sgd([KEPT], [G], np.array("a")), "lr must be a number, got"),
    "a huge peak": (lambda: GradualWarmup(0.1, 10**400, 5), "peak_lr must be positive"),
    "a sum of another shape": (lambda: STATE[2]([[tf.ones(3)]]), "grads[0] must have"),
    "a sum more": (lambda: STATE[2]([[G, G]]), "grads must hold 1 gradients"),
    "a device more": (lambda: STATE[2]([[G], [G]]), "grads has 2 devices"),
    "a sum in float64": (
        lambda: STATE[2]([[tf.cast(G, tf.float64)]]),
        "grads[0][0] is float64, what is kept float32",
    ),
    "no chain": (
        lambda: chained((7, 6), (6,), (5, 4), (4,)),
        "layers[1] (one) takes 5 inputs, no multiple of 6",
    ),
    "a bias of another layer": (
        lambda: chained((7, 6), (5,), (6, 4), (4,)),
        "layers[0] (one) must have a weight, and biases of 6 numbers",
    ),
    "vectors": (
        lambda: chained((7,), (7,), (7,), (7,)),
        "layers[0] (one) must have a weight",
    ),
    "whole numbers": (lambda: all_finite([tf.range(3)]), "tensors[0] must be floating"),
    "images of bytes": (
        lambda: synced(tf.cast(H, tf.uint8)),
        "shards[0] must be float",
    ),
    "other precision": (
        lambda: synced(tf.cast(H, tf.float64)),
        "shards[0] is float64, but layers[0] float32: cast one",
    ),
    "label 10": (
        lambda: cross_entropy(tf.ones((2, 10)), tf.constant([3, 10])),
        "y must hold labels from 0 to 9, got 3 to 10",
    ),
    "whole logits": (
        lambda: cross_entropy(tf.ones((2, 10), tf.int32), tf.constant([3, 1])),
        "logits must be floating point, got int32",
    ),
    "no inputs": (lambda: he_normal((0, 3), (0, 0)), "shape must be at least 1, got 0"),
    "no rows": (lambda: worker_batches(["a"], 0, 0, 1), "rows must be at least 1, got"),
    "no parameters": (lambda: LocalAdam([]), "params is empty"),
    "part 7": (lambda: joined(7), "part must be from 0 to 1, got 7"),
    "part -1": (lambda: joined(-1), "part must be from 0 to 1, got -1"),
    "numbers for layers": (
        lambda: layer_costs([1, 2]),
        "layers[0] must be a Layer, got",
    ),
    "beta_1 of 1": (lambda: adam(beta_1=1), "beta_1 must be below 1"),
    "beta_2 of 1": (lambda: adam(beta_2=1.0), "beta_2 must be below 1"),
    "negative beta_2": (lambda: adam(beta_2=-0.1), "beta_2 must be from 0 to 1"),
    "negative epsilon": (lambda: adam(epsilon=-1), "epsilon must be finite and not"),
    "'no'": (
        lambda: step_if_finite(STATE[0], "no", lambda: KEPT.assign(G)),
        "finite must be one truth value, got 'no'",
    ),
    "two truth values": (
        lambda: step_if_finite(STATE[0], tf.constant([True, True]), KEPT.read_value),
        "finite must be one truth value",
    ),
    "sums of whole numbers": (
        lambda: allreduce_stored([[G]], tf.int32),
        "dtype must be floating point, got int32",
    ),
    "low rank, other shapes": (
        lambda: other_shapes(lambda p: LowRank(p, 1)),
        "device_params[1][0] is float32 of shape (3, 2)",
    ),
    "feedback, other shapes": (
        lambda: other_shapes(lambda p: ErrorFeedback(None, p)),
        "device_params[1][0] is float32 of shape (3, 2)",
    ),
    "a rate that is none": (lambda: pushed(np.nan), "rate must be positive and finite"),
    "negative bytes": (lambda: zero_bytes([8], 2, 1, param=-2), "param must be"),
    "bytes of text": (
        lambda: zero_bytes([8], 2, 1, state="a"),
        "state must be a number",
    ),
    "strings apart": (lambda: distance(["a"], ["b"]), "found must hold numbers"),
    "nothing to compare": (lambda: distance([1.0], [None]), "reference must hold numb"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_function_refuses_it_by_name_and_has_changed_nothing(name):
    call, said = REFUSED[name]
    state = [KEPT, STATE[0].scale, STATE[0].good, STATE[1].t, *STATE[2].waiting[0]]
    before = values(state)
    with pytest.raises((TypeError, ValueError)) as error:
        call()
    assert said in str(error.value), str(error.value)
    assert same(values(state), before)


@pytest.mark.parametrize("lr", [np.array(0.1), np.float16(0.1), 1, Fraction(1, 10)])
def test_a_number_of_any_kind_is_a_rate(lr):
    w = tf.Variable([1.0, 2.0])
    sgd([w], [G], lr)
    np.testing.assert_allclose(w, [1, 2] - float(lr) * G.numpy(), rtol=1e-6)
