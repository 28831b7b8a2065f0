"""The ring over sockets: the sum it gives, and what it says to liars.

Threads stand in for the processes, but in one test: to a socket they are the same.
"""

import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from manygpu.processes.door import (
    CLAIM,
    GREETING,
    SEAL_BYTES,
    Deadline,
    Door,
    receive_exactly,
)
from manygpu.scratch.beyond import many_workers
from manygpu.scratch.beyond.many_workers import (
    FIELDS,
    HEADER,
    SECRET_VARIABLE,
    Peer,
    PeerError,
    Ring,
    call_on,
    header_of,
    join_ring,
    member,
    member_step,
    pack_frame,
    receive_frame,
    socket_allreduce,
    sum_own,
)
from manygpu.scratch.data_parallel.collectives import ring_allreduce
from tests.threads import LONG, SECRET, at_once, pair
from tests.unit.helpers import EIGHT
from tests.unit.scratch.beyond.helpers import rings

KEY, SHORT = secrets.token_bytes(32), 0.3  # seconds that are waited for
quick = settings(deadline=None, max_examples=25)
NUMBERS = np.array([0.5, -0.25, 3.0])
EXPECTED = header_of(1, 4, NUMBERS)
FRAME = pack_frame(EXPECTED, NUMBERS, KEY)


def on_cpu(value, dtype=None) -> tf.Tensor:
    with tf.device(EIGHT[0]):
        return tf.identity(tf.constant(value, dtype))


def summed(data: Sequence, members: Sequence[Ring]) -> list:
    """What each member gets, or the error it raises."""
    own = zip(data, members, strict=True)
    return at_once([partial(socket_allreduce, on_cpu(d), ring) for d, ring in own])


def entries_of(size: int, shape, dtype: str, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(100 * rng.normal(size=shape)).astype(dtype) for _ in range(size)]


# The sum. trainings/test_one_device.py trains on it, and the page in processes.


@given(
    size=st.integers(1, 4),
    shape=st.lists(st.integers(0, 6), max_size=3).map(tuple),
    dtype=st.sampled_from(["float32", "float64", "float16", "int32"]),
    seed=st.integers(0, 99),
)
@example(size=3, shape=(100_001,), dtype="float32", seed=0)
@settings(deadline=None, max_examples=15)
def test_each_members_sum_is_that_of_one_process_in_every_bit(size, shape, dtype, seed):
    data = entries_of(size, shape, dtype, seed)
    with rings(size) as members:
        sums = summed(data, members)
        assert [ring.messages for ring in members] == [2 * (size - 1)] * size
    alone = ring_allreduce([on_cpu(entry) for entry in data])
    for mine, theirs in zip(sums, alone, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        assert mine.numpy().tobytes() == theirs.numpy().tobytes()


def test_a_sum_lies_on_the_device_of_its_entry():
    with tf.device(EIGHT[1]):
        data = tf.identity(tf.ones(5))
    with rings(2) as members:
        both = at_once([partial(socket_allreduce, data, ring) for ring in members])
    assert {total.device for total in both} == {data.device}


# Frames: whole or not at all.


@given(cuts=st.lists(st.integers(1, len(FRAME) - 1), max_size=5), rest=st.binary())
@quick
def test_a_frame_may_arrive_in_any_pieces(cuts, rest):
    edges = [0, *sorted(cuts), len(FRAME)]
    with pair() as (one, other):

        def send() -> None:
            for a, b in zip(edges, edges[1:], strict=False):
                one.sendall(FRAME[a:b])
                time.sleep(0.001)
            one.sendall(rest)  # the next message is not touched

        thread = threading.Thread(target=send)
        thread.start()
        found = receive_frame(other, EXPECTED, KEY, Deadline(LONG))
        thread.join()
        assert found.tobytes() == NUMBERS.tobytes()
        assert receive_exactly(other, len(rest), Deadline(LONG)) == rest


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
    lie = FRAME[:place] + into + FRAME[place + cut :]
    with pair() as (one, other):
        one.sendall(lie)
        one.close()
        if lie.startswith(FRAME):  # then what is changed belongs to the next one
            receive_frame(other, EXPECTED, KEY, Deadline(LONG))
            return
        with pytest.raises((ValueError, PermissionError, EOFError)):
            receive_frame(other, EXPECTED, KEY, Deadline(LONG))


def test_a_header_has_these_bytes():
    """Magic, version, dtype, rank; message, numbers, bytes: so others say it, too."""
    assert EXPECTED[:12] == b"RING\x01<f8\x00\x00\x00\x01"
    assert EXPECTED[12:] == b"".join(n.to_bytes(8, "big") for n in (4, 3, 24))


@pytest.mark.parametrize("field", range(len(FIELDS)))
def test_each_field_of_a_header_is_compared_before_memory_is_reserved(field):
    wrong = list(HEADER.unpack(EXPECTED))
    wrong[field] = b"<f4"[: len(wrong[field])] if field in (0, 2) else 2**7
    if FIELDS[field] == "bytes":
        wrong[field] = 2**63
    with pair() as (one, other):
        one.sendall(HEADER.pack(*wrong))
        with pytest.raises(ValueError, match=f"field '{FIELDS[field]}' is .* expected"):
            receive_frame(other, EXPECTED, KEY, Deadline(LONG))


def test_a_frame_of_another_connection_is_refused():
    with pair() as (one, other):
        one.sendall(pack_frame(EXPECTED, NUMBERS, bytes(32)))
        with pytest.raises(PermissionError, match="seal is wrong"):
            receive_frame(other, EXPECTED, KEY, Deadline(LONG))


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


def test_what_can_not_be_sent_is_refused_and_the_ring_stays_open():
    with one_member(LONG) as (ring, *_):
        with pytest.raises(TypeError, match="tensor"):
            socket_allreduce(np.ones(3), ring)
        with pytest.raises(ValueError, match="outside of one"):
            tf.function(partial(socket_allreduce, ring=ring))(on_cpu(np.ones(4)))
        with pytest.raises(ValueError, match="parts is 2 for 1 samples"):
            member_step(ring, on_cpu(np.ones((1, 5))), on_cpu([0]), [], 0.1)
        assert not ring.closed and ring.messages == 0


# Joining.


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


def test_a_right_neighbour_that_is_no_member_is_named():
    door = Door(0, 2, SECRET)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def another_service() -> None:
            with listener.accept()[0] as call:
                call.sendall(b"SSH-2.0-".ljust(GREETING.size))

        thread = threading.Thread(target=another_service)
        thread.start()
        with pytest.raises(PeerError, match="rank 1, the right .*: it says b'SSH-2'"):
            call_on(listener.getsockname(), door, Deadline(LONG))
        thread.join()
    door.close()


def test_a_neighbour_that_is_not_there_is_named():
    door = Door(0, 2, SECRET)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        gone = nobody.getsockname()
    with pytest.raises(PeerError, match="rank 1, the right .* should answer at"):
        join_ring(door, [door.address, gone], LONG)
    assert door.closed


# Processes.


def test_a_member_takes_its_secret_from_the_environment_and_out_of_it(monkeypatch):
    monkeypatch.setenv(SECRET_VARIABLE, SECRET.hex())
    answer = member(0, 1, LONG)
    assert SECRET_VARIABLE not in os.environ
    assert answer([answer(None)]) is None
    np.testing.assert_array_equal(answer((sum_own, [NUMBERS])), NUMBERS)
