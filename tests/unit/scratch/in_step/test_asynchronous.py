"""Synchronous and asynchronous: nothing lost, nothing twice, nobody too far ahead.

Gradients are whole numbers where they can be, so that sums are exact in any order. The
page kills the engine's workers.
"""

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch import Ledger, ParameterServer, he_normal, run_workers
from manygpu.scratch.in_step import asynchronous
from manygpu.scratch.in_step.asynchronous import SLOPES, change_for, small_gradients
from tests.unit.helpers import EIGHT, distance, same, values

ONE = EIGHT[0]
quick = settings(deadline=None, max_examples=100)
few = settings(deadline=None, max_examples=15)
workers_and_bounds = {
    "workers": st.integers(1, 6),
    "bound": st.none() | st.integers(0, 4),
    "seed": st.integers(0, 999),
}


def drawn_seconds(seed: int):
    """Times of steps, some of them equal, some a hundred times longer."""
    rng = random.Random(seed)
    return lambda worker, number: rng.choice([1.0, 1.0, 2.5, rng.random(), 100.0])


def counting_server(workers: int, updates: int, bound=None, rate=lambda staleness: 1.0):
    """A parameter at 0; by gradients of -1 it counts."""
    start = [tf.zeros(2, tf.float64)]
    return ParameterServer(start, ONE, workers, updates, rate, bound)


def minus_one(ticket):
    return [-tf.ones_like(p) for p in ticket.params]


@given(**workers_and_bounds)
@quick
def test_nobody_is_too_far_ahead_and_nobody_waits_for_ever(workers, bound, seed):
    updates = 60
    spans = asynchronous.arrivals(drawn_seconds(seed), workers, updates, bound)
    assert len(spans) == updates
    assert [s.end for s in spans] == sorted(s.end for s in spans)
    for w in range(workers):
        own = [s for s in spans if s.device == w]
        assert [s.work.number for s in own] == list(range(len(own)))
        assert all(a.end <= b.start for a, b in pairwise(own))
        if bound is None:
            assert all(a.end == b.start for a, b in pairwise(own))
    for s in spans if bound is not None else []:
        done = Counter(other.device for other in spans if other.end <= s.start)
        assert s.work.number - min(done[w] for w in range(workers)) <= bound


@given(**workers_and_bounds)
@quick
def test_staleness_is_what_came_in_between_and_its_sum_is_known(workers, bound, seed):
    rng, ledger, log, at_work = random.Random(seed), Ledger(workers, bound), [], 0
    since = dict.fromkeys(range(workers), 0)  # its version, kept once more by hand
    for version in range(50):
        at_work += len(ledger.holds) - 1
        worker = rng.choice(sorted(ledger.holds))
        update, free = ledger.finish(worker)
        assert update.staleness == version - since[worker]
        if bound is not None:
            assert update.staleness <= (workers - 1) * (2 * bound + 1)
        since |= dict.fromkeys(free, version + 1)
        log.append(update)
    out = sum(ledger.version - held for held in ledger.holds.values())
    assert sum(update.staleness for update in log) + out == at_work
    if bound is None:
        assert at_work == 50 * (workers - 1)


def test_who_waited_begins_its_own_next_step():
    """Worker 1 ends each second, worker 0 each third; 0 lets 1 be one step ahead."""
    taken = []

    def seconds(worker, number):
        taken.append((worker, number))
        return 1.0 if worker else 3.0

    spans = asynchronous.arrivals(seconds, 2, 6, bound=1)
    numbers = {w: [n for who, n in taken if who == w] for w in (0, 1)}
    assert numbers == {0: [0, 1, 2], 1: [0, 1, 2, 3]}
    ends = [(span.device, span.end) for span in spans]
    assert ends == [(1, 1.0), (1, 2.0), (0, 3.0), (1, 4.0), (0, 6.0), (1, 7.0)]


def test_who_waits_or_does_not_exist_can_not_finish():
    ledger = Ledger(2, bound=0)
    ledger.finish(1)
    for worker in (1, 2):
        with pytest.raises(ValueError, match=f"worker {worker} computes nothing"):
            ledger.finish(worker)
    assert (ledger.version, ledger.finished, ledger.holds) == (1, [0, 1], {0: 0})


@given(**workers_and_bounds)
@few
def test_repeated_pushes_change_nothing(workers, bound, seed):
    rng, server, sent = random.Random(seed), counting_server(workers, 25, bound), []
    while not server.over:
        ticket = server.pull(rng.choice(sorted(server.tickets)))
        sent.append(ticket)
        assert server.push(ticket, minus_one(ticket)) == server.log[-1]
        again = rng.choice(sent)  # an old one, whose answer was lost
        assert server.push(again, minus_one(again)) is None
        assert same(values(server.params), [np.full(2, float(len(server.log)))])
    assert len({update[:2] for update in server.log}) == len(server.log) == 25


def test_one_ticket_pushed_by_many_threads_at_once_is_applied_once():
    server = counting_server(1, 9)
    ticket, gate = server.pull(0), threading.Barrier(8)

    def send(_: int) -> None:
        gate.wait()
        server.push(ticket, minus_one(ticket))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send, range(8)))
    assert server.params[0].numpy().tolist() == [1, 1]
    assert len(server.log) == 1


def test_a_ticket_holds_what_was_there_when_it_was_written():
    server = counting_server(2, 9)
    first = server.pull(0)
    for _ in range(3):
        ticket = server.pull(1)
        server.push(ticket, minus_one(ticket))
    assert server.pull(0) is first
    assert first.params[0].numpy().tolist() == [0, 0]
    assert server.push(first, minus_one(first)).staleness == 3


def test_waiting_ends_in_an_error_that_says_for_whom():
    server = counting_server(3, 9, bound=0)
    ticket = server.pull(1)
    server.push(ticket, minus_one(ticket))
    with pytest.raises(RuntimeError, match=r"worker 1 waited 0 s for \[0, 2\]"):
        server.pull(1, timeout_s=0)


def test_the_rate_may_depend_on_the_staleness():
    server = counting_server(2, 9, rate=lambda staleness: 1 / (1 + staleness))
    for ticket in (server.pull(0), server.pull(1)):
        server.push(ticket, minus_one(ticket))
    assert server.params[0].numpy().tolist() == [1.5, 1.5]
    assert server.push((ticket := server.pull(0)), minus_one(ticket)).staleness == 1
    assert server.params[0].numpy().tolist() == [2.0, 2.0]


@pytest.mark.parametrize("bound", [0, 1, None])
def test_threads_lose_nothing_keep_the_bound_and_can_be_replayed(bound):
    def of_ticket(ticket):  # whole numbers that depend on what it holds
        p = ticket.params[0]
        return [-(tf.math.floormod(p, 7.0) + 1.0 + ticket.worker)]

    server = counting_server(4, 80, bound)
    pause = random.Random(bound)
    spans = run_workers(server, [of_ticket] * 4, lambda w, n: pause.random() / 1000)
    assert [s.work for s in spans] == server.log
    assert len({update[:2] for update in server.log}) == 80
    done = Counter()
    for update in server.log:
        assert update.number == done[update.worker]
        if bound is not None:
            assert update.number - min(done[w] for w in range(4)) <= bound
        done[update.worker] += 1
    again = counting_server(4, 80, bound)
    again.replay([update.worker for update in server.log], of_ticket)
    assert again.log == server.log
    assert same(values(again.params), values(server.params))


@pytest.mark.parametrize("bound", [0, None])
def test_a_worker_that_fails_stops_all_and_its_error_is_raised(bound):
    def fails(ticket):
        if ticket.number == 3:
            raise ArithmeticError("worker 1 has it")
        return minus_one(ticket)

    server = counting_server(3, 100_000, bound)
    with pytest.raises(ArithmeticError, match="worker 1 has it"):
        run_workers(server, [minus_one, fails, minus_one])
    assert server.over and server.pull(0) is None


def test_a_change_moves_the_slopes_and_leaves_its_mark_once():
    state = tf.constant([0.5, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0], tf.float64)
    number = tf.constant(1)
    change = change_for(state, number, check=True).numpy()
    assert change[len(SLOPES) :].tolist() == [0, 1, 0]
    assert np.any(change[: len(SLOPES)])
    marked = state + change
    assert not np.any(change_for(marked, number, check=True))
    assert change_for(marked, number, check=False)[len(SLOPES) + 1] == 1


def test_the_gradient_of_the_slopes_is_that_of_half_the_mean_square():
    slopes, number = tf.constant([1.0, 0.0, 2.0, 0.0], tf.float64), tf.constant(3)
    X = tf.random.stateless_normal((16, 4), (3, 0), dtype=tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(slopes)
        errors = tf.linalg.matvec(X, slopes - tf.constant(SLOPES, tf.float64))
        loss = tf.reduce_mean(errors**2) / 2
    found = asynchronous.slope_gradient(slopes, number)
    assert distance(found, tape.gradient(loss, slopes)) < 1e-12


def test_the_small_model_is_matrices_with_relus_between_and_he_weights():
    params = asynchronous.small_params((200, 50, 30, 4), seed=3)
    shapes = (200, 50), (50, 30), (30, 4)
    assert same(
        params, [he_normal(s, (3, i), tf.float64) for i, s in enumerate(shapes)]
    )
    rng = np.random.default_rng(0)
    X, y = tf.constant(rng.normal(size=(6, 200))), rng.integers(0, 4, 6)
    with tf.GradientTape() as tape:
        tape.watch(params)
        h = tf.nn.relu(tf.nn.relu(X @ params[0]) @ params[1]) @ params[2]
        right = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(y, h))
    assert distance([asynchronous.small_logits(X, params)], [h]) < 1e-12
    loss, grads = small_gradients(X, y, params)
    assert float(loss) == pytest.approx(float(right), rel=1e-12)
    assert distance(grads, tape.gradient(right, params)) < 1e-12
