"""Exercises of part 1: two devices, devices."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import in_digits, mistaken, off, other, rounding


def _sums(draw: random.Random) -> Iterator[tuple]:
    for counts in ([1], [2, 2], [2, 1], [3, 0], [4, 3, 3]):
        yield [arrays(draw, 2) * n for n in counts], counts
    for _ in range(4):
        counts = [draw.randint(0, 9) for _ in range(draw.randint(2, 6))] + [1]
        yield [arrays(draw, 3) * n for n in counts], counts


@exercise(
    "two-devices/mean",
    '''
def my_mean(sums, counts):
    """Return the gradient of the mean loss over the whole batch.

    sums: for each device, an array with the sum of its samples' gradients.
    counts: for each device, how many samples it has. This may be 0.
    """
    raise NotImplementedError(
        "Add up what all devices found. By what do you divide?",
    )
''',
    _sums,
)
def judge_mean(found, sums, counts):
    lengths = [np.zeros_like(s) if n == 0 else s / n for s, n in zip(sums, counts)]
    total, k = np.sum(sums, axis=0), len(counts)
    right = total / sum(counts)
    wrong = off(found, right)
    by_device = "it is divided by the batch, not by the devices"
    yield by_device, wrong and not off(found, total / k) and wrong
    means = np.mean(lengths, axis=0)
    yield "each sample weighs the same", wrong and not off(found, means) and wrong
    yield "it is the gradient of the mean loss", wrong


def _shards(draw: random.Random) -> Iterator[tuple]:
    yield from (([1],), ([2, 2],), ([2, 1],), ([3, 2, 2],))
    for _ in range(4):
        yield ([draw.randint(1, 9) for _ in range(draw.randint(2, 6))],)


@exercise(
    "two-devices/weights",
    '''
def my_weights(counts):
    """Return, for each device, how often one of its samples counts.

    The devices' gradients are averaged as a mean of means. In the right step,
    each sample counts once: its gradient is multiplied by 1 / sum(counts). A
    sample whose gradient is multiplied by 2 / sum(counts) counts twice.

    counts: for each device, how many samples it has, at least one.
    """
    raise NotImplementedError(
        "What is a sample's gradient multiplied by here?",
    )
''',
    _shards,
)
def judge_weights(found, counts):
    yield "one number per device", other(len(found), len(counts))
    right = sum(counts) / (len(counts) * np.array(counts))
    equal = len(set(counts)) == 1 and off(found, right)
    yield "with equal shards each sample counts once", equal
    yield "samples of a small shard count more", mistaken(found, right, 1 / right)
    together = f"all of them together count {in_digits(np.dot(counts, found))} times"
    many = off(np.dot(counts, found), sum(counts), rounding(found)) and together
    yield "all samples together count as often as there are samples", many
    yield "it is the weight that a mean of means gives", off(found, right)


def _counts(draw: random.Random) -> Iterator[tuple]:
    yield from ((1,), (2,), (3,), (4,), (8,), (draw.randint(5, 99),))


@exercise(
    "two-devices/notices",
    '''
def my_smallest(devices):
    """Return the size of the smallest batch that shows a mean of means.

    A test notices the mistake only if the mean of the devices' means differs
    from the mean over the batch. Each device gets at least one sample, and the
    samples are shared as evenly as possible. Return None if no batch shows the
    mistake.
    """
    raise NotImplementedError("When do the shards differ?")
''',
    _counts,
)
def judge_notices(found, devices):
    alone = devices == 1 and found is not None and f"it is {found}, and nothing is cut"
    yield "one device shows nothing", alone
    if devices > 1:
        few = found < devices and f"{found} samples aren't enough for {devices}"
        yield "each device has a sample", few
        equal = found % devices == 0 and f"{found} samples make equal shards"
        yield "the shards differ", equal
        yield "no smaller batch shows it", other(found, devices + 1)


def _steps(draw: random.Random) -> Iterator[tuple]:
    for samples, devices in ((1, 1), (2, 2), (3, 2), (7, 3), (4, 4), (6, 4)):
        yield arrays(draw, 8), arrays(draw, samples, 8), arrays(draw, samples), devices


@exercise(
    "two-devices/step",
    '''
def my_step(w, X, y, devices):
    """Return the copies of w, one per device, after one step of rate 0.1.

    The loss is the mean of (x @ w - y) ** 2 / 2 over the batch. Each device
    has at least one sample.

    w: (numbers,).
    X: (samples, numbers).
    y: (samples,).
    """
    raise NotImplementedError(
        "Split the batch, find the sums, add them up, and divide once."
    )
''',
    _steps,
    hunted=True,
)
def judge_step(found, w, X, y, devices):
    yield "one copy per device", other(len(found), devices)
    pairs = [(a, b) for i, a in enumerate(found) for b in found[:i]]
    shared = any(np.shares_memory(a, b) for a, b in pairs)
    yield "a copy is an array of its own", shared and "two copies are the same array"
    apart = max(float(np.max(np.abs(own - found[0]))) for own in found)
    yield "the copies stay equal", apart > 1e-9 and f"they are {apart:.2g} apart"
    late = w.copy()
    for A, b in zip(np.array_split(X, devices), np.array_split(y, devices)):
        late -= 0.1 * (A @ late - b) @ A / len(y)
    each = (X @ w - y)[:, None] * X  # a gradient a sample; there are fewer than numbers
    before = "gradients are found at the weights before the step"
    yield before, mistaken(found[0], w - 0.1 * each.mean(0), late)
    counted = np.linalg.lstsq(each.T, (w - found[0]) / 0.1, rcond=None)[0]
    times, near = len(y) * counted, 100 * rounding(found[0])
    said = f"samples count {', '.join(f'{t:.2f}' for t in times)} times"
    yield "no sample is lost", min(abs(times)) < near and said
    yield "each sample weighs the same", np.ptp(times) > near and said
    yield "it is divided once, by the batch", abs(times[0] - 1) > near and said


def _off_by(step) -> str:
    """How far a step is off the one of one device, with 6 and with 7 samples."""
    draw, said = random.Random(0), []
    w, X, y = arrays(draw, 8), arrays(draw, 7, 8), arrays(draw, 7)
    for n in (6, 7):
        moved = -0.1 * (X[:n] @ w - y[:n]) @ X[:n] / n
        apart = np.linalg.norm(step(w.copy(), X[:n], y[:n], 3)[0] - w - moved)
        said.append(f"{apart / np.linalg.norm(moved):.0%} with {n} samples")
    return f"on 3 devices, the error of the step is {' and '.join(said)}"


flaw(
    "two-devices/step",
    """
import numpy as np

def my_step(w, X, y, devices):
    grads = []
    for X_own, y_own in zip(np.array_split(X, devices), np.array_split(y, devices)):
        grads.append((X_own @ w - y_own) @ X_own / len(y_own))
    mean = sum(grads) / devices
    return [w - 0.1 * mean for _ in range(devices)]
""",
    _off_by,
    "each sample weighs the same",
)
flaw(
    "two-devices/step",
    """
def my_step(w, X, y, devices):
    size, total = len(y) // devices, 0.0
    for d in range(devices):
        own = slice(d * size, (d + 1) * size)
        total = total + (X[own] @ w - y[own]) @ X[own]
    return [w - 0.1 * total / len(y) for _ in range(devices)]
""",
    _off_by,
    "no sample is lost",
)
flaw(
    "two-devices/step",
    """
import numpy as np

def my_step(w, X, y, devices):
    shards = zip(np.array_split(X, devices), np.array_split(y, devices))
    sums = [(X_own @ w - y_own) @ X_own / len(y) for X_own, y_own in shards]
    mean = np.mean(sums, axis=0)
    return [w - 0.1 * mean for _ in range(devices)]
""",
    _off_by,
    "it is divided once, by the batch",
)
flaw(
    "two-devices/step",
    """
import numpy as np

def my_step(w, X, y, devices):
    copies = [w.copy() for _ in range(devices)]
    for d in range(devices):
        X_own, y_own = np.array_split(X, devices)[d], np.array_split(y, devices)[d]
        found = (X_own @ copies[d] - y_own) @ X_own
        for copy in copies:
            copy -= 0.1 * found / len(y)
    return copies
""",
    _off_by,
    "gradients are found at the weights before the step",
)


def _programs(draw: random.Random) -> Iterator[tuple]:
    there = {"a": "CPU:0", "b": "CPU:1"}
    yield there, [("CPU:0", ["a"], "c")]
    yield there, [("CPU:1", ["a"], "c")]
    yield there, [("CPU:1", ["a", "b"], "c"), ("CPU:1", ["a", "c"], "d")]
    yield there, [("CPU:1", ["b"], "c"), ("CPU:0", ["a", "c"], "d")]
    for _ in range(4):
        lies = {name: f"CPU:{draw.randrange(3)}" for name in "abc"}
        work, known = [], list(lies)
        for made in "defg":
            inputs = draw.sample(known, 2)
            work.append((f"CPU:{draw.randrange(3)}", inputs, made))
            known.append(made)
        yield lies, work


def _fetched(lies: dict[str, str], work: list[tuple]) -> list[tuple[str, str]]:
    """What devices fetch, each tensor once."""
    home, found = dict(lies), []
    for device, inputs, made in work:
        for name in inputs:
            if home[name] != device and (name, device) not in found:
                found.append((name, device))
        home[made] = device
    return found


@exercise(
    "devices/fetched",
    '''
def my_fetched(home, work):
    """Return the silent copies of a program: pairs (tensor, device), in order.

    An operation that needs a tensor from a different device fetches a copy of
    it. The device keeps this copy. Each result has a new name.

    home: a dict from the name of each tensor that exists at the start to its
        device.
    work: the operations in order. Each is (device, names of its inputs, name
        of its result).
    """
    raise NotImplementedError(
        "On which device is each input, and on which device is it needed?"
    )
''',
    _programs,
)
def judge_fetched(found, lies, work):
    right, found = _fetched(lies, work), [tuple(pair) for pair in found]
    twice = [pair for pair in found if found.count(pair) > 1]
    yield "a device keeps what it has fetched", twice and f"{twice[0]} is there twice"
    made = {name for _, _, name in work}
    swapped = [pair for pair in found if pair not in right and pair[::-1] in right]
    yield "a pair is (tensor, device)", swapped and f"{swapped[0]} is the other way"
    extra = [pair for pair in found if pair not in right]
    own = [pair for pair in extra if pair[0] in made]
    yield "a result lies where it was computed", own and f"{own[0]} is no copy"
    yield (
        "a tensor that is already there isn't fetched",
        extra and f"{extra[0]} is no copy",
    )
    lacking = [pair for pair in right if pair not in found]
    yield (
        "a tensor on a different device is fetched",
        lacking and f"{lacking[0]} is missing",
    )
    yield "they are in the order of the work", other(found, right)


FULL = "/job:localhost/replica:0/task:0"  # what comes before a short name


def _placed(draw: random.Random) -> Iterator[tuple]:
    yield ["/device:CPU:0"], [f"{FULL}/device:CPU:0"]
    yield [None, "/device:GPU:1"], [f"{FULL}/device:CPU:0"] * 2
    yield ["/device:GPU:1"], [f"{FULL}/device:GPU:11"]
    yield ["/device:CPU:1"], [f"{FULL}/device:GPU:1"]
    yield ["/device:GPU:0"], [f"{FULL}/device:CPU:0"]
    for _ in range(4):
        got = [f"/device:GPU:{draw.randrange(16)}" for _ in range(6)]
        any_ = [
            draw.choice((own, own, None, f"{own}1", "/device:CPU:0")) for own in got
        ]
        yield any_, [FULL + own for own in got]


@exercise(
    "devices/astray",
    '''
def my_astray(asked, got):
    """Return the positions of the tensors that aren't on the requested device.

    asked: for each tensor, a short name, such as "/device:GPU:1", or None if
        no device was requested.
    got: for each tensor, the full name that it reports, such as
        "/job:localhost/replica:0/task:0/device:GPU:1".
    """
    raise NotImplementedError(
        "When do a full name and a short name mean the same device?"
    )
''',
    _placed,
)
def judge_astray(found, asked, got):
    right = [i for i, a in enumerate(asked) if a and FULL + a != got[i]]
    free = [i for i in found if asked[i] is None]
    yield (
        "a tensor without a requested device isn't named",
        free and f"number {free[0]} is named",
    )
    same = [i for i in found if i not in right]
    named = same and f"number {same[0]} is named"
    yield "a full name and its short one are one device", named
    missed = [i for i in right if i not in found]
    like = [i for i in missed if asked[i] in got[i]]
    yield "device 1 isn't device 11", like and f"number {like[0]} isn't named"
    kinds = all(asked[i].split(":")[-1] == got[i].split(":")[-1] for i in missed)
    mixed = missed and kinds and f"number {missed[0]} isn't named"
    yield "a CPU isn't a GPU", mixed
    yield "all misplaced tensors are named, in order", other(list(found), right)


def _queued(draw: random.Random) -> Iterator[tuple]:
    yield from (([2.0], 1), ([2.0], 4), ([2.0, 2.0], 2), ([2.0, 2.0, 2.0], 2))
    yield [5.0, 1.0, 1.0], 2
    for _ in range(4):
        work = [float(draw.randint(1, 9)) for _ in range(draw.randint(1, 8))]
        yield work, draw.randint(1, 6)


@exercise(
    "devices/seconds",
    '''
def my_seconds(work, cores):
    """Return the fewest seconds in which all logical devices can finish.

    A device has one thread, and a core runs one thread at a time. But threads
    may take turns as often as the system likes, and move to a different core.

    work: for each device, the seconds that it would compute with a core to
        itself.
    cores: the number of cores.
    """
    raise NotImplementedError(
        "How long does the longest need, and how long do all need together?"
    )
''',
    _queued,
)
def judge_seconds(found, work, cores):
    longest, shared = max(work), sum(work) / cores
    quick = (
        found < longest * (1 - rounding(found))
        and f"it is {in_digits(found)}, one needs {longest}"
    )
    yield "a thread runs on one core at a time", quick
    full = (
        found < shared * (1 - rounding(found))
        and f"in {in_digits(found)} s {cores} cores can't"
    )
    yield "more devices aren't more cores", full
    yield "no other order of turns is faster", off(found, max(longest, shared))


def _names(draw: random.Random) -> Iterator[tuple]:
    yield from (("/device:CPU:0",), ("/cpu:1",), (f"{FULL}/device:GPU:1",))
    yield from (("/device:GPU:12",), (f"{FULL}/device:GPU:31",), ("/gpu:10",))
    yield (f"/job:worker/replica:0/task:3/device:CPU:{draw.randint(4, 99)}",)


@exercise(
    "devices/number",
    '''
def my_device(name):
    """Return a device's kind, "CPU" or "GPU", and its number.

    name: a name such as "/device:GPU:1", or in full
        "/job:localhost/replica:0/task:0/device:GPU:1", or "/gpu:1", which
        TensorFlow also accepts.
    """
    raise NotImplementedError(
        "What comes after the last colon, and what comes before it?"
    )
''',
    _names,
    hunted=True,
)
def judge_number(found, name):
    *_, kind, number = name.replace("/", ":").split(":")
    yield "gpu and GPU are one kind", other(found[0], kind.upper())
    cut = str(found[1]) != number and number.endswith(str(found[1]))
    yield "all digits of the number count", cut and f"it is {found[1]}"
    yield "the number is the device's, not the task's", other(found[1], int(number))


def _taken_for(number) -> str:
    """What becomes of three names."""
    names = "/gpu:1", "/device:GPU:12", f"{FULL}/device:GPU:1"
    return "; ".join(f"{name} is {number(name)}" for name in names)


flaw(
    "devices/number",
    """
def my_device(name):
    kind = "GPU" if "GPU" in name.upper() else "CPU"
    return kind, int(name[-1])
""",
    _taken_for,
    "all digits of the number count",
)
flaw(
    "devices/number",
    """
import re

def my_device(name):
    kind = "GPU" if "GPU" in name.upper() else "CPU"
    return kind, int(re.search("[0-9]+", name)[0])
""",
    _taken_for,
    "the number is the device's, not the task's",
)
flaw(
    "devices/number",
    """
def my_device(name):
    kind = "GPU" if "GPU" in name else "CPU"
    return kind, int(name.rpartition(":")[2])
""",
    _taken_for,
    "gpu and GPU are one kind",
)
