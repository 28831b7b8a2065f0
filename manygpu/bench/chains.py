"""A chain of equal dense layers at work, unsplit and as a pipeline, to be timed.

Every cut of it is fair, so what a plan promises can be held against the clock. Each
`make_...` returns a `Running`, as the strategies do; its batch is one of the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import tensorflow as tf

from manygpu.bench.running import Running, bytes_by_device, compiled, wait_for
from manygpu.checks import check_count
from manygpu.scratch.splitting import pipeline, running_a_pipeline, smaller_bubble
from manygpu.scratch.splitting.network import (
    Layer,
    Stage,
    even_cuts,
    forward_stage,
    make_stages,
    partitioned_gradients,
    partitioned_step,
)

# 12 layers: 1, 2, 3, 4 and 6 devices get equally many.
LAYERS, WIDTH, BATCH, MICRO_BATCHES, LR = 12, 256, 4096, 16, 0.05


def ideal(devices: int, micro_batches: int = MICRO_BATCHES) -> float:
    """Return the time of a pipeline of equal stages in units of the unsplit time.

    Raises TypeError or ValueError for a count that is none.
    """
    p = check_count("devices", devices)
    m = check_count("micro_batches", micro_batches)
    return (m + p - 1) / (m * p)


def make_unsplit(devices: list[str]) -> Running:
    """Take the step of all layers on the first device, the batch as a whole."""

    def step(stages: Sequence[Stage], X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return partitioned_step(X, y, stages, LR)

    return _training(step, devices[:1], 1)


def make_unsplit_forward(devices: list[str]) -> Running:
    """Take the forward pass of all layers on the first device."""

    def forward(stages: Sequence[Stage], X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return forward_stage(stages[0], X)[-1].output

    return _forward(forward, devices[:1])


def make_scheduled(schedule: Callable, devices: list[str]) -> Running:
    """Take the step of a pipeline, a stage a device, by what `schedule` plans."""
    return _scheduled(schedule(len(devices), MICRO_BATCHES), devices, len(devices))


def make_interleaved(devices: list[str]) -> Running:
    """Take the step of an interleaved pipeline, two stages a device."""
    k = len(devices)
    plan = smaller_bubble.interleaved(2 * k, MICRO_BATCHES, k)
    return _scheduled(plan, devices, 2 * k)


def make_scheduled_forward(devices: list[str]) -> Running:
    """Take the forward passes of a pipeline, a stage a device."""
    plan = pipeline.forward_only(len(devices), MICRO_BATCHES)

    def forward(stages: Sequence[Stage], X: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        done, _ = running_a_pipeline.run_plan(plan, stages, X, y)
        return [done.logits[m] for m in sorted(done.logits)]

    return _forward(forward, devices)


CHAINS: dict[str, Callable[[list[str]], Running]] = {
    "chain": make_unsplit,
    "chain-forward": make_unsplit_forward,
    "pipeline-forward": make_scheduled_forward,
    "gpipe": partial(make_scheduled, pipeline.gpipe),
    "1f1b": partial(make_scheduled, pipeline.one_forward_one_backward),
    "interleaved": make_interleaved,
    "zero-bubble": partial(make_scheduled, smaller_bubble.zero_bubble),
}


def _scheduled(plan: pipeline.Plan, devices: list[str], count: int) -> Running:
    """The step of a pipeline of `count` stages."""

    def step(stages: Sequence[Stage], X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return running_a_pipeline.pipeline_step(plan, stages, X, y, LR)

    return _training(step, devices, count)


def _training(step: Callable, devices: list[str], count: int) -> Running:
    """step(stages, X, y), which moves the weights of `count` stages."""
    stages = _stages(devices, count)
    params = _params(stages)
    run = compiled(partial(step, stages))

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        wait_for([run(X, y), *(stage.params[-1] for stage in stages)])

    def reference(X: tf.Tensor, y: tf.Tensor) -> list[np.ndarray]:
        whole = make_stages(_layers(stages), [], devices[:1])
        _, [grads] = partitioned_gradients(X, y, whole)
        return [-LR / len(y) * g.numpy() for g in grads]

    def weights() -> list[np.ndarray]:
        return [p.numpy() for p in params]

    batch = partial(_batch, devices[0])
    return Running(take, weights, reference, batch, lambda: bytes_by_device(params))


def _forward(forward: Callable, devices: list[str]) -> Running:
    """forward(stages, X, y), which returns logits, in pieces of the batch or whole."""
    stages = _stages(devices, len(devices))
    params, made = _params(stages), []
    run = compiled(partial(forward, stages))

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        made[:] = tf.nest.flatten(run(X, y))
        wait_for(made)

    def reference(X: tf.Tensor, y: tf.Tensor) -> list[np.ndarray]:
        for one in _layers(stages):
            X = one.apply(X, *one.params)
        return [X.numpy()]

    def logits() -> list[np.ndarray]:
        return [np.concatenate([piece.numpy() for piece in made])]

    batch, held = partial(_batch, devices[0]), partial(bytes_by_device, params)
    return Running(take, logits, reference, batch, held, moves=False)


def _stages(devices: list[str], count: int) -> list[Stage]:
    """The chain, cut into `count` equal stages."""
    chain = pipeline.dense_chain(LAYERS, WIDTH)
    return make_stages(chain, even_cuts(LAYERS, count), devices)


def _layers(stages: Sequence[Stage]) -> list[Layer]:
    return [one for stage in stages for one in stage.layers]


def _params(stages: Sequence[Stage]) -> list[tf.Variable]:
    return [p for stage in stages for p in stage.params]


def _batch(device: str, samples: int) -> tuple[tf.Tensor, tf.Tensor]:
    """So many rows of numbers, and a class for each."""
    rng = np.random.default_rng(0)
    with tf.device(device):
        X = tf.constant(rng.normal(size=(samples, WIDTH)), tf.float32)
        return X, tf.constant(rng.integers(0, WIDTH, samples), tf.int32)
