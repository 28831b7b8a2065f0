"""The ring over sockets: the sum it gives, and what it says to liars and strangers.

Threads stand in for the processes, but in one test: to a socket they are the same.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from manygpu.processes.workers import cluster_of_workers, everywhere, serve_scripts
from manygpu.scratch.beyond import many_workers
from manygpu.scratch.beyond.many_workers import (
    CLAIM,
    FIELDS,
    GREETING,
    HEADER,
    RECORD_BYTES,
    SEAL_BYTES,
    SECRET_VARIABLE,
    Deadline,
    Door,
    Peer,
    PeerError,
    Ring,
    call_on,
    check_header,
    check_local,
    header_of,
    introduce,
    join_ring,
    member,
    member_step,
    pack_frame,
    receive_exactly,
    receive_frame,
    ring_of_workers,
    socket_allreduce,
    sum_own,
    welcome,
    worker_batches,
)
from manygpu.scratch.data_parallel.collectives import ring_allreduce
from tests.unit.helpers import EIGHT, distance, same, values

SECRET, KEY = secrets.token_bytes(32), secrets.token_bytes(32)
LONG, SHORT = 60.0, 0.3  # seconds: what must not be waited for, and what is
quick = settings(deadline=None, max_examples=25)
NUMBERS = np.array([0.5, -0.25, 3.0])
EXPECTED = header_of(1, 4, NUMBERS)
FRAME = pack_frame(EXPECTED, NUMBERS, KEY)


def at_once(works: Sequence[Callable]) -> list:
    """What each gives, or the error it raises; all run at the same time."""

    def outcome(work: Callable):
        try:
            return work()
        except Exception as wrong:
            return wrong

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(outcome, works))


@contextmanager
def rings(size: int, timeout_s: float = LONG) -> Iterator[list[Ring]]:
    """A ring of threads."""
    doors = [Door(rank, size, SECRET) for rank in range(size)]
    addresses = [door.address for door in doors]
    joined = at_once([partial(join_ring, d, addresses, timeout_s) for d in doors])
    try:
        yield joined
    finally:
        for ring in joined:
            ring.close()


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def on_cpu(value, dtype=None) -> tf.Tensor:
    with tf.device(EIGHT[0]):
        return tf.identity(tf.constant(value, dtype))


def summed(data: Sequence[tf.Tensor], joined: Sequence[Ring]) -> list:
    """What each member gets, or the error it raises."""
    own = zip(data, joined, strict=True)
    return at_once([partial(socket_allreduce, *one) for one in own])


def entries_of(size: int, shape, dtype: str, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(100 * rng.normal(size=shape)).astype(dtype) for _ in range(size)]


# The sum, and the training on it.


@given(
    size=st.integers(1, 4),
    shape=st.lists(st.integers(0, 6), max_size=3).map(tuple),
    dtype=st.sampled_from(["float32", "float64", "float16", "int32"]),
    seed=st.integers(0, 99),
)
@example(size=3, shape=(100_001,), dtype="float32", seed=0)
@settings(deadline=None, max_examples=15)
def test_each_members_sum_is_that_of_one_process_in_every_bit(size, shape, dtype, seed):
    data = [on_cpu(entry) for entry in entries_of(size, shape, dtype, seed)]
    before = [d.numpy().copy() for d in data]
    with rings(size) as joined:
        sums = summed(data, joined)
        assert [ring.messages for ring in joined] == [2 * (size - 1)] * size
    for mine, theirs in zip(sums, ring_allreduce(data), strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        assert mine.numpy().tobytes() == theirs.numpy().tobytes()
    assert same(values(data), before)


def test_a_sum_lies_on_the_device_of_its_entry():
    with tf.device(EIGHT[1]):
        data = tf.identity(tf.ones(5))
    with rings(2) as joined:
        both = at_once([partial(socket_allreduce, data, ring) for ring in joined])
    assert {total.device for total in both} == {data.device}


def squares(X: tf.Tensor, y: tf.Tensor, params: list) -> tuple:
    """A summed loss and its gradients; cheap, and not linear."""
    with tf.GradientTape() as tape:
        found = tf.linalg.matvec(X, params[0]) + params[1]
        loss = tf.reduce_sum((found - tf.cast(y, X.dtype)) ** 4)
    return loss, tape.gradient(loss, params)


def drawn_params() -> list[tf.Variable]:
    drawn = on_cpu(np.linspace(-1, 1, 5)), on_cpu(0.1, "float64")
    return [tf.Variable(one) for one in drawn]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_members_take_the_steps_of_one_process(size):
    rng = np.random.default_rng(size)
    batches = [(rng.random((rows, 5)), rng.integers(0, 2, rows)) for rows in (8, 7, 4)]

    def train(ring: Ring) -> tuple[list[float], list[np.ndarray]]:
        params = drawn_params()
        with tf.device(EIGHT[0]):
            steps = [member_step(ring, *b, params, 0.05, squares) for b in batches]
        return [float(loss) for loss in steps], values(params)

    with rings(size) as joined:
        found = at_once([partial(train, ring) for ring in joined])
    alone, losses = drawn_params(), []
    for X, y in batches:
        loss, grads = squares(on_cpu(X), on_cpu(y), alone)
        losses.append(float(loss) / len(y))
        for p, g in zip(alone, grads, strict=True):
            p.assign_sub(0.05 / len(y) * g)
    for mine, copies in found:
        assert distance(mine, losses) < 1e-12
        assert distance(copies, alone) < 1e-12
        assert same(copies, found[0][1])


def test_a_batch_too_small_for_the_ring_is_refused_before_anything_is_sent():
    params = drawn_params()
    with rings(3) as joined:
        with pytest.raises(ValueError, match="parts is 3 for 2 samples"):
            member_step(joined[0], on_cpu(np.ones((2, 5))), on_cpu([0, 1]), params, 0.1)
        assert joined[0].messages == 0


# Frames: whole or not at all.


@given(cuts=st.lists(st.integers(1, len(FRAME) - 1), max_size=5), seed=st.binary())
@quick
def test_a_frame_may_arrive_in_any_pieces(cuts, seed):
    edges = [0, *sorted(cuts), len(FRAME)]
    with pair() as (one, other):

        def send() -> None:
            for a, b in zip(edges, edges[1:], strict=False):
                one.sendall(FRAME[a:b])
                time.sleep(0.001)
            one.sendall(seed)  # the next message is not touched

        thread = threading.Thread(target=send)
        thread.start()
        found = receive_frame(other, EXPECTED, KEY, Deadline(LONG))
        thread.join()
        one.close()
        assert found.tobytes() == NUMBERS.tobytes()
        assert receive_exactly(other, len(seed), Deadline(LONG)) == seed


def changed(frame: bytes, place: int, cut: int, into: bytes) -> bytes:
    return frame[:place] + into + frame[place + cut :]


@given(
    place=st.integers(0, len(FRAME)),
    cut=st.integers(0, len(FRAME)),
    into=st.binary(max_size=len(FRAME)),
)
@example(place=HEADER.size, cut=1, into=b"\x01")  # a bit of the numbers
@example(place=0, cut=len(FRAME), into=b"")  # a dead peer
@example(place=len(FRAME) - 1, cut=1, into=b"")  # nearly all of it
@settings(deadline=None, max_examples=300)
def test_a_frame_that_was_changed_anywhere_gives_no_numbers(place, cut, into):
    lie = changed(FRAME, place, cut, into)
    with pair() as (one, other):
        one.sendall(lie)
        one.close()
        if lie.startswith(FRAME):  # then what is changed belongs to the next one
            receive_frame(other, EXPECTED, KEY, Deadline(LONG))
            return
        with pytest.raises((ValueError, EOFError)):
            receive_frame(other, EXPECTED, KEY, Deadline(LONG))


@pytest.mark.parametrize("field", range(len(FIELDS)))
def test_each_field_of_a_header_is_compared(field):
    wrong = list(HEADER.unpack(EXPECTED))
    wrong[field] = b"<f4"[: len(wrong[field])] if field in (0, 2) else wrong[field] + 1
    with pytest.raises(ValueError, match=f"field '{FIELDS[field]}' is .* expected"):
        check_header(HEADER.pack(*wrong), EXPECTED)


def test_a_promise_of_many_bytes_reserves_none():
    huge = HEADER.pack(*HEADER.unpack(EXPECTED)[:-1], 2**63)
    with pair() as (one, other):
        one.sendall(huge)
        with pytest.raises(ValueError, match="'bytes' is 9223372036854775808"):
            receive_frame(other, EXPECTED, KEY, Deadline(LONG))


def test_a_frame_of_another_connection_is_refused():
    with pair() as (one, other):
        one.sendall(pack_frame(EXPECTED, NUMBERS, secrets.token_bytes(32)))
        with pytest.raises(ValueError, match="seal is wrong"):
            receive_frame(other, EXPECTED, KEY, Deadline(LONG))


def test_a_byte_now_and_then_does_not_move_the_deadline():
    over = threading.Event()
    with pair() as (one, other):

        def dribble() -> None:
            while not over.wait(SHORT / 20):
                one.sendall(b"x")

        thread = threading.Thread(target=dribble)
        thread.start()
        with pytest.raises(TimeoutError, match=f"of 10000 bytes came within {SHORT}"):
            receive_exactly(other, 10_000, Deadline(SHORT))
        over.set()
        thread.join()


# Neighbours that die, lie or are late.


@contextmanager
def one_member(timeout_s: float) -> Iterator[tuple[Ring, socket.socket, socket.socket]]:
    """Rank 0 of 2, and the far ends of its connections: from the left, to the right."""
    with pair() as (to_left, left), pair() as (right, to_right):
        ring = Ring(0, 2, [Peer(1, left, KEY), Peer(1, right, KEY)], timeout_s)
        with closing(ring):
            yield ring, to_left, to_right


@given(noise=st.binary(max_size=200))
@example(noise=pack_frame(header_of(1, 0, np.ones(2)), np.ones(2), KEY)[:-1])
@example(noise=pack_frame(header_of(1, 1, np.ones(2)), np.ones(2), KEY))  # replayed
@quick
def test_a_neighbour_that_lies_is_named_and_the_ring_closed(noise):
    with one_member(LONG) as (ring, left, right):
        left.sendall(noise)
        left.close()
        with pytest.raises(PeerError, match="^rank 1, the left neighbour, should send"):
            socket_allreduce(on_cpu(np.ones(4)), ring)
        while right.recv(1000):  # until it hangs up on this side as well
            pass
        with pytest.raises(PeerError, match="this ring is closed"):
            socket_allreduce(on_cpu(np.ones(4)), ring)


def test_a_neighbour_that_says_nothing_is_waited_for_no_longer_than_allowed():
    with (
        one_member(SHORT) as (ring, *_),
        pytest.raises(PeerError, match=r"message 0, 2 numbers: 0 of 36 .* 0.3 s"),
    ):
        socket_allreduce(on_cpu(np.ones(4)), ring)


def test_an_interrupt_in_an_exchange_closes_the_ring(monkeypatch):
    """Half a frame may be on its way: nothing fits after it."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with one_member(LONG) as (ring, *_):
        monkeypatch.setattr(many_workers.Peer, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            socket_allreduce(on_cpu(np.ones(4)), ring)
        assert ring.closed


def test_a_neighbour_that_takes_nothing_is_named_too():
    large = np.ones(2_000_000, np.float32)  # more than a socket keeps
    with one_member(1.5) as (ring, left, _):
        half = large[: len(large) // 2]
        frame = pack_frame(header_of(1, 0, half), half, KEY)
        thread = threading.Thread(target=left.sendall, args=(frame,))
        thread.start()
        with pytest.raises(PeerError, match="rank 1, the right neighbour, should take"):
            socket_allreduce(on_cpu(large), ring)
        thread.join()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (np.ones(6), r"'numbers' is \d, expected \d"),
        (np.ones(4, np.float32), r"'dtype' is b'<f\d', expected b'<f\d'"),
    ],
)
def test_members_that_sum_different_things_are_told(other, said):
    with rings(2) as joined:
        ends = summed([on_cpu(np.ones(4)), on_cpu(other)], joined)
    assert all(isinstance(end, PeerError) for end in ends)
    assert any(re.search(said, str(end)) for end in ends)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_when_one_dies_no_other_waits_for_its_deadline(size):
    with rings(size) as joined:
        joined[1].close()
        rest = [ring for ring in joined if ring.rank != 1]
        ends = at_once([partial(socket_allreduce, on_cpu(np.ones(9)), r) for r in rest])
    assert all(isinstance(end, PeerError) for end in ends)
    assert any("rank 1, the " in str(end) for end in ends)


@pytest.mark.parametrize("wrong", [None, [1.0, 2.0], np.ones(3)])
def test_only_tensors_are_summed(wrong):
    with one_member(LONG) as (ring, *_), pytest.raises(TypeError, match="tensor"):
        socket_allreduce(wrong, ring)


def test_a_graph_is_told_that_it_has_no_numbers_to_send():
    with one_member(LONG) as (ring, *_):
        summed_in_graph = tf.function(partial(socket_allreduce, ring=ring))
        with pytest.raises(ValueError, match="outside of one"):
            summed_in_graph(on_cpu(np.ones(4)))
        assert not ring.closed


# Strangers.


def talk(guest: Callable, secret: bytes = SECRET) -> list:
    """What the door of rank 1 of 2 and a guest come to."""
    with pair() as (one, other):
        return at_once([partial(as_door, other, secret), partial(guest, one)])


def as_door(sock: socket.socket, secret: bytes) -> bytes:
    with sock:  # whoever is turned away notices
        return welcome(sock, [0], 2, secret, Deadline(LONG)).key


def speaking(rank: int, size: int, secret: bytes) -> Callable:
    return lambda sock: introduce(sock, rank, size, secret, Deadline(LONG))


def test_neighbours_that_know_the_secret_get_one_key_and_each_time_another():
    keys = [talk(speaking(0, 2, SECRET)) for _ in range(2)]
    assert all(door == guest and len(door) == 32 for door, guest in keys)
    assert keys[0] != keys[1]


@given(noise=st.binary(max_size=150))
@example(noise=bytes(CLAIM.size + SEAL_BYTES))
@settings(deadline=None, max_examples=100)
def test_a_stranger_is_not_let_in_and_hears_only_a_greeting(noise):
    def guest(sock: socket.socket) -> bytes:
        sock.sendall(noise)
        sock.shutdown(socket.SHUT_WR)
        heard = receive_exactly(sock, GREETING.size, Deadline(LONG))
        return bytes(heard)

    door, heard = talk(guest)
    assert isinstance(door, (PermissionError, EOFError))
    assert len(heard) == GREETING.size


def test_a_wrong_secret_is_refused_on_both_sides():
    door, guest = talk(speaking(0, 2, bytes(32)))
    assert isinstance(door, PermissionError)
    assert not isinstance(guest, bytes)

    ends = talk(speaking(0, 2, SECRET), secret=bytes(32))
    assert not any(isinstance(end, bytes) for end in ends)


def test_a_false_door_that_lets_all_in_is_noticed():
    def false_door(sock: socket.socket) -> None:
        sock.sendall(GREETING.pack(b"RING", 1, bytes(32)))
        receive_exactly(sock, CLAIM.size + SEAL_BYTES, Deadline(LONG))
        sock.sendall(bytes(SEAL_BYTES))

    with pair() as (one, other):
        guest = partial(speaking(0, 2, SECRET), one)
        end, _ = at_once([guest, partial(false_door, other)])
    assert isinstance(end, PermissionError)
    assert "the door does not know the secret" in str(end)


class Tap:
    """A connection that notes what is said through it."""

    def __init__(self, sock: socket.socket, said: list[bytes]) -> None:
        self.sock, self.said = sock, said

    def sendall(self, data: bytes) -> None:
        self.said.append(data)
        self.sock.sendall(data)

    def __getattr__(self, name: str):
        return getattr(self.sock, name)


def test_what_was_recorded_is_worthless():
    heard: list[bytes] = []
    door, guest = talk(lambda sock: speaking(0, 2, SECRET)(Tap(sock, heard)))
    assert door == guest
    door, _ = talk(lambda sock: sock.sendall(b"".join(heard)))
    assert isinstance(door, PermissionError)


def test_a_door_that_plays_back_what_another_said_is_noticed():
    """Each guest brings a number of its own, so no answer fits twice."""
    said: list[bytes] = []
    with pair() as (one, other):
        door = partial(welcome, Tap(other, said), [0], 2, SECRET, Deadline(LONG))
        peer, key = at_once([door, partial(speaking(0, 2, SECRET), one)])
    assert peer.key == key and len(said) == 2
    with pair() as (one, other):
        other.sendall(b"".join(said))
        with pytest.raises(PermissionError, match="the door does not know"):
            speaking(0, 2, SECRET)(one)


@pytest.mark.parametrize("claim", [(1, 2), (0, 3), (2, 2)])
def test_a_member_at_the_wrong_door_is_told_so(claim):
    door, _ = talk(speaking(*claim, SECRET))
    assert isinstance(door, ValueError)
    assert f"it is rank {claim[0]} of {claim[1]}, expected rank 0 of 2" in str(door)


def test_another_service_is_no_door():
    with pair() as (one, other):
        other.sendall(b"SSH-2.0-".ljust(GREETING.size))
        with pytest.raises(ValueError, match="no door of a ring: it says b'SSH-2'"):
            introduce(one, 0, 2, SECRET, Deadline(LONG))


def test_strangers_do_not_keep_the_neighbour_out():
    """Silent ones are still at the door when the neighbour is in; later they go."""
    door, other = Door(1, 2, SECRET), Door(0, 2, SECRET)
    silent = [socket.create_connection(door.address) for _ in range(5)]
    for one in silent:
        assert one.recv(100)[:4] == b"RING"  # it is being waited for
    door.patience_s = SHORT
    late = socket.create_connection(door.address)
    addresses = [other.address, door.address]
    joined = at_once([partial(join_ring, d, addresses, LONG) for d in (door, other)])
    assert [ring.rank for ring in joined] == [1, 0]
    assert late.recv(100)[:4] == b"RING"
    late.settimeout(LONG)
    assert late.recv(100) == b""  # turned away
    for it in (*joined, *silent, late):
        it.close()


def join_two(one: Door, other: Door) -> None:
    """Rank 0 and rank 1, in any order, join and sum."""
    doors = sorted([one, other], key=lambda door: door.rank)
    addresses = [door.address for door in doors]
    joined = at_once([partial(join_ring, d, addresses, LONG) for d in doors])
    sums = summed([on_cpu(np.ones(4))] * 2, joined)
    assert same(sums, [np.full(4, 2.0)] * 2)
    for ring in joined:
        ring.close()


def test_a_full_door_hangs_up_and_the_neighbour_knocks_again():
    door = Door(1, 2, SECRET)
    door.places = threading.Semaphore(2)
    door.patience_s = LONG  # only their own end sends the silent ones away
    silent = [socket.create_connection(door.address) for _ in range(2)]
    for one in silent:
        assert one.recv(100)[:4] == b"RING"  # it has a place
    with socket.create_connection(door.address) as surplus:
        surplus.settimeout(LONG)
        with suppress(ConnectionResetError):
            assert surplus.recv(100) == b""
    wait_for(door, 1)
    assert "too many are at the door" in door.turned_away[0]
    go = threading.Thread(target=lambda: (wait_for(door, 3), close_all(silent)))
    go.start()
    join_two(Door(0, 2, SECRET), door)  # in vain, until a silent one has gone
    go.join()


def wait_for(door: Door, many: int) -> None:
    """Until so many were turned away."""
    allowed = Deadline(LONG)
    while len(door.turned_away) < many and allowed.left():
        time.sleep(0.01)


def close_all(socks: Sequence[socket.socket]) -> None:
    for sock in socks:
        sock.close()


def test_a_slow_member_that_was_hung_up_on_is_let_in_later(monkeypatch):
    door, slow = Door(1, 2, SECRET), Door(0, 2, SECRET)
    door.patience_s, at_the_door = SHORT, []

    def dawdle(sock, rank, *rest):
        at_the_door.append(rank)
        if at_the_door.count(0) == 1 and rank == 0:
            wait_for(door, 1)
            door.patience_s = LONG
        return introduce(sock, rank, *rest)

    monkeypatch.setattr(many_workers, "introduce", dawdle)
    join_two(slow, door)
    assert at_the_door.count(0) == 2
    assert "came within 0.3 s" in door.turned_away[0]


class Unlucky:
    """A listening socket that accepts only at the second try."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.tries = sock, 0

    def accept(self):
        self.tries += 1
        if self.tries == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return self.sock.accept()

    def __enter__(self) -> Unlucky:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def __getattr__(self, name: str):
        return getattr(self.sock, name)


def test_a_door_outlives_a_lack_of_files(monkeypatch):
    create = socket.create_server
    monkeypatch.setattr(
        many_workers.socket, "create_server", lambda *a, **k: Unlucky(create(*a, **k))
    )
    doors = Door(0, 2, SECRET), Door(1, 2, SECRET)
    join_two(*doors)
    assert all(door.listener.tries > 1 for door in doors)


def test_a_door_outlives_a_lack_of_threads(monkeypatch):
    refused = []

    class Thread(threading.Thread):
        """The first one that is to greet a guest can't be started."""

        def start(self) -> None:
            greets = getattr(self._target, "__func__", None) is many_workers.Door.greet
            if greets and not refused:
                refused.append(self)
                raise RuntimeError("can't start new thread")
            super().start()

    some = SimpleNamespace(Thread=Thread, Semaphore=threading.Semaphore)
    monkeypatch.setattr(many_workers, "threading", some)
    join_two(Door(0, 2, SECRET), Door(1, 2, SECRET))
    assert len(refused) == 1


def test_who_waits_in_vain_says_for_whom_and_who_came():
    door, never = Door(1, 3, SECRET), Door(2, 3, SECRET)
    with socket.create_connection(door.address) as stranger:
        stranger.sendall(bytes(CLAIM.size + SEAL_BYTES))
        while not door.turned_away:
            time.sleep(0.01)
        addresses = [door.address, door.address, never.address]
        with pytest.raises(PeerError, match=r"(?s)rank 0, the left .*came: .*secret"):
            join_ring(door, addresses, SHORT)
    never.close()


def test_who_is_no_door_is_called_once_and_not_until_the_deadline():
    door, calls, over = Door(0, 2, SECRET), [], threading.Event()

    def another_service(listener: socket.socket) -> None:
        with suppress(OSError):  # until it is closed
            while not over.is_set():
                calls.append(listener.accept()[0])
                calls[-1].sendall(b"SSH-2.0-".ljust(GREETING.size))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=another_service, args=(listener,))
        thread.start()
        with pytest.raises(PeerError, match="it is no door of a ring"):
            call_on(listener.getsockname(), door, Deadline(6 * many_workers.PAUSE_S))
        called = len(calls)
        over.set()
        socket.create_connection(listener.getsockname()).close()
        thread.join()
    assert called == 1
    close_all(calls)
    door.close()


def test_a_neighbour_that_is_not_there_is_named():
    door = Door(0, 2, SECRET)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        gone = nobody.getsockname()
    with pytest.raises(PeerError, match="rank 1, the right .* should answer at"):
        join_ring(door, [door.address, gone], LONG)
    assert door.closed


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.2"])
def test_a_door_of_this_machine_may_be_named(host):
    door = Door(0, 1, SECRET, host)
    assert door.address[0].startswith("127.")
    door.close()
    check_local("example.org", elsewhere=True)


# Processes.


def test_a_member_takes_its_secret_from_the_environment_and_out_of_it(monkeypatch):
    monkeypatch.setenv(SECRET_VARIABLE, SECRET.hex())
    answer = member(0, 1, LONG)
    assert SECRET_VARIABLE not in os.environ
    assert answer([answer(None)]) is None
    np.testing.assert_array_equal(answer((sum_own, [NUMBERS])), NUMBERS)


def test_processes_sum_and_a_death_among_them_is_told():
    entries = entries_of(2, 7, "float64", 0)
    with ring_of_workers(2, LONG) as workers:
        sums = everywhere(workers, (sum_own, entries))
        assert same(sums, values(ring_allreduce([on_cpu(e) for e in entries])))
        workers[0].process.kill()
        workers[0].process.join()
        workers[1].send((sum_own, entries))
        with pytest.raises(RuntimeError, match="PeerError: rank 0, the "):
            workers[1].receive()
    assert all(worker.process.exitcode is not None for worker in workers)


# The engine.

SCRIPT = """
import sys
import numpy as np
import tensorflow as tf
from manygpu.processes.cluster import cluster_resolver
from manygpu.scratch.beyond.many_workers import worker_batches

strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver())
with strategy.scope():  # a small model: this is about the cluster
    W = tf.Variable(tf.zeros((784, 10), tf.float64))

def replica(X, y):
    X = tf.reshape(tf.cast(X, tf.float64), (-1, 784))
    off = tf.nn.softmax(X @ W) - tf.one_hot(y, 10, dtype=tf.float64)
    context = tf.distribute.get_replica_context()
    W.assign_sub(0.001 * context.all_reduce("SUM", tf.matmul(X, off, transpose_a=True)))

def own(me):
    of, index = me.num_input_pipelines, me.input_pipeline_id
    return worker_batches(sys.argv[2:], 2, index, of)

step = tf.function(lambda *batch: strategy.run(replica, batch), autograph=False)
steps = [step(*b) for b in strategy.distribute_datasets_from_function(own)]
if strategy.cluster_resolver.task_id == 0:
    np.save(sys.argv[1], W.numpy())
print(strategy.num_replicas_in_sync, len(steps), float(tf.norm(W)).hex())
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[str]:
    """Six files of records; a record's label tells where it stands."""
    folder, rng = tmp_path_factory.mktemp("records"), np.random.default_rng(0)
    names = [str(folder / f"{j}.records") for j in range(6)]
    for j, name in enumerate(names):
        records = rng.integers(0, 256, (50 * 2, RECORD_BYTES), np.uint8)
        records[:, 0] = (np.arange(100) + j) % 10
        records.tofile(name)
    return names


@pytest.mark.parametrize("workers", [1, 2, 3, 6])
def test_the_workers_parts_of_a_batch_are_the_batch(workers, files):
    parts = [worker_batches(files, 2, i, workers) for i in range(workers)]
    for step, batch in enumerate(zip(*(p.take(8) for p in parts), strict=True)):
        labels = np.concatenate([y for _, y in batch])
        expected = [2 * step + row + j for j in range(6) for row in range(2)]
        assert sorted(labels) == sorted(e % 10 for e in expected)
        assert {X.shape for X, _ in batch} == {(12 // workers, 28, 28, 1)}
        assert all(np.min(X) >= 0 and np.max(X) <= 1 for X, _ in batch)
    assert sum(1 for _ in parts[-1]) == 50


def test_each_worker_opens_every_nth_file_from_its_own_on(files):
    for index in range(3):
        labels = next(iter(worker_batches(files, 1, index, 3)))[1]
        assert list(labels) == [index, index + 3]  # a file's first label is its number


def trained_alone(files: list[str]) -> np.ndarray:
    """The same steps, in NumPy."""
    W = np.zeros((784, 10))
    for X, y in worker_batches(files, 2, 0, 1):
        X = X.numpy().reshape(-1, 784).astype(float)
        odds = np.exp(X @ W)
        off = odds / odds.sum(axis=1, keepdims=True) - np.eye(10)[y.numpy()]
        W -= 0.001 * X.T @ off
    return W


def listens_at(process: int) -> set[str]:
    """The addresses, as Linux writes them, at which a process awaits connections."""
    fds = Path(f"/proc/{process}/fd").iterdir()
    its = {os.readlink(fd) for fd in fds if fd.is_symlink()}
    tables = [Path(f"/proc/{process}/net/{table}") for table in ("tcp", "tcp6")]
    text = "\n".join(t.read_text(encoding="ascii") for t in tables if t.exists())
    rows = [line.split() for line in text.splitlines() if line.strip()]
    listening = [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in its]
    return {row[1].split(":")[0] for row in listening}


def train_in(workers: int, folder: Path, files: list[str]) -> np.ndarray:
    """Train by the script, on a cluster; return what the chief saved."""
    script, saved = folder / "script.py", folder / "saved.npy"
    script.write_text(SCRIPT, encoding="utf-8")
    with cluster_of_workers(workers, serve_scripts) as cluster:
        said = everywhere(cluster, [script, saved, *files])
        if sys.platform == "linux":  # TF_CONFIG says 127.0.0.1, but as the page warns:
            at = [listens_at(worker.process.pid) for worker in cluster]
            assert all(any(set(one) == {"0"} for one in own) for own in at), at
    assert len(set(said)) == 1  # the same weights
    assert said[0].startswith(f"{workers} 50 ")
    weights = np.load(saved)
    saved.unlink()
    return weights


def test_clusters_start_train_and_end_time_after_time(tmp_path, files):
    """50 steps each. MANYGPU_TRIALS says how often; each must end."""
    alone = trained_alone(files)
    for _ in range(int(os.environ.get("MANYGPU_TRIALS", "1"))):
        for workers in (2, 3):
            assert distance(train_in(workers, tmp_path, files), alone) < 1e-10
