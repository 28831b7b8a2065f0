"""Every chain does what one device does with all its layers; and what it promises."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from manygpu.bench import chains
from manygpu.bench.running import Running, step_distance
from manygpu.scratch.splitting.pipeline import Op, orders_of
from tests.unit.helpers import EIGHT

# A step is a small difference of larger weights: float32 leaves less of it.
FLOAT32 = 1e-4
FORWARD = ["chain-forward", "pipeline-forward"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for constant, value in {"LAYERS": 4, "WIDTH": 8, "MICRO_BATCHES": 4}.items():
        monkeypatch.setattr(chains, constant, value)


@cache
def chain(name: str, k: int) -> Running:
    """Built and traced once for all tests: none asks where its layers stand."""
    return chains.CHAINS[name](EIGHT[:k])


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("name", chains.CHAINS)
def test_it_does_what_one_device_does(name, k):
    running = chain(name, k)
    batch = running.batch(32)
    assert step_distance(running, *batch) <= FLOAT32
    assert step_distance(running, *batch) <= FLOAT32  # from where it stands now
    assert running.moves == (name not in FORWARD)


@pytest.mark.parametrize("name", chains.CHAINS)
def test_it_takes_the_batch_that_it_is_given(name):
    running = chain(name, 2)
    X, y = running.batch(48)
    assert X.shape == (48, 8) and y.shape == (48,)
    step_distance(running, X, y)
    assert step_distance(running, -X, y) <= FLOAT32
    if name in FORWARD:
        assert running.result()[0].shape == (48, 8)


@pytest.mark.parametrize("name", chains.CHAINS)
def test_what_is_not_done_is_found_out(name):
    running = chain(name, 2)
    X, y = running.batch(32)
    running.take(X[::-1], y)  # another batch: what is left of it is no result
    idle = replace(running, take=lambda X, y: None)
    assert step_distance(idle, X, y) > 0.1


@pytest.mark.parametrize("name", chains.CHAINS)
def test_every_device_holds_its_share_of_the_layers(name):
    held = chain(name, 2).held()
    devices = 1 if name in ("chain", "chain-forward") else 2
    assert held == dict.fromkeys(EIGHT[:devices], 4 * 4 * (8 * 8 + 8) // devices)


def test_interleaved_gives_each_device_two_stages(monkeypatch):
    plans = []

    def look(plan, stages, X, y, lr):
        plans.append((plan, [stage.device for stage in stages]))
        return step(plan, stages, X, y, lr)

    step = chains.running_a_pipeline.pipeline_step
    monkeypatch.setattr(chains.running_a_pipeline, "pipeline_step", look)
    running = chains.CHAINS["interleaved"](EIGHT[:2])
    running.take(*running.batch(32))
    [(plan, devices)] = plans
    assert devices == [*EIGHT[:2], *EIGHT[:2]]
    on_first = {op.stage for op in orders_of(plan)[0]}
    assert on_first == {0, 2}
    assert Op("F", 3, chains.MICRO_BATCHES - 1) in orders_of(plan)[1]


@pytest.mark.parametrize(
    ("devices", "micro_batches", "share"),
    [(1, 16, 1), (2, 16, 17 / 32), (4, 1, 1), (4, 4, 7 / 16)],
)
def test_the_ideal_is_that_of_equal_stages(devices, micro_batches, share):
    assert chains.ideal(devices, micro_batches) == pytest.approx(share)


def test_the_ideal_needs_devices_and_micro_batches():
    with pytest.raises(ValueError, match="devices"):
        chains.ideal(0)
    with pytest.raises(ValueError, match="micro_batches"):
        chains.ideal(2, 0)
    with pytest.raises(TypeError, match="devices"):
        chains.ideal(1.5)


def test_the_batch_does_not_change():
    one, other = (chains.CHAINS["chain"](EIGHT[:1]).batch(5) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
