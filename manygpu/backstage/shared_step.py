"""A step that processes share, timed against one process with as many devices.

Each way has processes of its own on this machine's CPU, and they take turns of a few
steps, as in `manygpu.bench.compare`. A step of several processes is over when the
slowest of them has taken it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import tensorflow as tf

from manygpu.bench.case import Case
from manygpu.bench.run import start
from manygpu.checks import check_count
from manygpu.measure import in_turns, seconds_of
from manygpu.processes.workers import ON_CPU, Worker, cluster_of_workers, everywhere
from manygpu.scratch.beyond.many_workers import Ring, member_step, ring_of_workers
from manygpu.scratch.engine.mirrored_strategy import mirrored_step
from manygpu.scratch.start.one_device import gradients, init_params
from manygpu.trainings.models import images
from manygpu.trainings.task import LR, compiled

in_graph = compiled(gradients)


def compare_processes(
    count: int = 2, samples: int = 96, rounds: int = 5, steps: int = 2
) -> dict[str, list[float]]:
    """Return for each way to share a batch its milliseconds a step, one a round.

    The ways: one process with `count` devices (the first), a ring of `count` processes
    over sockets, and as many of MultiWorkerMirroredStrategy. All train LeNet.

    Raises:
        TypeError, ValueError: a count below 1 or not whole, or `samples` that `count`
            does not divide.
        RuntimeError: a process failed; the message holds what it said.
    """
    for name, value in (("count", count), ("rounds", rounds), ("steps", steps)):
        check_count(name, value)
    if check_count("samples", samples) % count:
        raise ValueError(f"samples must be a multiple of {count}, got {samples}")
    with ExitStack() as stack:
        ways = _ways(count, samples, steps, stack)
        return in_turns(ways, rounds, take=lambda way: _turn(*way))


def _ways(
    count: int, samples: int, steps: int, stack: ExitStack
) -> dict[str, tuple[Sequence[Worker], Any]]:
    """The processes of each way, and the question that has them take `steps` steps."""
    one = stack.enter_context(start(Case("data", count, batch=samples), **ON_CPU))
    ring = stack.enter_context(ring_of_workers(count, variables=ON_CPU))
    engine = stack.enter_context(cluster_of_workers(count, serve_engine, samples))
    return {
        f"one process, {count} devices": ([one], steps),
        f"{count} processes, your ring": (ring, (time_member, samples, steps)),
        f"{count} processes, the engine": (engine, steps),
    }


def _turn(group: Sequence[Worker], question: Any) -> float:
    """Median milliseconds of a turn's steps, each as long as the slowest took."""
    taken = zip(*everywhere(group, question), strict=True)
    return 1e3 * statistics.median(map(max, taken))


def time_member(ring: Ring, samples: int, steps: int) -> list[float]:
    """In a member: the seconds of each step; only its gradients are a graph."""
    batch, params = images(samples), init_params()
    step = partial(member_step, ring, *batch, params, LR, in_graph)
    return [seconds_of(step) for _ in range(steps)]


def serve_engine(samples: int) -> Callable[[int], list[float]]:
    """In a worker of a cluster: the seconds of so many of the engine's steps."""
    tf.config.threading.set_intra_op_parallelism_threads(1)  # as manygpu.devices does
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        params = init_params()
    own = samples // strategy.num_replicas_in_sync
    batches = strategy.distribute_datasets_from_function(
        lambda _: tf.data.Dataset.from_tensors(images(own))
    )
    batch, step = next(iter(batches)), mirrored_step(strategy, params)
    return lambda steps: [seconds_of(partial(step, *batch, LR)) for _ in range(steps)]
