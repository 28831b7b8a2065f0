"""Devices that meet in another way than all at once: a ring, a server, or seldom.

Each function puts a strategy to work on a task, `make(task, devices)`, and returns a
`contract.Training`; a row of `table` names it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from queue import Queue
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from manygpu.measure import shares
from manygpu.processes.door import Deadline
from manygpu.scratch.beyond.many_workers import (
    Ring,
    check_header,
    member_step,
)
from manygpu.scratch.data_parallel.many_devices import split_batch
from manygpu.scratch.in_step.asynchronous import ParameterServer
from manygpu.scratch.in_step.meeting_seldom import LocalAdam, Meeting, local_step
from manygpu.scratch.start.one_device import sgd
from manygpu.trainings.contract import Training
from manygpu.trainings.copies import Copies
from manygpu.trainings.task import Task, compiled, rows_of, wait_for


class Neighbour(NamedTuple):
    """A neighbour in a ring of threads: its frames wait in a queue, not in a socket."""

    rank: int
    frames: Queue

    def send(self, header: bytes, numbers: np.ndarray, deadline: Deadline) -> None:
        self.frames.put((header, numbers))

    def receive(self, expected: bytes, deadline: Deadline) -> np.ndarray:
        header, numbers = self.frames.get(timeout=deadline.left())
        check_header(header, expected)
        return numbers


def ring_of_threads(size: int) -> list[Ring]:
    """Return the places of all members of a ring; queue i leads from i - 1 to i."""
    queues = [Queue() for _ in range(size)]
    rings = []
    for rank in range(size):
        right = (rank + 1) % size
        left = Neighbour((rank - 1) % size, queues[rank])
        peers = [left, Neighbour(right, queues[right])]
        rings.append(Ring(rank, size, peers, timeout_s=5.0))
    return rings


def members(task: Task, devices: list[str]) -> Training:
    """The members of a ring, each in a thread, with a copy of its own."""
    copies, rings, lr = Copies(task, devices), ring_of_threads(len(devices)), task.lr

    def member(X: Any, y: Any, ring: Ring) -> tf.Tensor:
        own = copies.replicas[ring.rank]
        with tf.device(devices[ring.rank]):
            return member_step(ring, X, y, own, lr, copies.gradients)

    def take(X: Any, y: Any) -> tf.Tensor:
        with ThreadPoolExecutor(len(rings)) as threads:
            losses = list(threads.map(partial(member, X, y), rings))
        return losses[0]

    return copies.training(take, traced=False)


def local_sgd(task: Task, devices: list[str], every: int = 4) -> Training:
    """Each device takes steps alone, and after every so many of them all meet."""
    copies, lr = Copies(task, devices), task.lr
    meeting = Meeting(copies.replicas, devices)
    updates = [partial(sgd, own, lr=lr) for own in copies.replicas]

    def alone(X: Any, y: Any) -> tf.Tensor:
        own = copies.replicas, devices, updates, copies.gradients
        return local_step(X, y, *own)

    def together(X: Any, y: Any) -> tf.Tensor:
        loss = alone(X, y)
        meeting.meet(shares(rows_of(y), len(devices)))
        return loss

    kept = sum([*meeting.start, *meeting.speeds], [])
    made = copies.training(together, stored=lambda: [*kept, *copies.stored()])
    return made if every == 1 else _by_turns(made, alone, every)


def _by_turns(made: Training, alone: Callable, every: int) -> Training:
    """Return the training whose `take` is its own only in every so many steps."""
    meets, apart, steps = compiled(made.take), compiled(alone), count(1)
    last = {v.device: v for v in made.stored()}

    def take(X: Any, y: Any) -> tf.Tensor:
        loss = (apart if next(steps) % every else meets)(X, y)
        wait_for(last.values())
        return loss

    return made._replace(take=take, traced=False)


def local_adam(task: Task, devices: list[str]) -> Training:
    """Devices whose averages never leave them; Adam."""
    copies, lr = Copies(task, devices), task.lr
    adams = [LocalAdam(own, lr) for own in copies.replicas]

    def take(X: Any, y: Any) -> tf.Tensor:
        return local_step(X, y, copies.replicas, devices, adams, copies.gradients)

    return copies.training(take, state=lambda: {"t": [one.t for one in adams]})


def by_server(task: Task, devices: list[str]) -> Training:
    """A parameter server whose workers are in step: each adds its shard's gradients."""
    params, lr = task.model.params, task.lr
    rate = tf.Variable(0.0, dtype=tf.float64)
    bounds = {"updates": 10**6, "rate": lambda staleness: rate, "bound": 0}
    server = ParameterServer(params, devices[0], len(devices), **bounds)

    def take(X: Any, y: Any) -> None:
        rate.assign(lr / len(y))
        shards = [*zip(*split_batch(X, y, devices), strict=True)]

        def compute(ticket: Any) -> list[tf.Tensor]:
            with tf.device(devices[ticket.worker]):
                of_shard = task.gradients(*shards[ticket.worker], ticket.params)
            return of_shard[1]

        server.replay(range(len(devices)), compute)

    own = partial(list, server.params)
    return Training(take, lambda: [server.params], stored=own, traced=False)
