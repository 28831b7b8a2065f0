"""Who is let in at a door, who is turned away, and that no wait is without a limit."""

import errno
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from manygpu.processes import door as doors
from manygpu.processes.door import (
    CLAIM,
    GREETING,
    SEAL_BYTES,
    Deadline,
    Door,
    check_local,
    introduce,
    knock,
    receive_exactly,
    welcome,
)
from tests.threads import LONG, SECRET, at_once, pair

SHORT = 0.3  # seconds that are waited for


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan"), float("inf")])
def test_a_deadline_comes_and_is_not_over_yet(timeout_s):
    with pytest.raises(ValueError, match="timeout_s must be above 0 and finite"):
        Deadline(timeout_s)


def test_bytes_that_do_not_come_in_time_are_counted():
    with pair() as (one, other):
        one.sendall(b"abc")
        with pytest.raises(TimeoutError, match="3 of 5 bytes came within 0.3 s"):
            receive_exactly(other, 5, Deadline(SHORT))
        one.close()
        with pytest.raises(EOFError, match="ended after 0 of 2 bytes"):
            receive_exactly(other, 2, Deadline(LONG))


# The handshake.


def talk(guest: Callable, secret: bytes = SECRET) -> list:
    """What the door of rank 1 of 2 and a guest come to."""

    def door(sock: socket.socket) -> bytes:
        with sock:  # whoever is turned away notices
            return welcome(sock, [0], 2, secret, Deadline(LONG)).key

    with pair() as (one, other):
        return at_once([partial(door, other), partial(guest, one)])


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
        return receive_exactly(sock, GREETING.size, Deadline(LONG))

    door, heard = talk(guest)
    assert isinstance(door, (PermissionError, EOFError))
    assert len(heard) == GREETING.size


class Tap:
    """A connection that notes what is said through it."""

    def __init__(self, sock: socket.socket, said: list[bytes]) -> None:
        self.sock, self.said = sock, said

    def sendall(self, data: bytes) -> None:
        self.said.append(data)
        self.sock.sendall(data)

    def __getattr__(self, name: str):
        return getattr(self.sock, name)


def test_what_was_recorded_is_worthless_to_a_false_guest_and_to_a_false_door():
    """Each of them brings a number of its own, so no answer fits twice."""
    from_guest, from_door = [], []
    guest = speaking(0, 2, SECRET)
    with pair() as (one, other):
        taps = Tap(one, from_guest), Tap(other, from_door)
        door = partial(welcome, taps[1], [0], 2, SECRET, Deadline(LONG))
        peer, key = at_once([door, partial(guest, taps[0])])
    assert peer.key == key and len(from_door) == 2
    door, _ = talk(lambda sock: sock.sendall(b"".join(from_guest)))
    assert isinstance(door, PermissionError)
    with pair() as (one, other):
        other.sendall(b"".join(from_door))
        with pytest.raises(PermissionError, match="the door does not know the secret"):
            guest(one)


@pytest.mark.parametrize("claim", [(1, 2), (0, 3), (2, 2)])
def test_a_member_at_the_wrong_door_is_told_so(claim):
    door, _ = talk(speaking(*claim, SECRET))
    assert isinstance(door, ValueError)
    assert f"it is rank {claim[0]} of {claim[1]}, expected rank 0 of 2" in str(door)


def close_all(things: Sequence) -> None:
    for one in things:
        one.close()


def silent_at(door: Door, many: int) -> list[socket.socket]:
    """So many who say nothing, and are being waited for."""
    silent = [socket.create_connection(door.address) for _ in range(many)]
    for one in silent:
        one.settimeout(LONG)
        assert one.recv(100)[:4] == b"RING"
    return silent


def wait_for(door: Door, many: int) -> None:
    """Until so many were turned away."""
    allowed = Deadline(LONG)
    while len(door.turned_away) < many and allowed.left():
        time.sleep(0.01)


def come_in(door: Door) -> None:
    """The neighbour knocks until it is let in, and both have one key."""
    call = partial(knock, door.address, 0, 2, SECRET, Deadline(LONG))
    (sock, key), guest = at_once([call, partial(door.admit, Deadline(LONG))])
    assert (guest.rank, guest.key) == (0, key)
    close_all([sock, guest.sock, door])


def test_strangers_do_not_keep_the_neighbour_out():
    """Silent ones are still at the door when the neighbour is in; later they go."""
    door = Door(1, 2, SECRET)
    silent = silent_at(door, 5)
    door.patience_s = SHORT
    silent += silent_at(door, 1)
    come_in(door)
    assert silent[-1].recv(100) == b""  # turned away
    wait_for(door, 1)
    assert f"came within {SHORT} s" in door.turned_away[0]
    close_all(silent)


def test_a_full_door_hangs_up_and_the_neighbour_knocks_again():
    door = Door(1, 2, SECRET)
    door.places = threading.Semaphore(2)
    door.patience_s = LONG  # only their own end sends the silent ones away
    silent = silent_at(door, 2)
    with socket.create_connection(door.address) as surplus:
        surplus.settimeout(LONG)
        with suppress(ConnectionResetError):
            assert surplus.recv(100) == b""
    wait_for(door, 1)
    assert "too many are at the door" in door.turned_away[0]
    go = threading.Thread(target=lambda: (wait_for(door, 3), close_all(silent)))
    go.start()
    come_in(door)  # in vain, until a silent one has gone
    go.join()


def test_a_door_outlives_a_lack_of_files_and_of_threads(monkeypatch):
    """The first call of all fails, and so does the first thread for a guest."""
    accept, start, failed = socket.socket.accept, threading.Thread.start, []

    def without_files(listener):
        if "files" not in failed:
            failed.append("files")
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    def without_threads(thread):
        greets = getattr(thread._target, "__func__", None) is Door.greet
        if greets and "threads" not in failed:
            failed.append("threads")
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(socket.socket, "accept", without_files)
    monkeypatch.setattr(threading.Thread, "start", without_threads)
    come_in(Door(1, 2, SECRET))
    assert failed == ["files", "threads"]


def test_who_waits_in_vain_is_told_who_came():
    door = Door(1, 3, SECRET)
    with socket.create_connection(door.address) as stranger:
        stranger.sendall(bytes(CLAIM.size + SEAL_BYTES))
        wait_for(door, 1)
        with pytest.raises(TimeoutError, match=r"not within 0.3 s; came: .*secret"):
            door.admit(Deadline(SHORT))
    door.close()


def test_who_is_no_door_is_called_once_and_not_until_the_deadline():
    calls = []

    def another_service(listener: socket.socket) -> None:
        with suppress(OSError):  # until nobody calls any more
            listener.settimeout(5 * doors.PAUSE_S)
            while True:
                calls.append(listener.accept()[0])
                calls[-1].sendall(b"SSH-2.0-".ljust(GREETING.size))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=another_service, args=(listener,))
        thread.start()
        with pytest.raises(ValueError, match="no door of a ring: it says b'SSH-2'"):
            knock(listener.getsockname(), 0, 2, SECRET, Deadline(LONG))
        thread.join()
    assert len(calls) == 1
    close_all(calls)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2"])
def test_a_door_of_this_machine_may_be_named(host):
    door = Door(0, 1, SECRET, host)
    assert door.address[0].startswith("127.")
    door.close()
    check_local("example.org", elsewhere=True)
