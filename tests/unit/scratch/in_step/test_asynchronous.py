"""Synchronous and asynchronous: nothing lost, nothing twice, nobody too far ahead.

Gradients are whole numbers where they can be, so that sums are exact in any order.
MANYGPU_TRIALS is the number of updates in the test with processes that are killed.
"""

from __future__ import annotations

import math
import os
import random
import threading
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch import (
    Ledger,
    ParameterServer,
    arrivals,
    run_workers,
    sgd,
)
from manygpu.scratch.in_step.asynchronous import (
    SLOPES,
    LocalCluster,
    ask,
    change_for,
    replace_worker,
    slope_gradient,
    small_gradients,
    small_logits,
    small_params,
    wait_until,
    worker_gradients,
)
from tests.unit.helpers import EIGHT, distance, same, values

ONE = EIGHT[0]
UPDATES = int(os.environ.get("MANYGPU_TRIALS", "40"))
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


# The ledger and the clock.


@given(**workers_and_bounds)
@quick
def test_nobody_is_too_far_ahead_and_nobody_waits_for_ever(workers, bound, seed):
    updates = 60
    spans = arrivals(drawn_seconds(seed), workers, updates, bound)
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
        since |= dict.fromkeys(free, version + 1)
        log.append(update)
    out = sum(ledger.version - held for held in ledger.holds.values())
    assert sum(update.staleness for update in log) + out == at_work
    if bound is None:
        assert at_work == 50 * (workers - 1)


@given(workers=st.integers(1, 6), bound=st.integers(0, 4), seed=st.integers(0, 999))
@quick
def test_a_bound_on_steps_is_a_bound_on_staleness(workers, bound, seed):
    most = (workers - 1) * (2 * bound + 1)
    rng, ledger = random.Random(seed), Ledger(workers, bound)
    for _ in range(60):
        update, _ = ledger.finish(rng.choice(sorted(ledger.holds)))
        assert update.staleness <= most
    # An order that reaches it: 0 runs ahead, then all others do while it computes.
    ledger, others = Ledger(workers, bound), range(1, workers)
    for worker in [0] * bound + [w for w in others for _ in range(bound + 1)]:
        ledger.finish(worker)
    for worker in [w for w in others for _ in range(bound)]:
        ledger.finish(worker)
    assert ledger.finish(0)[0].staleness == most


def test_in_step_all_wait_for_the_slowest_and_out_of_step_nobody():
    seconds = [1.0, 2.0, 4.0]
    spans = arrivals(lambda w, n: seconds[w], 3, 30, bound=0)
    assert max(s.end for s in spans) == 10 * 4
    assert [s.work.staleness for s in spans] == [0, 1, 2] * 10
    spans = arrivals(lambda w, n: seconds[w], 3, 700)
    assert max(s.end for s in spans) == pytest.approx(700 / (1 + 1 / 2 + 1 / 4), 0.01)


def test_who_waited_begins_its_own_next_step():
    """Worker 1 ends each second, worker 0 each third; 0 lets 1 be one step ahead."""
    taken = []

    def seconds(worker, number):
        taken.append((worker, number))
        return 1.0 if worker else 3.0

    spans = arrivals(seconds, 2, 6, bound=1)
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


# The server.


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

    def send():
        gate.wait()
        server.push(ticket, minus_one(ticket))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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


# One device, and real threads.


def linear(X, y, params):
    """A linear model's summed squared error and its gradient."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((tf.linalg.matvec(X, params[0]) - y) ** 2)
    return loss, tape.gradient(loss, params)


def linear_batch(worker: int, number: int):
    rng = np.random.default_rng([worker, number])
    return rng.normal(size=(5, 3)), rng.normal(size=5)


@pytest.mark.parametrize("workers, bound", [(1, None), (1, 0), (3, 0)])
def test_one_worker_or_bound_0_is_one_device(workers, bound):
    steps, start = 12, [tf.zeros(3, tf.float64)]
    rate = 0.1 / (5 * workers)
    server = ParameterServer(
        start, ONE, workers, steps * workers, lambda staleness: rate, bound
    )
    computes = [worker_gradients(start, d, linear_batch, linear) for d in EIGHT]
    run_workers(server, computes[:workers])
    params = [tf.Variable(start[0])]
    for t in range(steps):
        batches = [linear_batch(worker, t) for worker in range(workers)]
        X, y = (np.concatenate(part) for part in zip(*batches, strict=True))
        sgd(params, linear(tf.constant(X), tf.constant(y), params)[1], rate)
    assert distance(server.params, params) <= 1e-12


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


# The engine.


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
    found = slope_gradient(slopes, number)
    assert distance(found, tape.gradient(loss, slopes)) < 1e-12


def test_updates_are_applied_once_though_workers_are_killed():
    """Once by hand at the worst moment, with and without the check; then at any."""
    cluster = LocalCluster(workers=2, updates=UPDATES)
    try:
        for first, check in ((0, False), (2, True)):
            before = ask(cluster, "hold", True)["applied"]
            ask(cluster, "schedule", first, first + 2, check)
            wait_until(cluster, sum(before) + 2)
            replace_worker(cluster, 1)  # it has written, and not yet reported
            ask(cluster, "hold", False)
            applied = ask(cluster, "join")["applied"][first : first + 2]
            assert applied == [1, 1] if check else sum(applied) > 2
        half = UPDATES // 2
        already = sum(ask(cluster, "schedule", 4, half, True)["applied"][:4])
        at = wait_until(cluster, already + (half - 4) // 2) - already
        replace_worker(cluster, 1)
        ask(cluster, "schedule", half, UPDATES, True)  # some are left, on any machine
        after = ask(cluster, "join", timeout_s=300)
    finally:
        cluster.close()
    print(f"killed after {at} of {half - 4}: {Counter(after['applied'][2:])}")
    assert after["applied"][2:] == [1] * (UPDATES - 2)
    assert distance(tf.constant(after["slopes"]), tf.constant(SLOPES)) < 1


def test_the_small_model_is_matrices_with_relus_between_and_he_weights():
    params = small_params((200, 50, 30, 4), seed=3)
    assert [p.shape.as_list() for p in params] == [[200, 50], [50, 30], [30, 4]]
    for p in params[:2]:
        spread = math.sqrt(2 / p.shape[0])
        assert abs(np.std(p) / spread - 1) < 5 / math.sqrt(2 * tf.size(p).numpy())
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 200)), rng.integers(0, 4, 6)
    h = X
    for W in values(params[:-1]):
        h = np.maximum(h @ W, 0)
    wanted = h @ params[-1].numpy()
    np.testing.assert_allclose(small_logits(X, params), wanted, rtol=1e-12)
    loss, grads = small_gradients(X, y, params)
    each = np.log(np.exp(wanted).sum(1)) - wanted[np.arange(6), y]
    assert float(loss) == pytest.approx(each.sum(), rel=1e-12)
    step = 1e-6 * rng.normal(size=(30, 4))
    ahead, back = (
        float(small_gradients(X, y, [*params[:2], params[2] + s * step])[0])
        for s in (1, -1)
    )
    assert (ahead - back) / 2 == pytest.approx(np.sum(grads[2] * step), rel=1e-6)
