"""Exercises of part 8: which one, and what it costs."""

from __future__ import annotations

import random
from collections.abc import Iterator

from manygpu.exercises.checking import exercise
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import in_digits, mistaken, off, other


def _jobs(draw: random.Random) -> Iterator[tuple]:
    yield from ((10.0, 1, 1.0, 2.0, 1), (10.0, 4, 0.8, 2.0, 1), (10.0, 4, 0.8, 2.0, 8))
    yield 10.0, 7, 0.5, 2.0, 4
    for _ in range(4):
        yield 9.0, draw.randint(1, 8), draw.uniform(0.3, 1), 2.5, draw.choice((1, 4, 8))


@exercise(
    "what-it-costs/price",
    '''
def my_price(hours, devices, efficiency, dollars, at_once):
    """Return the price in dollars of a training run on several devices.

    hours: how long the training run takes on one device.
    efficiency: the speedup on `devices` devices, divided by `devices`.
    dollars: the price of one device for one hour.
    at_once: devices are rented in whole machines of this many devices.
    """
    raise NotImplementedError(
        "How long does it take, and how many devices are paid for?"
    )
''',
    _jobs,
)
def judge_price(found, hours, devices, efficiency, dollars, at_once):
    takes, paid = hours / (devices * efficiency), -(-devices // at_once) * at_once
    right = takes * paid * dollars
    rented = paid > devices and not off(found, takes * devices * dollars)
    yield "idle devices are paid for", rented and f"it is {in_digits(found)}"
    free = efficiency < 1 and not off(found, hours / devices * paid * dollars)
    yield "lost efficiency costs", free and f"it is {in_digits(found)}"
    yield "it is hours times devices times dollars", off(found, right)


def _fits(draw: random.Random) -> Iterator[tuple]:
    yield from ((1e9, 80e9, 0.0, 8), (12e9, 80e9, 0.0, 8), (10e9, 80e9, 0.0, 8))
    yield from ((10e9, 80e9, 0.5, 4), (8e9, 80e9, 0.5, 8), (70e9, 80e9, 0.5, 8))
    yield 42e9, 80e9, 0.0, 8  # on 9 it would fit
    for _ in range(4):
        yield draw.uniform(1e8, 1e11), draw.choice((16e9, 40e9, 80e9)), 0.4, 64


@exercise(
    "which-one/fewest",
    '''
def my_fewest(parameters, memory, activations, devices):
    """Return the fewest devices on which the sharded state fits, or None.

    The state takes 16 bytes per parameter. It is divided evenly among the
    devices that you take. If it fits on no number of devices, return None.

    memory: the bytes of memory that one device has.
    activations: the fraction of this memory that activations need, such as
        0.5.
    devices: how many devices there are.
    """
    raise NotImplementedError("How many bytes of state may one device hold?")
''',
    _fits,
)
def judge_fewest(found, parameters, memory, activations, devices):
    def fewest(room: float) -> int | None:
        enough = (n for n in range(1, devices + 1) if 16 * parameters / n <= room)
        return next(enough, None)

    right, bare = fewest(memory * (1 - activations)), fewest(memory)
    yield "it is None if nothing fits", right is None and other(found, None)
    yield "all devices may be taken", right == devices and found is None and "it's None"
    full = right and found is not None and found < right
    said = full and f"on {found} it doesn't fit"
    yield "activations need room, too", found == bare and said
    yield "the devices that are taken are enough", said
    yield "fewer devices wouldn't fit", other(found, right)


def _offers(draw: random.Random) -> Iterator[tuple]:
    yield from (((25.0, 10.0), (30.0, 5.0)), ((25.0, 10.0), (20.0, 5.0)))
    yield from (((25.0, 10.0), (30.0, 10.0)), ((25.0, 10.0), (30.0, 12.0)))
    yield from (((25.0, 10.0), (20.0, 10.0)), ((25.0, 10.0), (20.0, 12.0)))
    yield (25.0, 10.0), (25.5, 10.0)
    for _ in range(4):
        dollars, hours = draw.uniform(10, 99), draw.uniform(5, 50)
        more = dollars * draw.uniform(0.8, 3), hours * draw.uniform(0.2, 1.1)
        yield (dollars, hours), more


@exercise(
    "what-it-costs/worth",
    '''
def my_worth(one, many):
    """Return the lowest price of waiting from which on `many` costs no more.

    Waiting has a price per hour. Compare the dollars plus the price of the
    hours, for the same job on one device and on many devices. At the price
    that you return, and at every higher price, `many` must cost no more than
    `one`.

    one, many: (dollars, hours) of the job on one device and on many devices.

    The price isn't negative. If there is no such price, return None. For
    example, a choice that is cheaper but slower costs more as soon as an hour
    of waiting is expensive enough.
    """
    raise NotImplementedError(
        "As functions of the price, both bills are lines. Where do they meet?"
    )
''',
    _offers,
)
def judge_worth(found, one, many):
    dearer = many[0] > one[0]
    never = many[1] > one[1] or (many[1] == one[1] and dearer)
    yield "waiting pays for no lost time", never and other(found, None)
    if not never:
        yield (
            "a cheaper choice that isn't slower pays at once",
            not dearer and other(found, 0),
        )
        yield "a faster choice pays at some price", found is None and "it is None"
        paid = [dollars + found * hours for dollars, hours in (one, many)]
        both = " and ".join(map(in_digits, paid))
        said = off(*paid) and f"at {in_digits(found)} they cost {both}"
        yield "at that price both cost the same", dearer and said


def _hours(draw: random.Random) -> Iterator[tuple]:
    yield from ((1.0, 3.0, 0.5, 0.0), (4.0, 3.0, 0.5, 1.0))
    yield from ((1.0, 3.0, 0.5, 10.0), (1.0, 3.0, 0.9, 2.0))
    for _ in range(5):
        spot, waiting = draw.uniform(0.5, 2), draw.choice((0.0, 1.0, 5.0, 25.0))
        yield spot, draw.uniform(2, 4), draw.uniform(0.4, 1), waiting


@exercise(
    "what-it-costs/spot",
    '''
def my_hour(spot, demand, goodput, waiting):
    """Return the dollars for one hour of work on the cheaper kind of device.

    Spot devices work during only a part of their time. On-demand devices work
    all the time. Include the price of waiting for the result.

    spot, demand: the price of an hour of spot devices, and of on-demand
        devices.
    goodput: the fraction of their time in which spot devices work.
    waiting: the price of each hour that you wait for the result.
    """
    raise NotImplementedError(
        "How long does an hour of work take on each kind of device?"
    )
''',
    _hours,
)
def judge_spot(found, spot, demand, goodput, waiting):
    right = min((spot + waiting) / goodput, demand + waiting)
    lossless = min(spot, demand) + waiting
    yield (
        "an hour in which nothing is done is paid for",
        (mistaken(found, right, lossless)),
    )
    short = min(spot / goodput, demand) + waiting
    yield "waiting takes longer on spot devices", mistaken(found, right, short)
    slow, both = (spot + waiting) / goodput, "the price of waiting is in both bills"
    yield both, mistaken(found, right, min(slow, demand))
    yield both, mistaken(found, right, min(spot / goodput, demand + waiting))
    yield both, mistaken(found, right, min(spot / goodput, demand))
    idle = min(slow, (demand + waiting) / goodput)
    resting = idle != slow and mistaken(found, right, idle)  # else: always spot
    yield "devices on demand always work", resting
    yield "the cheaper one is taken", off(found, right)


def _bills(draw: random.Random) -> Iterator[tuple]:
    yield from ((36.0, 100, 1, 2.5), (36.0, 100, 4, 2.5), (37.0, 100, 4, 2.5))
    for _ in range(4):
        yield draw.uniform(20, 30), draw.randint(100, 999), draw.choice((2, 4, 8)), 2.5


def _bill(seconds, runs, devices, dollars, hours=lambda h: h) -> float:
    return round(hours(seconds * runs / 3600) * devices * dollars, 2)


@exercise(
    "what-it-costs/bill",
    '''
def my_bill(seconds, runs, devices, dollars):
    """Return the price in dollars of several runs, rounded to cents.

    The runs follow each other, and a part of an hour costs that part of the
    price.

    seconds: how long one run takes.
    runs: how many runs there are.
    devices: how many devices are paid for, all the time.
    dollars: the price of one device for one hour.
    """
    raise NotImplementedError(
        "Multiply hours, devices and dollars. When do you round?",
    )
''',
    _bills,
    hunted=True,
)
def judge_bill(found, seconds, runs, devices, dollars):
    given = seconds, runs, devices, dollars
    right = _bill(*given)
    single = _bill(seconds, runs, 1, dollars)
    yield "all devices are paid for", mistaken(found, right, single)
    whole = _bill(*given, hours=int)
    yield "parts of an hour are paid for", mistaken(found, right, whole)
    near = off(found, right) and not off(found, right, 0.02) and f"it is {found:.2f}"
    yield "it is rounded once, at the end", near
    yield "it is hours times devices times dollars", off(found, right)


def _paid(bill) -> str:
    """Two bills of 100 runs, for 2.50 dollars per hour and device."""
    said = []
    for devices, seconds in ((1, 90.0), (4, 13.0)):
        given = seconds, 100, devices, 2.5
        found, by_hand = f"{bill(*given):.2f}", f"{_bill(*given):.2f}"
        where = "1 device" if devices == 1 else f"{devices} devices"
        beside = "as by hand" if found == by_hand else f"but by hand it is {by_hand}"
        said.append(f"{where}, {seconds:g} s each: {found} dollars, {beside}")
    return f"100 runs, on {'; on '.join(said)}"


flaw(
    "what-it-costs/bill",
    """
def my_bill(seconds, runs, devices, dollars):
    hours = round(seconds * runs / 3600, 2)
    return round(hours * devices * dollars, 2)
""",
    _paid,
    "it is rounded once, at the end",
)
flaw(
    "what-it-costs/bill",
    """
def my_bill(seconds, runs, devices, dollars):
    hours = seconds * runs // 3600
    return round(hours * devices * dollars, 2)
""",
    _paid,
    "parts of an hour are paid for",
)
flaw(
    "what-it-costs/bill",
    """
def my_bill(seconds, runs, devices, dollars):
    device_seconds = seconds * runs * devices
    hours = device_seconds / devices / 3600
    return round(hours * dollars, 2)
""",
    _paid,
    "all devices are paid for",
)


def _plans(draw: random.Random) -> Iterator[tuple]:
    yield [(1.0, 0)], 0.05
    yield [(1.0, 2), (1.04, 0), (1.2, 0)], 0.05
    yield [(1.2, 0), (1.0, 3), (1.04, 1), (1.03, 1)], 0.05
    yield [(10.0, 2), (10.4, 0)], 0.05
    yield [(1.0, 1), (1.052, 0)], 0.05
    yield [(1.0, 3), (1.04, 2), (1.08, 1)], 0.05
    yield [(1.0, 1), (1.25, 0)], 0.25
    for _ in range(5):
        plans = [(draw.uniform(1, 1.3), draw.randint(0, 3)) for _ in range(8)]
        yield plans, draw.choice((0.05, 0.1))


@exercise(
    "which-one/simplest",
    '''
def my_choice(plans, slower):
    """Return the position in `plans` of the plan to take.

    Consider the plans that are hardly slower than the fastest one. If `slower`
    is 0.05, for example, these are the plans that take at most 5% longer. Of
    these, take the simplest plan, which splits the fewest things. If several
    are equally simple, take the fastest of them.

    plans: for each plan, a pair of its seconds per step and the number of
        things that it splits.
    """
    raise NotImplementedError("Which plans are as good as the best?")
''',
    _plans,
)
def judge_simplest(found, plans, slower):
    seconds, cuts = plans[found]
    limit = min(own for own, _ in plans) * (1 + slower)
    yield (
        "it is hardly slower than the fastest plan",
        seconds > limit and f"{in_digits(seconds)} s",
    )
    good = [plan for plan in plans if plan[0] <= limit]
    fewest = min(own for _, own in good)
    yield "no simpler plan is as good", cuts > fewest and f"it has {cuts} cuts"
    quickest = min(own for own, plan in good if plan == fewest)
    yield "of equally simple plans, it is the fastest", off(seconds, quickest)


IN_ORDER = "updates go in the order of their sums, each waits for its own"
LAST_FIRST = "the backward pass begins with the last layer"


def _layers(draw: random.Random) -> Iterator[tuple]:
    yield [1.0], [2.0], [3.0], [0.5]
    yield [1.0, 1.0], [1.0, 2.0], [4.0, 4.0], [4.0, 3.0]
    yield [1.0, 1.0], [2.0, 2.0], [1.0, 1.0], [0.5, 0.5]
    yield [1.0, 1.0], [2.0, 1.0], [5.0, 3.0], [2.0, 1.0]
    yield [1.0, 1.0, 1.0], [4.0, 2.0, 1.0], [1.0, 9.0, 1.0], [1.0, 1.0, 3.0]
    yield [0.1], [0.2], [0.3], [0.4]  # the link is free from the beginning
    for _ in range(4):
        count = draw.randint(2, 6)
        yield tuple([draw.uniform(0.5, 5) for _ in range(count)] for _ in range(4))


def _sums(now, backward, sending, layers, queued=True) -> list[tuple[float, int]]:
    """When each sum is there, and its layer, for layers in this order."""
    link, sums = 0.0, []
    for i in layers:
        now += backward[i]
        link = (max(now, link) if queued else now) + sending[i]
        sums.append((link, i))
    return sums


def _updated(now, sums, update) -> float:
    """When the last update is done, in the order of the sums."""
    for there, i in sums:
        now = max(now, there) + update[i]
    return now


@exercise(
    "which-one/step",
    '''
def my_step(forward, backward, sending, update):
    """Return the seconds of a training step with data parallelism.

    The backward pass begins with the last layer. The all-reduce of a layer
    starts as soon as its gradient is ready and the link is free, because the
    link carries one all-reduce at a time. Meanwhile the device goes on
    computing. After the backward pass, the device updates the layers in the
    order of their all-reduces. Each update waits until its layer's all-reduce
    has ended.

    Each list has one number of seconds per layer, beginning with the first
    layer.
    """
    raise NotImplementedError(
        "Keep two clocks, one of the device and one of the link.",
    )
''',
    _layers,
)
def judge_step(found, forward, backward, sending, update):
    given = forward, backward, sending, update
    layers, start = range(len(forward)), sum(forward)
    before = start + sum(backward)
    sums = _sums(start, backward, sending, layers[::-1])
    right = _updated(before, sums, update)
    done = [0.0] * len(backward)  # the link begins when the backward pass is over
    late = _updated(before, _sums(before, done, sending, layers[::-1]), update)
    at_once = _sums(start, backward, sending, layers[::-1], queued=False)
    turned = _sums(start, backward, sending, layers)
    named = [
        ("an update waits for its sum", before + sum(update)),
        ("the link works while the device computes", sum(map(sum, given))),
        ("the link works while the device computes", late),
        ("the link carries one sum at a time", _updated(before, at_once, update)),
        (IN_ORDER, max(before, sums[-1][0]) + sum(update)),
        (LAST_FIRST, _updated(before, turned, update)),
        (LAST_FIRST, _updated(before, turned[::-1], update)),
    ]
    for name, mistake in named:
        yield name, mistaken(found, right, mistake)
    yield "a step ends when the last update does", off(found, right)


def _held_by(draw: random.Random) -> Iterator[tuple]:
    yield from ((100, 50, 8, 1, 0, 1), (100, 50, 8, 4, 0, 1), (100, 50, 9, 4, 0, 1))
    yield from ((100, 50, 8, 4, 0, 2), (100, 50, 8, 4, 1, 1), (100, 50, 8, 4, 2, 1))
    yield 100, 50, 8, 4, 3, 1
    for _ in range(4):
        devices = draw.randint(2, 8)
        batch = draw.randint(8 * devices, 99)
        yield 1000, 50, batch, devices, draw.randint(0, 3), draw.randint(1, 4)


@exercise(
    "which-one/held",
    '''
def my_held(parameters, activations, batch, devices, zero, pieces):
    """Return the bytes that the fullest device holds.

    A parameter has 2 bytes, its gradient 2 bytes, and the optimizer's state 12
    bytes. The devices split the batch as evenly as possible. Each device
    splits its share into `pieces`, again as evenly as possible, and works on
    one piece after the other.

    activations: the bytes of one sample's activations.
    zero: the stage of ZeRO. Stage 1 splits the optimizer's state over the
        devices, stage 2 also the gradients, and stage 3 also the parameters.
        Stage 0 splits nothing.
    """
    raise NotImplementedError("How many samples does the largest piece have?")
''',
    _held_by,
    hunted=True,
)
def judge_held(found, parameters, activations, batch, devices, zero, pieces):
    kept = [(12, 1), (2, 2), (2, 3)]
    bytes_each = sum(b / (devices if zero >= stage else 1) for b, stage in kept)
    state, share = parameters * bytes_each, -(-batch // devices)
    right = state + activations * -(-share // pieces)
    whole = state + activations * -(-batch // pieces)
    yield (
        "a device holds the activations of its own share only",
        mistaken(found, right, whole),
    )
    least = state + activations * -(-(batch // devices) // pieces)
    yield "the fullest device has the largest share", mistaken(found, right, least)
    apart = pieces == 1 and off(found, right)
    yield "each stage of ZeRO splits the right tensors", apart
    yield "pieces reduce the activations, not the state", off(found, right)


def _held_in_four(held) -> str:
    """What a billion parameters take on 8 devices, in several plans."""
    plans = {"plain copies": (64, 0, 1), "65 samples": (65, 0, 1)}
    plans |= {"4 pieces": (64, 0, 4), "ZeRO 1": (64, 1, 1), "ZeRO 2": (64, 2, 1)}
    plans["ZeRO 3"] = 64, 3, 1
    said = []
    for name, (batch, zero, pieces) in plans.items():
        size = held(10**9, 10**9, batch, 8, zero, pieces)
        said.append(f"{name}: {size / 1e9:.1f} GB")
    return "; ".join(said)


flaw(
    "which-one/held",
    """
def my_held(parameters, activations, batch, devices, zero, pieces):
    optimizer = 12 / devices if zero >= 1 else 12
    gradients = 2 / devices if zero >= 2 else 2
    own = 2 / devices if zero >= 3 else 2
    samples = -(-batch // pieces)
    return parameters * (optimizer + gradients + own) + activations * samples
""",
    _held_in_four,
    "a device holds the activations of its own share only",
)
flaw(
    "which-one/held",
    """
def my_held(parameters, activations, batch, devices, zero, pieces):
    optimizer = 12 / devices if zero >= 1 else 12
    gradients = 2 / devices if zero >= 2 else 2
    own = 2 / devices if zero >= 3 else 2
    samples = -(-(batch // devices) // pieces)
    return parameters * (optimizer + gradients + own) + activations * samples
""",
    _held_in_four,
    "the fullest device has the largest share",
)
flaw(
    "which-one/held",
    """
def my_held(parameters, activations, batch, devices, zero, pieces):
    optimizer = 12 / devices if zero >= 1 else 12
    gradients = own = 2 / devices if zero >= 2 else 2
    samples = -(-(-(-batch // devices)) // pieces)
    return parameters * (optimizer + gradients + own) + activations * samples
""",
    _held_in_four,
    "each stage of ZeRO splits the right tensors",
)
flaw(
    "which-one/held",
    """
def my_held(parameters, activations, batch, devices, zero, pieces):
    optimizer = 12 / devices if zero >= 1 else 12
    gradients = 2 / devices if zero >= 2 else 2
    own = 2 / devices if zero >= 3 else 2
    state = parameters * (optimizer + gradients + own)
    samples = -(-(-(-batch // devices)) // pieces)
    return state / pieces + activations * samples
""",
    _held_in_four,
    "pieces reduce the activations, not the state",
)
