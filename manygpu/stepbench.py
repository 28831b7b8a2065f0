"""Time kinds of training steps against each other, each in a process of its own.

TensorFlow fixes devices and threads when it starts, so a fair comparison of one
device with two needs two processes. `compare` starts one for each case and lets them
take turns of a few steps: when the machine slows down, it slows all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

import manygpu
from manygpu.checks import check_count

BATCH_SIZE, WARMUP, LR = 256, 5, 0.05


@dataclass(frozen=True)
class Case:
    """What one process times.

    Attributes:
        variant: a key of `VARIANTS`.
        devices: how many.
        inter_op: inter-op threads, to show what an unfair baseline does; None for
            as many as devices, see `manygpu.devices`.
    """

    variant: str
    devices: int
    inter_op: int | None = None

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            names = sorted(VARIANTS)
            raise ValueError(f"variant must be one of {names}, got {self.variant!r}")
        check_count("devices", self.devices)
        if self.inter_op is not None:
            check_count("inter_op", self.inter_op)


def compare(
    cases: Mapping[str, Case], rounds: int = 10, steps: int = 5
) -> dict[str, list[float]]:
    """Return for each case its median milliseconds a step, one number a round.

    Args:
        cases: by name.
        rounds: in each, every case takes its turn.
        steps: how many a turn.

    Raises:
        ValueError, TypeError: a count below 1 or not whole.
        RuntimeError: a process failed; the message holds what it said.
    """
    check_count("rounds", rounds)
    check_count("steps", steps)
    with ExitStack() as stack:
        workers = {n: stack.enter_context(_Worker(c)) for n, c in cases.items()}
        for worker in workers.values():
            worker.turn(WARMUP)
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(rounds):
            for name, worker in workers.items():
                times[name].append(1e3 * statistics.median(worker.turn(steps)))
    return times


def ratio(
    times: Mapping[str, list[float]], measured: str, against: str
) -> tuple[float, float, float]:
    """Return the median, least and largest of the rounds' ratios of two cases."""
    pairs = zip(times[measured], times[against], strict=True)
    ratios = sorted(a / b for a, b in pairs)
    return statistics.median(ratios), ratios[0], ratios[-1]


class _Worker:
    """A process that takes steps when it is told to."""

    def __init__(self, case: Case) -> None:
        environment = {**os.environ, "MANYGPU_DEVICES": str(case.devices)}
        environment.pop("MANYGPU_INTER_OP", None)
        if case.inter_op is not None:
            environment["MANYGPU_INTER_OP"] = str(case.inter_op)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "manygpu.stepbench", case.variant],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def turn(self, steps: int) -> list[float]:
        """Take `steps` steps and return the seconds of each."""
        try:
            self.process.stdin.write(f"{steps}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it died; what it said is read below
        answer = self.process.stdout.readline()
        if not answer.startswith("["):
            raise RuntimeError(
                f"the process {' '.join(self.process.args)} stopped; run it by hand "
                f"to see why (it said {answer!r})"
            )
        return json.loads(answer)

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def make_eager(devices: list[str]) -> Callable[[tf.Tensor, tf.Tensor], None]:
    """The step of the chapter "A step on many devices", one operation at a time."""
    from manygpu.scratch import train_batch

    return _with_replicas(train_batch, devices)


def make_compiled(devices: list[str]) -> Callable[[tf.Tensor, tf.Tensor], None]:
    """The same step as one `tf.function`."""
    from manygpu.scratch import train_batch

    return _with_replicas(tf.function(train_batch), devices)


def make_apart(devices: list[str]) -> Callable[[tf.Tensor, tf.Tensor], None]:
    """Compiled replicas that never communicate: each steps on its own shard.

    It is what is left when communication costs nothing.
    """
    from manygpu.scratch import gradients, sgd, split_batch

    def step(X, y, device_params, devices, lr):
        X_shards, y_shards = split_batch(X, y, devices)
        for k, device in enumerate(devices):
            with tf.device(device):
                _, grads = gradients(X_shards[k], y_shards[k], device_params[k])
                sgd(device_params[k], grads, lr / X.shape[0])

    return _with_replicas(tf.function(step), devices)


def make_engine(devices: list[str]) -> Callable[[tf.Tensor, tf.Tensor], None]:
    """The same step by MirroredStrategy: the loop of the chapter of that name.

    Its shards are made before the first step, since in a training loop a
    distributed dataset makes them beside the step. "compiled" splits in every step.
    """
    from manygpu.scratch import init_params, mirrored_step, split_batch

    strategy = _strategy(devices)
    with strategy.scope():
        params = init_params()
    step, shards = mirrored_step(strategy, params), []

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        if not shards:
            parts = list(zip(*split_batch(X, y, devices), strict=True))
            shards[:] = strategy.experimental_distribute_values_from_function(
                lambda replica: parts[replica.replica_id_in_sync_group]
            )
        step(*shards, LR)
        for copy in strategy.experimental_local_results(params[-1]):
            copy.numpy()

    return take


def make_fit(devices: list[str]) -> Callable[[tf.Tensor, tf.Tensor], None]:
    """One step of Keras' `fit` under MirroredStrategy, without its callbacks.

    It averages the means of the shards, so with uneven shards it is another step.
    """
    from manygpu.scratch import init_params, keras_lenet

    strategy, batches = _strategy(devices), []
    with strategy.scope():
        model = keras_lenet(init_params())
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.SGD(LR), loss)

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        if not batches:
            even = len(y) // len(devices) * len(devices)  # the first must be
            model.fit(X[:even], y[:even], batch_size=even, verbose=0)
            data = tf.data.Dataset.from_tensors((X, y)).repeat()
            batches.append(iter(strategy.experimental_distribute_dataset(data)))
        model.train_function(batches[0])
        for copy in strategy.experimental_local_results(model.weights[-1].value):
            copy.numpy()

    return take


VARIANTS = {
    "eager": make_eager,
    "compiled": make_compiled,
    "apart": make_apart,
    "engine": make_engine,
    "fit": make_fit,
}


def _strategy(devices: list[str]) -> tf.distribute.Strategy:
    """A MirroredStrategy over `devices` that doesn't announce itself."""
    tf.get_logger().setLevel("ERROR")
    return tf.distribute.MirroredStrategy(devices)


def _with_replicas(step: Callable, devices: list[str]) -> Callable:
    """Give `step` its replicas, and let it wait until they are updated."""
    from manygpu.scratch import get_params, init_params

    params = init_params()
    replicas = [get_params(params, d) for d in devices]

    def take(X: tf.Tensor, y: tf.Tensor) -> None:
        step(X, y, replicas, devices, LR)
        for replica in replicas:
            replica[-1].numpy()  # on a GPU, the step is done only when this is

    return take


def main() -> None:
    """For each number read from standard input, print the seconds of so many steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variant", choices=sorted(VARIANTS))
    devices = manygpu.devices(quiet=True)
    take = VARIANTS[parser.parse_args().variant](devices)
    rng = np.random.default_rng(0)
    X = tf.constant(rng.random((BATCH_SIZE, 28, 28, 1)), tf.float32)
    y = tf.constant(rng.integers(0, 10, BATCH_SIZE), tf.int32)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            take(X, y)
            seconds.append(time.perf_counter() - start)
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
