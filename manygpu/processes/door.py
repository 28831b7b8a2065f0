"""A door on the network that only those who know a secret can pass.

Whoever listens on a port can be called by everybody. A `Door` lets in a guest that
proves that it knows the secret, without saying it, and gives both sides a key for the
seals of their messages. A guest calls by `knock`. The handshake:

1. the door sends a nonce, a fresh random number;
2. the guest sends its rank, the size of its ring, a nonce of its own, and a seal of all
   this, with the secret as its key: a recorded answer belongs to an old nonce;
3. the door sends a seal of the same, with another label.

`multiprocessing.connection` has a handshake too, but its listener waits for a silent
guest for as long as the guest likes, greets one at a time, and makes no key. Here every
wait has a limit, and what fails says who was waited for. Nothing is encrypted.
"""

from __future__ import annotations

import hmac
import ipaddress
import queue
import secrets
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from manygpu.checks import check_rank

MAGIC, VERSION = b"RING", 1
GREETING = struct.Struct("!4sB32s")  # magic, version, the door's nonce
CLAIM = struct.Struct("!II32s")  # rank, size of the ring, the guest's nonce
SEAL_BYTES = 32  # of an HMAC with SHA-256
LEAST_SECRET = 16  # bytes; fewer can be guessed, from a recorded handshake
GUESTS, HANDSHAKE_S, PAUSE_S = 32, 5.0, 0.1  # at a time; for each; between tries


class Deadline:
    """The moment by which an operation must be over, however often it waits.

    timeout_s: seconds from now. ValueError unless it's above 0 and finite.
    """

    def __init__(self, timeout_s: float) -> None:
        if not 0 < timeout_s < float("inf"):
            raise ValueError(f"timeout_s must be above 0 and finite, got {timeout_s!r}")
        self.timeout_s, self.end = timeout_s, time.monotonic() + timeout_s

    def left(self) -> float:
        """Return the seconds that are left; TimeoutError if there are none."""
        seconds = self.end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError(f"not done within {self.timeout_s:g} s")
        return seconds


def receive_exactly(sock: socket.socket, size: int, deadline: Deadline) -> bytearray:
    """Return the next `size` bytes of a connection.

    Raises EOFError if it ends before, TimeoutError if they aren't all there in time.
    """
    data, count = bytearray(size), 0
    while count < size:
        try:
            sock.settimeout(deadline.left())
            new = sock.recv_into(memoryview(data)[count:])  # no copy
        except TimeoutError:
            seconds = f"{deadline.timeout_s:g} s"
            raise TimeoutError(
                f"{count} of {size} bytes came within {seconds}"
            ) from None
        if not new:  # only the end of a connection gives nothing
            raise EOFError(f"the connection ended after {count} of {size} bytes")
        count += new
    return data


def seal_of(key: bytes, content: bytes) -> bytes:
    """Return the seal of `content`, a checksum that takes the key to compute."""
    return hmac.digest(key, content, "sha256")


def check_seal(
    sock: socket.socket, key: bytes, content: bytes, wrong: str, deadline: Deadline
) -> None:
    """Receive a seal; PermissionError, with the text `wrong`, unless it's `content`'s.

    How long the comparison takes tells nothing of the right seal.
    """
    seal = receive_exactly(sock, SEAL_BYTES, deadline)
    if not hmac.compare_digest(seal, seal_of(key, content)):
        raise PermissionError(wrong)


class Guest(NamedTuple):
    """Who was let in: its rank, the connection to it, and the key of both for seals."""

    rank: int
    sock: socket.socket
    key: bytes


def welcome(
    sock: socket.socket,
    expected: Sequence[int],
    size: int,
    secret: bytes,
    deadline: Deadline,
) -> Guest:
    """At the door: let in a guest that proves to be one of the `expected` ranks.

    Raises PermissionError if it doesn't know the secret, ValueError for a different
    rank or size, and what `receive_exactly` does.
    """
    greeting = GREETING.pack(MAGIC, VERSION, secrets.token_bytes(32))
    sock.settimeout(deadline.left())
    sock.sendall(greeting)
    claim = bytes(receive_exactly(sock, CLAIM.size, deadline))
    talk, wrong = greeting + claim, "the guest does not know the secret"
    check_seal(sock, secret, b"guest" + talk, wrong, deadline)
    rank, of, _ = CLAIM.unpack(claim)
    if rank not in expected or of != size:
        ranks = " or ".join(map(str, expected))
        raise ValueError(f"it is rank {rank} of {of}, expected rank {ranks} of {size}")
    sock.sendall(seal_of(secret, b"door" + talk))
    return Guest(rank, sock, seal_of(secret, b"seals" + talk))


def introduce(
    sock: socket.socket, rank: int, size: int, secret: bytes, deadline: Deadline
) -> bytes:
    """As a guest: say who you are and prove it; return the key. Raises: `welcome`."""
    greeting = bytes(receive_exactly(sock, GREETING.size, deadline))
    if GREETING.unpack(greeting)[:2] != (MAGIC, VERSION):
        raise ValueError(f"it is no door of a ring: it says {greeting[:5]!r}")
    claim = CLAIM.pack(rank, size, secrets.token_bytes(32))
    talk, wrong = greeting + claim, "the door does not know the secret"
    sock.settimeout(deadline.left())
    sock.sendall(claim + seal_of(secret, b"guest" + talk))
    check_seal(sock, secret, b"door" + talk, wrong, deadline)
    return seal_of(secret, b"seals" + talk)


def knock(
    address: tuple[str, int], rank: int, size: int, secret: bytes, deadline: Deadline
) -> tuple[socket.socket, bytes]:
    """Call at a door until you are let in; return the connection and its key."""
    while True:
        sock = socket.create_connection(address, timeout=deadline.left())
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock, introduce(sock, rank, size, secret, deadline)
        except BaseException as error:
            sock.close()
            hung_up = isinstance(error, (EOFError, ConnectionError))
            if not hung_up or deadline.end - time.monotonic() < PAUSE_S:
                raise
        time.sleep(PAUSE_S)


def check_secret(secret: bytes) -> None:
    """Refuse a secret that isn't bytes, or not enough of them."""
    if not isinstance(secret, bytes):
        raise TypeError(f"secret must be bytes, got {type(secret).__name__}: draw them")
    if len(secret) < LEAST_SECRET:
        least = f"at least {LEAST_SECRET} bytes"
        raise ValueError(f"secret must have {least}, got {len(secret)}: draw more")


def check_local(host: str, elsewhere: bool) -> None:
    """Refuse an address that is not this machine's own, unless `elsewhere`."""
    with suppress(ValueError):  # a name, of whatever machine
        if ipaddress.ip_address(host).is_loopback:
            return
    if host != "localhost" and not elsewhere:
        raise ValueError(f"host must be 127.0.0.1, got {host!r} without elsewhere=True")


class Door:
    """Where a rank of a ring waits for its left neighbour, or for all in `expected`.

    It accepts guest after guest, each in a thread of its own, for `patience_s` seconds
    each, `GUESTS` at a time. A guest that may come in is handed to `let_in`, which puts
    it where `admit` finds it.

    Attributes:
        address: what a guest must call.
        expected: the ranks that may come in.
        turned_away: the last other guests, and why.

    Raises TypeError or ValueError for a secret that can be guessed, and for an address
    that isn't this machine's own, unless `elsewhere`.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        secret: bytes,
        host: str = "127.0.0.1",
        elsewhere: bool = False,
    ) -> None:
        check_local(host, elsewhere)
        check_secret(secret)
        self.rank, self.size, self.secret = check_rank(rank, size), size, secret
        self.expected: Sequence[int] = [(rank - 1) % size]
        self.elsewhere, self.closed, self.patience_s = elsewhere, False, HANDSHAKE_S
        self.turned_away: deque[str] = deque(maxlen=64)
        self.places = threading.Semaphore(GUESTS)
        self.guests: queue.SimpleQueue[Guest] = queue.SimpleQueue()
        self.let_in = self.guests.put
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.create_server((host, 0), family=family)
        self.address = self.listener.getsockname()[:2]
        threading.Thread(target=self.keep_accepting, daemon=True).start()

    def close(self) -> None:
        """Let nobody in any more."""
        self.closed = True

    def keep_accepting(self) -> None:
        """Greet each guest in a thread of its own, until the door is closed."""
        with self.listener as listener:
            listener.settimeout(PAUSE_S)  # to notice that it is closed
            while not self.closed:
                guest = None
                try:
                    guest, address = listener.accept()
                    who = guest, address
                    threading.Thread(target=self.greet, args=who, daemon=True).start()
                except TimeoutError:
                    pass
                except (OSError, RuntimeError):  # too many files, or too many threads
                    if guest:
                        guest.close()
                    time.sleep(PAUSE_S)

    def greet(self, sock: socket.socket, address: tuple) -> None:
        """Let a guest in if it is one that is expected; otherwise note why not."""
        try:
            if not self.places.acquire(blocking=False):
                raise ConnectionRefusedError("too many are at the door")
            try:
                talk = self.expected, self.size, self.secret, Deadline(self.patience_s)
                guest = welcome(sock, *talk)
            finally:
                self.places.release()
        except (OSError, EOFError, ValueError) as error:
            sock.close()
            self.turned_away.append(f"{address[0]}:{address[1]}: {error}")
        else:
            self.let_in(guest)

    def admit(self, deadline: Deadline) -> Guest:
        """Wait until a guest has come in; TimeoutError, with who else came, if none."""
        try:
            return self.guests.get(timeout=deadline.left())
        except queue.Empty:
            seconds, others = f"{deadline.timeout_s:g} s", [*self.turned_away]
            raise TimeoutError(f"not within {seconds}; came: {others}") from None
