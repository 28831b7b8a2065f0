"""The model with fused weights: attention, its cuts, and runs that change layouts."""

import numpy as np
import pytest
import tensorflow as tf

from manygpu.backstage import fused_heads
from manygpu.backstage.fused_heads import (
    CUTS,
    KINDS,
    SHAPES,
    attention,
    batch_of,
    first_params,
    first_state,
    layers_of,
    rate,
    step_on,
    train_on,
    trained_alone,
)
from manygpu.scratch import Mesh, MeshShards, joined_shards
from tests.unit.helpers import EIGHT, distance, in_graph

LAYOUTS = [
    ({"data": 1}, None),
    ({"data": 3}, None),
    ({"data": 2, "layerwise": 2}, "data"),
    ({"pipeline": 2, "layerwise": 2}, None),
    ({"pipeline": 2, "data": 2, "layerwise": 2}, "data"),
]


def cut(state: dict, axes: dict, sharded: str | None) -> list[MeshShards]:
    mesh, run = Mesh(EIGHT, **axes), []
    for kind in KINDS:
        wholes = [a for name, a in state.items() if name.startswith(kind)]
        run.append(MeshShards(layers_of(wholes), mesh, CUTS, sharded=sharded))
    return run


def joined(run: list[MeshShards]) -> dict:
    return {
        f"{kind}{n}": whole.numpy()
        for kind, shards in zip(KINDS, run, strict=True)
        for n, whole in enumerate(joined_shards(shards))
    }


def most_off(shards: MeshShards, right: list) -> float:
    """The largest difference of any rank's parameter from its part of the right one."""
    return max(
        distance([p], [shards.specs[n].shard_of(right[n], shards.mesh, rank)])
        for rank, held in enumerate(shards.held)
        for n, p in held.items()
    )


def test_attention_is_that_of_each_head():
    rng = np.random.default_rng(1)
    h, fused, out = (rng.normal(size=s) for s in ((2, 5, 8), *SHAPES[:2]))
    right = np.zeros((2, 5, 8))
    for i in range(fused.shape[2]):
        q, k, v = (h @ fused[:, part, i] for part in range(3))
        scores = np.exp(q @ k.transpose(0, 2, 1))
        right += scores / scores.sum(-1, keepdims=True) @ v @ out[i]
    np.testing.assert_allclose(attention(h, fused, out), right, rtol=1e-12)


@pytest.mark.parametrize(("axes", "sharded"), LAYOUTS)
def test_the_state_is_the_same_on_every_layout(axes, sharded):
    rng = np.random.default_rng(2)
    state = {name: rng.normal(size=a.shape) for name, a in first_state().items()}
    back = joined(cut(state, axes, sharded))
    assert list(back) == list(state)
    assert all(back[name].tobytes() == state[name].tobytes() for name in state)


@pytest.mark.parametrize(("axes", "sharded"), LAYOUTS)
@pytest.mark.parametrize("before", [LAYOUTS[2], LAYOUTS[3]], ids=str)
def test_a_run_that_changes_its_layout_is_that_of_one_device(before, axes, sharded):
    begun = cut(first_state(), *before)
    train_on(begun, 0, 2)
    run = cut(joined(begun), axes, sharded)
    loss, grads = train_on(run, 2, 4)
    right, losses, found = trained_alone(4)
    assert loss == pytest.approx(losses[2], rel=1e-13)
    assert distance(joined_shards(run[0], grads), found[2]) <= 1e-13
    assert most_off(run[0], right) <= 1e-13


@pytest.mark.parametrize(("axes", "sharded"), LAYOUTS[1:4])
def test_a_compiled_step_on_a_new_layout_is_that_of_one_device(axes, sharded):
    begun = cut(first_state(), *LAYOUTS[2])
    train_on(begun, 0, 2)
    run = cut(joined(begun), axes, sharded)
    loss, grads = in_graph(lambda: step_on(run, *batch_of(3), 3))()
    right, losses, found = trained_alone(3)
    assert float(loss) == pytest.approx(losses[2], rel=1e-13)
    assert distance(joined_shards(run[0], grads), found[2]) <= 1e-13
    assert most_off(run[0], right) <= 1e-13


def test_one_device_takes_the_steps_of_keras(monkeypatch):
    # Keras keeps rates and moments in float32, so it agrees to seven digits.
    monkeypatch.setattr(fused_heads, "rate", lambda step: step / 512)
    right, _, grads = trained_alone(3)
    params = [tf.Variable(p) for p in first_params()]
    adam = tf.keras.optimizers.Adam(epsilon=1e-7)
    for step, own in enumerate(grads, 1):
        adam.learning_rate = step / 512
        adam.apply([g / 12 for g in own], params)
    assert distance(params, right) <= 1e-6


def test_the_rate_grows_and_stays():
    rates = [rate(step) for step in range(1, 13)]
    assert rates == sorted(rates) and rates[9] == rates[11] > rates[8] > 0


def test_a_schedule_that_is_behind_ends_elsewhere():
    run = cut(first_state(), *LAYOUTS[0])
    train_on(run, 0, 2)
    loss, _ = train_on(run, 2, 4, skipped=2)
    right, losses, _ = trained_alone(4)
    assert loss == pytest.approx(losses[2], rel=1e-13)
    assert most_off(run[0], right) > 1e-3
