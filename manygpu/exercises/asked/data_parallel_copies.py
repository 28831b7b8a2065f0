"""Exercises of part 2: parameters and devices, all-reduce."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import all_off, in_digits, mistaken, off, other, rounding


def _held(draw: random.Random) -> Iterator[tuple]:
    for n in (1, 2, 3, 5, draw.randint(2, 8), draw.randint(2, 8)):
        yield ([arrays(draw, 3) for _ in range(n)],)


@exercise(
    "all-reduce/in-place",
    '''
def my_allreduce(data):
    """Replace each array in `data` by the sum of all arrays, in place.

    Return nothing. The arrays must stay the same objects.
    """
    raise NotImplementedError("When may you overwrite the first array?")
''',
    _held,
    in_place=True,
)
def judge_in_place(found, data):
    returned, now = found
    yield "it is done in place", returned is not None and "it returns something"
    still = len(data) > 1 and not all_off(now, data) and "the arrays are as they were"
    yield "it is done in place", still
    yield "each array is the sum", all_off(now, [np.sum(data, axis=0)] * len(data))


def _sizes(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 8.0), (2, 8.0), (4, 8.0), (3, 9.0))
    for _ in range(4):
        yield draw.randint(2, 64), float(draw.randint(1, 10**9))


@exercise(
    "all-reduce/bound",
    '''
def my_bound(n, size):
    """Return the fewest bytes that the busiest device of an all-reduce sends.

    There are n devices. A single device sends nothing.

    size: the bytes of each device's array.
    """
    raise NotImplementedError(
        "How many bytes does each device send in a ring?",
    )
''',
    _sizes,
)
def judge_bound(found, n, size):
    alone = n == 1 and found != 0 and f"it is {found}"
    yield "one device sends nothing", alone
    under = (
        found < 2 * (n - 1) / n * size * (1 - rounding(found))
        and f"it is {in_digits(found, 6)}"
    )
    yield "no all-reduce sends less", under
    yield "a ring reaches it", off(found, 2 * (n - 1) / n * size)


def _memories(draw: random.Random) -> Iterator[tuple]:
    a, b = ("GPU:0", 0, 400), ("GPU:0", 400, 40)
    yield ([[a, b]],)
    yield ([[a], [a]],)
    yield ([[a, b], [("GPU:1", 0, 400), ("GPU:1", 400, 40)]],)
    yield ([[a], [b]],)
    yield ([[("CPU:0", 0, 400)], [("CPU:0", 396, 40)]],)
    yield ([[("CPU:0", 0, 400)], [("CPU:0", 100, 40)]],)
    yield ([[("CPU:0", 400, 40)], [("CPU:0", 0, 400)]],)
    yield ([[a, a], [("GPU:1", 0, 400)]],)
    yield ([[a, b], [("GPU:0", 900, 8), a]],)
    yield ([[a], [b], [("GPU:0", 439, 8)]],)
    for _ in range(4):
        places = [[("CPU:0", 100 * (4 * r + i), 100) for i in range(4)]
                  for r in range(3)]  # fmt: skip
        device, start, size = places[2][draw.randrange(4)]
        moved = draw.choice((0, 0, -1100, -1150))
        places[2].append((device, start + moved, size))
        yield (places,)


def _overlap(one: tuple, two: tuple) -> bool:
    """Whether two places in memory have a byte in common."""
    (device, a, n), (other_, b, m) = one, two
    return device == other_ and a < b + m and b < a + n


@exercise(
    "parameters-and-devices/shared",
    '''
def my_shared(replicas):
    """Return whether two different replicas share memory.

    Each device counts its addresses from 0. Within one replica, variables may
    share memory, as tied weights do.

    replicas: for each replica, a list of its variables. A variable is (device,
        address of its first byte, number of bytes).
    """
    raise NotImplementedError(
        "When do two ranges of addresses have a byte in common?",
    )
''',
    _memories,
)
def judge_shared(found, replicas):
    numbered = [(r, place) for r, own in enumerate(replicas) for place in own]
    pairs = [(x, y) for (r, x) in numbered for (s, y) in numbered if r < s]
    right = any(_overlap(x, y) for x, y in pairs)
    missed = right and not found
    same = any(x == y for x, y in pairs)
    yield (
        "a variable that is in both replicas is shared",
        missed and same and "it says no",
    )
    third = len(replicas) > 2 and missed and "it says no"
    yield "each pair of replicas is compared", third
    yield "one byte in common is enough", missed and "it says no"
    extra = not right and found and "it says yes"
    apart = any(x[0] != y[0] and x[1:] == y[1:] for x, y in pairs)
    tied = any(len(set(own)) < len(own) for own in replicas)
    yield "a replica may hold a variable twice", tied and extra
    yield "each device has a memory of its own", apart and extra
    yield "neighbours in memory share nothing", extra


def _replicas(draw: random.Random) -> Iterator[tuple]:
    def made(*changes):
        own = [np.float32([1, 2]), np.float32([0, np.nan]), np.float32([3])]
        all_ = [[p.copy() for p in own] for _ in range(3)]
        for replica, i, value in changes:
            all_[replica][i][0] = value
        return (all_,)

    yield from (made(), made((1, 0, 5.0)), made((2, 2, 5.0)))
    yield made((2, 0, np.nextafter(np.float32(1), np.float32(2))))
    yield made((1, 1, -0.0))
    (own,) = made()
    own[2][1][1:] = np.uint32([0x7FC00001]).view(np.float32)  # a NaN with other bits
    yield (own,)
    for _ in range(3):
        yield made(*[(draw.randrange(3), draw.randrange(3), 7.0) for _ in "ab"])


@exercise(
    "parameters-and-devices/parted",
    '''
def my_parted(replicas):
    """Return the positions of the parameters that differ between devices.

    Two parameters are equal if all their bits are equal. So a NaN equals the
    same NaN, but -0.0 doesn't equal 0.0.

    replicas: for each device, a list of its parameters, which are arrays.

    Return the positions in rising order.
    """
    raise NotImplementedError("Which method of an array shows its bytes?")
''',
    _replicas,
)
def judge_parted(found, replicas):
    first, found = replicas[0], list(found)
    right, second, values = [], [], []
    for i, whole in enumerate(first):
        off_ = [own[i].tobytes() != whole.tobytes() for own in replicas]
        right += [i] * any(off_)
        second += [i] * off_[1]
        near = all(np.array_equal(own[i], whole, equal_nan=True) for own in replicas)
        values += [i] * (any(off_) and near)
    lacking = [i for i in right if i not in found]
    extra = [i for i in found if i not in right]
    nan = extra == [1] and not lacking and "number 1 is equal everywhere"
    yield "a NaN equals the same NaN", nan
    said = extra and f"number {extra[0]} is equal everywhere"
    yield "numbers that are equal everywhere aren't named", said
    zero = [i for i in lacking if i in values]
    signs = [np.signbit([own[i] for own in replicas]) for i in zero]
    bits = any((sign == sign[0]).all() for sign in signs)
    yield (
        "a NaN with different bits isn't the same NaN",
        bits and f"number {zero[0]} isn't named",
    )
    yield "-0.0 isn't 0.0", zero and f"number {zero[0]} isn't named"
    late = [i for i in lacking if i not in second]
    close = [i for i in late if np.allclose(first[i], replicas[2][i], equal_nan=True)]
    yield "nearly equal isn't equal", close and f"number {close[0]} isn't named"
    yield "all replicas are compared", late and f"number {late[0]} isn't named"
    yield "all parameters that differ are named, in order", other(found, right)


def _models(draw: random.Random) -> Iterator[tuple]:
    yield from (
        ([(2, 3)], 0, 1),
        ([(2, 3)], 0, 2),
        ([(2, 3), (3,)], 2, 2),
        ([()], 2, 3),
    )
    for _ in range(4):
        shapes = [(draw.randint(1, 9), draw.randint(1, 9)), (draw.randint(1, 9),)]
        yield shapes, draw.randint(0, 2), draw.randint(1, 8)


@exercise(
    "parameters-and-devices/start",
    '''
def my_start(shapes, slots, devices):
    """Return the bytes to send so that all devices start like the first.

    Only the first device has the parameters, the optimizer's slots and the
    step count. Each parameter and each slot is float32. The step count is one
    integer of 8 bytes.

    shapes: the shapes of the parameters. The shape () is a single number.
    slots: how many numbers the optimizer keeps per number of a parameter.
    """
    raise NotImplementedError(
        "What does a device need, and which device has it already?"
    )
''',
    _models,
)
def judge_start(found, shapes, slots, devices):
    numbers = sum(int(np.prod(shape)) for shape in shapes)
    each = 4 * numbers * (1 + slots) + 8
    right = (devices - 1) * each
    wrong = other(found, right)
    already = devices == 1 or found == devices * each
    yield "the first device has everything already", already and wrong
    single = shapes.count(()) * 4 * (1 + slots) * (devices - 1)
    yield "() is a single number", single and found == right - single and wrong
    bare = found == (devices - 1) * (4 * numbers + 8) and wrong
    yield "the optimizer's state is copied, too", bare
    uncounted = found == right - 8 * (devices - 1) and wrong
    yield "the step count is copied, too", uncounted
    yield "each number has its bytes", wrong


def _states(draw: random.Random) -> Iterator[tuple]:
    for devices in (1, 2, 3):
        yield (
            [arrays(draw, 3), arrays(draw, 2)],
            [arrays(draw, 3), arrays(draw, 2)],
            devices,
        )


@exercise(
    "parameters-and-devices/states",
    '''
def my_states(params, slots, devices):
    """Return the state of each device, a list of (its parameters, its slots).

    Each device gets its own copies of all arrays, equal in every bit.

    params, slots: lists of float64 arrays.
    """
    raise NotImplementedError(
        "Which operations copy an array, and which only give it another name?"
    )
''',
    _states,
    hunted=True,
)
def judge_states(found, params, slots, devices):
    yield "one state per device", other(len(found), devices)
    for own, remembered in found:
        yield "they have all parameters", other(len(own), len(params))
        bits = [a.tobytes() != b.tobytes() for a, b in zip(own, params)]
        yield "parameters are equal in every bit", any(bits) and f"it isn't so: {bits}"
        bits = [a.tobytes() != b.tobytes() for a, b in zip(remembered, slots)]
        yield "slots are equal in every bit", any(bits) and f"it isn't so: {bits}"
    all_ = [own + remembered for own, remembered in found]
    pairs = [(a, b) for i, x in enumerate(all_) for y in all_[:i] for a in x for b in y]
    shared = any(np.shares_memory(a, b) for a, b in pairs)
    yield "no two devices share memory", shared and "two devices do"


def _two_apart(states) -> str:
    """What two devices do in a step that only one takes, and in one that both take."""

    def step(own, remembered):
        for p, slot in zip(own, remembered):
            slot[...] = 0.5 * slot + 1
            p -= 0.25 * slot

    def given():
        return [np.full(2, 1 / 3)], [np.ones(2)]

    one, two = states(*given(), 2)
    step(*one)
    moved = np.abs(two[0][0] - 1 / 3).max()
    one, two = states(*given(), 2)
    for own in (one, two):
        step(*own)
    apart = np.abs(one[0][0] - two[0][0]).max()
    wrong = np.abs(two[0][0] - (1 / 3 - 0.25 * 1.5)).max()
    return (
        f"if only device 0 takes a step, device 1 moves by {moved:.2g}; if both take "
        f"the same step, they differ by {apart:.2g}, and device 1 differs from a "
        f"single device by {wrong:.2g}"
    )


flaw(
    "parameters-and-devices/states",
    """
def my_states(params, slots, devices):
    states = []
    for _ in range(devices):
        states.append((list(params), list(slots)))
    return states
""",
    _two_apart,
    "no two devices share memory",
)
flaw(
    "parameters-and-devices/states",
    """
import numpy as np

def my_states(params, slots, devices):
    states = [(params, slots)]
    for _ in range(devices - 1):
        own = [p.copy() for p in params]
        states.append((own, [np.zeros_like(p) for p in own]))
    return states
""",
    _two_apart,
    "slots are equal in every bit",
)
flaw(
    "parameters-and-devices/states",
    """
import numpy as np

def my_states(params, slots, devices):
    states = []
    for _ in range(devices):
        own = [np.array(p, "float32").astype(p.dtype) for p in params]
        states.append((own, [slot.copy() for slot in slots]))
    return states
""",
    _two_apart,
    "parameters are equal in every bit",
)


def _chains(draw: random.Random) -> Iterator[tuple]:
    yield from ((1,), (2,), (3,), (4,), (draw.randint(5, 9),))


@exercise(
    "all-reduce/chain",
    '''
def my_chain(n):
    """Return the messages of an all-reduce along a chain of n devices.

    A message is (sender, receiver, what). Messages are sent one after the
    other, and only between neighbours i and i + 1. If `what` is "add", the
    receiver adds the sender's numbers to its own. If it is "take", the
    receiver replaces its numbers by the sender's. In the end, all devices must
    have the sum. Send as few messages as you can.
    """
    raise NotImplementedError(
        "Which device is the first to have the sum? From there, go back."
    )
''',
    _chains,
)
def judge_chain(found, n):
    outside = [m for m in found if not (0 <= m[0] < n and 0 <= m[1] < n)]
    yield "devices are numbered 0 to n - 1", outside and f"one message is {outside[0]}"
    other_ = [message for message in found if message[2] not in ("add", "take")]
    yield "the receiver adds or takes", other_ and f"one message is {other_[0]}"
    far = [message for message in found if abs(message[0] - message[1]) != 1]
    yield "only neighbours send to each other", far and f"{far[0]} goes further"
    held = np.eye(n, dtype=int)  # whose numbers each device has
    for sender, receiver, what in found:
        held[receiver] = held[sender] + (what == "add") * held[receiver]
    double = [i for i in range(n) if held[i].max() > 1]
    yield "nothing is added twice", double and f"on device {double[0]} something is"
    lacking = [i for i in range(n) if held[i].min() < 1]
    yield (
        "all devices have the sum in the end",
        lacking and f"device {lacking[0]} hasn't",
    )
    more = len(found) > 2 * (n - 1) and f"there are {len(found)}"
    yield "no message is sent in vain", more


def _tensors(draw: random.Random) -> Iterator[tuple]:
    yield from (([8], 1.0, 4.0), ([8, 8], 1.0, 4.0), ([80, 8, 8], 0.5, 8.0))
    for _ in range(4):
        sizes = [draw.randint(1, 10**6) for _ in range(draw.randint(2, 9))]
        yield sizes, draw.uniform(1e-5, 1e-3), draw.uniform(1e8, 1e9)


@exercise(
    "all-reduce/joined",
    '''
def my_times(sizes, call, rate):
    """Return the time of one call per tensor, divided by the time of one call.

    The single call sends all tensors together. Joining them takes no time. A
    call takes `call` seconds, and also one second per `rate` bytes.

    sizes: the bytes of each tensor.
    """
    raise NotImplementedError(
        "Which time do you pay once, and which for each call?",
    )
''',
    _tensors,
)
def judge_joined(found, sizes, call, rate):
    carried, n = sum(sizes) / rate, len(sizes)
    right = (n * call + carried) / (call + carried)
    yield "bytes take their time in both", mistaken(found, right, n)
    free = n > 1 and mistaken(found, right, 1.0)
    yield "each call costs its fixed time", free
    turned = mistaken(found, right, 1 / right)
    yield "many calls take longer than one", turned
    slow = sum(sizes) * rate
    times = mistaken(found, right, (n * call + slow) / (call + slow))
    yield "bytes over the rate are seconds", times
    yield "it is the time of many calls, divided by the time of one", off(found, right)
