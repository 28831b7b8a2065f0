"""A chain of equal dense layers at work, unsplit and as a pipeline, to be timed.

Every cut of it is fair, so what a schedule promises can be held against the clock.
Each `make_...(devices)` brings its own batch and ignores the one it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf

from manygpu.bench.strategies import Running

# 12 layers: 1, 2, 3, 4 and 6 devices get equally many.
LAYERS, WIDTH, BATCH, MICRO_BATCHES, LR = 12, 256, 4096, 16, 1e-3


def ideal(devices: int, micro_batches: int = MICRO_BATCHES) -> float:
    """Time of a pipeline of equal stages in units of the unsplit time."""
    return (micro_batches + devices - 1) / (micro_batches * devices)


def make_unsplit(forward: bool, devices: list[str]) -> Running:
    """All layers on the first device, the batch as a whole; forward or a step."""
    from manygpu.scratch import forward_stage, partitioned_step

    def step(stages, X, y):
        if not forward:
            return partitioned_step(X, y, stages, LR)
        return forward_stage(stages[0], X)[-1].output

    return _running(step, devices[:1], 1)


def make_scheduled(name: str, devices: list[str]) -> Running:
    """A stage a device, or two if interleaved, by the schedule of that name."""
    from manygpu import scratch
    from manygpu.scratch import pipeline_step, run_plan

    k = len(devices)
    stages = 2 * k if name == "interleaved" else k
    on = (k,) if name == "interleaved" else ()
    schedule = getattr(scratch, name)(stages, MICRO_BATCHES, *on)

    def step(stages, X, y):
        if name != "forward_only":
            return pipeline_step(schedule, stages, X, y, LR)
        done, _ = run_plan(schedule, stages, X, y)
        return list(done.logits.values())

    return _running(step, devices, stages)


CHAINS: dict[str, Callable[[list[str]], Running]] = {
    "chain": partial(make_unsplit, False),
    "chain-forward": partial(make_unsplit, True),
    "pipeline-forward": partial(make_scheduled, "forward_only"),
    "gpipe": partial(make_scheduled, "gpipe"),
    "1f1b": partial(make_scheduled, "one_forward_one_backward"),
    "interleaved": partial(make_scheduled, "interleaved"),
    "zero-bubble": partial(make_scheduled, "zero_bubble"),
}


def _running(step: Callable, devices: list[str], count: int) -> Running:
    """`step` on `count` stages, compiled, with a batch of its own."""
    from manygpu.scratch import dense_chain, even_cuts, make_stages

    chain = dense_chain(LAYERS, WIDTH)
    stages = make_stages(chain, even_cuts(LAYERS, count), devices)
    rng = np.random.default_rng(0)
    with tf.device(devices[0]):
        X = tf.constant(rng.normal(size=(BATCH, WIDTH)), tf.float32)
        y = tf.constant(rng.integers(0, WIDTH, BATCH), tf.int32)
    params = [p for stage in stages for p in stage.params]
    compiled = tf.function(partial(step, stages), autograph=False)

    def take(_X: tf.Tensor, _y: tf.Tensor) -> None:
        for result in tf.nest.flatten(compiled(X, y)):
            result.numpy()  # on a GPU, the step is done only when this is
        for stage in stages:
            stage.params[-1].numpy()

    def held() -> dict[str, int]:
        own = {stage.device: 0 for stage in stages}
        for stage in stages:
            own[stage.device] += sum(p.shape.num_elements() * 4 for p in stage.params)
        return own

    return Running(take, lambda: [p.numpy() for p in params], held)
