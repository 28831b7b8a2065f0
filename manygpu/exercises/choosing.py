"""Exercises of part 7: what to take, and what it costs."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator

from manygpu.exercises.checking import exercise
from manygpu.exercises.saying import off, other


def _jobs(draw: random.Random) -> Iterator[tuple]:
    yield from ((10.0, 1, 1.0, 2.0, 1), (10.0, 4, 0.8, 2.0, 1), (10.0, 4, 0.8, 2.0, 8))
    for _ in range(4):
        yield 9.0, draw.randint(1, 8), draw.uniform(0.3, 1), 2.5, draw.choice((1, 4, 8))


@exercise(
    "what-it-costs/price",
    '''
def my_price(hours, devices, efficiency, dollars, at_once):
    """Return what a training costs that takes one device so many hours.

    efficiency: speedup over devices. dollars: an hour of one device. at_once: only
    whole machines of so many devices are rented out.
    """
    raise NotImplementedError("How long does it take, and how many are paid for?")
''',
    _jobs,
)
def _(found, hours, devices, efficiency, dollars, at_once):
    takes, paid = hours / (devices * efficiency), -(-devices // at_once) * at_once
    right = takes * paid * dollars
    rented = paid > devices and not off(found, takes * devices * dollars)
    yield "idle devices are paid for", rented and f"it is {found:.4g}"
    free = efficiency < 1 and not off(found, hours / devices * paid * dollars)
    yield "lost efficiency costs", free and f"it is {found:.4g}"
    yield "it is hours, devices and dollars", off(found, right)


def _fits(draw: random.Random) -> Iterator[tuple]:
    yield from ((1e9, 80e9, 0.5, 8), (8e9, 80e9, 0.5, 8), (70e9, 80e9, 0.5, 8))
    for _ in range(4):
        yield draw.uniform(1e8, 1e11), draw.choice((16e9, 40e9, 80e9)), 0.4, 64


@exercise(
    "which-one/fewest",
    '''
def my_fewest(parameters, memory, activations, devices):
    """Return the fewest devices on which sharded state fits, or None.

    16 bytes a parameter are cut evenly over the devices you take. A device has `memory`
    bytes, of which activations need a share. There are at most so many devices.
    """
    raise NotImplementedError("How many bytes of state may a device hold?")
''',
    _fits,
)
def _(found, parameters, memory, activations, devices):
    fits = [
        n
        for n in range(1, devices + 1)
        if 16 * parameters / n <= memory * (1 - activations)
    ]
    right = fits[0] if fits else None
    yield "None where nothing fits", right is None and other(found, None)
    full = right and found and found < right and f"on {found} it doesn't fit"
    yield "activations need room, too", full
    yield "fewer wouldn't do", other(found, right)


def _rounds(draw: random.Random) -> Iterator[tuple]:
    yield from (([2.0], [1.0]), ([2.0, 8.0, 2.0], [1.0, 4.0, 4.0]))
    for _ in range(4):
        slow = [draw.choice((1.0, 1.0, 5.0)) for _ in range(7)]
        one = [own * draw.uniform(1, 1.1) for own in slow]
        yield one, [own / draw.uniform(1.2, 1.9) for own in slow]


@exercise(
    "side-by-side/speedup",
    '''
def my_speedup(one, many):
    """Return the median speedup of rounds in which both took their turn.

    one, many: seconds of each round, on one device and on many. A busy machine makes
    both of a round slow.
    """
    raise NotImplementedError("What was measured in the same round?")
''',
    _rounds,
)
def _(found, one, many):
    right = statistics.median(a / b for a, b in zip(one, many))
    apart = statistics.median(one) / statistics.median(many)
    mixed = off(found, right) and not off(found, apart) and f"it is {found:.4g}"
    yield "what is of one round is compared", mixed
    turned = off(found, right) and not off(found, 1 / right) and f"it is {found:.4g}"
    yield "faster is more than 1", turned
    yield "it is the median of the rounds", off(found, right)
