"""Answers to the exercises of part 1: right ones, and mistakes with what they break."""

from __future__ import annotations

import functools
import math
import re

import numpy as np

from manygpu.exercises.asked.start import FULL
from manygpu.exercises.flaws import FLAWS

SAMPLE = "each sample weighs the same"


def step_in_a_loop(w, X, y, devices):
    total = np.zeros_like(w)
    for rows in np.array_split(np.arange(len(y)), devices):
        for i in rows:
            total += (X[i] @ w - y[i]) * X[i]
    return [w - 0.1 / len(y) * total for _ in range(devices)]


def step_by_weighted_means(w, X, y, devices):
    cuts = list(zip(np.array_split(X, devices), np.array_split(y, devices)))
    means = [(A @ w - b) @ A / len(b) for A, b in cuts]
    mean = np.average(means, axis=0, weights=[len(b) for _, b in cuts])
    return [w - 0.1 * mean for _ in range(devices)]


def step_of_one(w, X, y, devices):
    return np.tile(w - 0.1 * X.T @ (X @ w - y) / len(y), (devices, 1))


def own_steps(w, X, y, devices):
    cuts = zip(np.array_split(X, devices), np.array_split(y, devices))
    return [w - 0.1 * (A @ w - b) @ A / len(b) for A, b in cuts]


def fetched(lies, work, keeps=True, made_at=None):
    home, pairs = dict(lies), []
    for device, inputs, made in work:
        pairs += [(name, device) for name in inputs if home[name] != device]
        home[made] = made_at or device
    return list(dict.fromkeys(pairs)) if keeps else pairs


def fetched_by_sets(lies, work):
    holds, pairs = {}, []
    for name, device in lies.items():
        holds.setdefault(device, set()).add(name)
    for device, inputs, made in work:
        own = holds.setdefault(device, set())
        for name in inputs:
            if name not in own:
                own.add(name)
                pairs.append((name, device))
        own.add(made)
    return pairs


def astray_by_prefix(asked, got):
    ends = ["/device:" + full.rpartition("/device:")[2] for full in got]
    return [i for i, (a, own) in enumerate(zip(asked, ends)) if a not in (None, own)]


def astray_by_number(asked, got):
    def device(name):
        return name.split("/")[-1].split(":")[1:]

    pairs = enumerate(zip(asked, got))
    return [i for i, (a, b) in pairs if a and device(a) != device(b)]


def device_by_pattern(name):
    kind, number = re.fullmatch(r".*/(?:device:)?([a-zA-Z]+):(\d+)", name).groups()
    return kind.upper(), int(number)


def device_by_split(name):
    kind, number = name.split("/")[-1].split(":")[-2:]
    return {"c": "CPU", "g": "GPU"}[kind[0].lower()], int(number)


def hunted(of):
    """The mistakes that are a page's bugs."""
    page = of.partition("/")[0]
    return [(one.broken, one.function) for one in FLAWS[page] if one.of == of]


def batch_by_trying(parameters, activations, copies, memory):
    batch, step = 0, 4 * activations
    left = memory - 4 * parameters * (2 + copies)
    while left >= step:
        batch, left = batch + 1, left - step
    return batch


def sizes(size, widths, deviation, relu=0.5, last=1.0, power=2):
    found = []
    for i, n in enumerate(widths[:-1]):
        size = size * n * deviation**power * (relu if i < len(widths) - 2 else last)
        found.append(size)
    return found


def sizes_by_products(size, widths, deviation):
    grown = size * np.cumprod(np.array(widths[:-1]) * deviation**2)
    return grown / 2.0 ** np.minimum(np.arange(1, len(widths)), len(widths) - 2)


def training(w, batches, size=None, keep=0.0):
    gradient = 0.0
    for X, y in batches:
        gradient = keep * gradient + X.T @ (X @ w - y)
        w = w - 0.1 / (size or len(y)) * gradient
    return w


def training_by_samples(w, batches):
    for X, y in batches:
        w = w - 0.1 * np.mean([(x @ w - t) * x for x, t in zip(X, y)], axis=0)
    return w


def training_recursive(w, batches):
    if not batches:
        return w
    (X, y), *rest = batches
    return training_recursive(w - 0.1 * (X @ w - y) @ X / len(y), rest)


def terms(g, W, k):
    cuts = zip(np.array_split(g, k, 1), np.array_split(W, k, 1))
    return [own @ part.T for own, part in cuts]


def terms_by_masks(g, W, k):
    owner = np.concatenate(
        [np.full(len(c), d) for d, c in enumerate(np.array_split(g[0], k))]
    )
    return [(g * (owner == d)) @ W.T for d in range(k)]


def terms_swapped(g, W, k):
    return terms(g, W, k)[::-1]


def logits(x, weights, k):
    for i, W in enumerate(weights):
        x = np.concatenate([x @ p for p in np.array_split(W, k, 1)], 1)
        x = x if i == len(weights) - 1 else np.maximum(x, 0)
    return x


def logits_by_inputs(x, weights, k):
    for i, W in enumerate(weights):
        cuts = zip(np.array_split(x, k, 1), np.array_split(W, k))
        x = sum(own @ rows for own, rows in cuts)
        x = x if i == len(weights) - 1 else np.maximum(x, 0)
    return x


def logits_of_pieces(x, weights, k):
    pieces = [x]
    for W in weights[:-1]:
        whole = np.concatenate(pieces, 1)
        pieces = [np.maximum(whole @ own, 0) for own in np.array_split(W, k, 1)]
    whole = np.concatenate(pieces, 1)
    return np.concatenate([whole @ p for p in np.array_split(weights[-1], k, 1)], 1)


def stuck_by_length(calls):
    for turn in range(max(map(len, calls))):
        if any(own[turn : turn + 1] != calls[0][turn : turn + 1] for own in calls):
            return turn
    return None


def stuck_by_prefixes(calls):
    for n in range(1, max(map(len, calls)) + 1):
        if any(len(own) < n or own[:n] != calls[0][:n] for own in calls):
            return n - 1
    return None


def stuck_while_all_call(calls):
    turns = enumerate(zip(*calls))
    return next((i for i, names in turns if len(set(names)) > 1), None)


def part(n, rank, world):
    sizes = [len(own) for own in np.array_split(np.arange(n), world)]
    return sum(sizes[:rank]), sum(sizes[: rank + 1])


def layerwise(pieces):
    return np.array(pieces).max(0).sum()


RIGHT = {
    "two-devices/weights": [
        lambda n: np.mean(n) / np.array(n),
        lambda n: [1 / (len(n) * each) / (1 / sum(n)) for each in n],
        lambda n: [float(np.mean([each / own for each in n])) for own in n],
    ],
    "two-devices/notices": [
        lambda k: None if k == 1 else k + 1,
        lambda k: next((n for n in range(k, 2 * k) if n % k), None),
    ],
    "two-devices/step": [step_in_a_loop, step_by_weighted_means, step_of_one],
    "devices/fetched": [fetched, fetched_by_sets],
    "devices/astray": [
        lambda asked, got: [
            i for i, a in enumerate(asked) if a and not got[i].endswith(a)
        ],
        astray_by_prefix,
        astray_by_number,
    ],
    "devices/seconds": [
        lambda work, cores: max([*work, sum(work) / cores]),
        lambda work, cores: np.maximum(np.max(work), np.sum(work) / cores),
    ],
    "devices/number": [device_by_pattern, device_by_split],
    "one-device/training": [training, training_by_samples, training_recursive],
    "one-device/batch": [
        lambda p, a, s, m: max(0, (m - 4 * p * (2 + s)) // (4 * a)),
        batch_by_trying,
    ],
    "one-device/sizes": [sizes, sizes_by_products],
    "three-ways-to-split/batch": [
        lambda p, h, k: math.ceil(p / h),
        lambda p, h, k: p // h + (p % h > 0),
    ],
    "three-ways-to-split/backward": [terms, terms_by_masks],
    "three-ways-to-split/seconds": [
        lambda p: (layerwise(p), np.array(p).sum(1).max()),
        lambda p: [sum(max(e) for e in zip(*p)), sorted(sum(own) for own in p)[-1]],
    ],
    "three-ways-to-split/logits": [logits, logits_by_inputs, logits_of_pieces],
    "how-clusters-run/part": [
        part,
        lambda n, r, k: tuple(d * (n // k) + min(d, n % k) for d in (r, r + 1)),
    ],
    "how-clusters-run/scale": [
        lambda own, n, k: own / (n / k),
        lambda own, n, k: (1 / n) / (1 / own / k),
    ],
    "how-clusters-run/stuck": [stuck_by_length, stuck_by_prefixes],
    "how-clusters-run/calls": [
        lambda finite: [["flag", "gradients"][: 1 + all(finite)]] * len(finite),
        lambda finite: [
            ["flag"] + ["gradients"] * (False not in finite) for _ in finite
        ],
    ],
}
WRONG = {
    "two-devices/weights": [
        ("samples of a small shard count more", lambda n: np.array(n) / np.mean(n)),
        (
            "with equal shards each sample counts once",
            lambda n: [1 / (len(n) * each) for each in n],
        ),
        ("it is the weight that a mean of means gives", lambda n: [1.0 for _ in n]),
        (
            "all samples together count as often as there are samples",
            lambda n: [max(n) / each for each in n],
        ),
        (
            "one number per device",
            lambda n: [np.mean(n) / e for e in n for _ in range(e)],
        ),
    ],
    "two-devices/notices": [
        ("the shards differ", lambda k: k if k > 1 else None),
        ("each device has a sample", lambda k: 1 if k > 1 else None),
        ("no smaller batch shows it", lambda k: 2 * k - 1 if k > 1 else None),
        ("one device shows nothing", lambda k: k + 1),
    ],
    "two-devices/step": [
        *hunted("two-devices/step"),
        ("the copies stay equal", own_steps),
        ("one copy per device", lambda *given: step_of_one(*given)[:1]),
    ],
    "devices/fetched": [
        (
            "a device keeps what it has fetched",
            functools.partial(fetched, keeps=False),
        ),
        (
            "a result lies where it was computed",
            functools.partial(fetched, made_at="CPU:0"),
        ),
        (
            "a tensor that is already there isn't fetched",
            lambda lies, work: [(n, d) for d, inputs, _ in work for n in inputs],
        ),
        (
            "a tensor on a different device is fetched",
            lambda lies, work: [p for p in fetched(lies, work) if p[0] in lies],
        ),
        ("they are in the order of the work", lambda *g: sorted(fetched(*g))),
        (
            "a pair is (tensor, device)",
            lambda *g: [pair[::-1] for pair in fetched(*g)],
        ),
    ],
    "devices/astray": [
        (
            "a full name and its short one are one device",
            lambda asked, got: [i for i, a in enumerate(asked) if a and a != got[i]],
        ),
        (
            "device 1 isn't device 11",
            lambda asked, got: [
                i for i, a in enumerate(asked) if a and a not in got[i]
            ],
        ),
        (
            "a tensor without a requested device isn't named",
            lambda asked, got: [
                i for i, a in enumerate(asked) if not got[i].endswith(a or "/no")
            ],
        ),
        (
            "all misplaced tensors are named, in order",
            lambda asked, got: [
                i for i, a in enumerate(asked) if a and FULL + a != got[i]
            ][:1],
        ),
        (
            "a CPU isn't a GPU",
            lambda asked, got: [
                i
                for i, (a, b) in enumerate(zip(asked, got))
                if a and a.split(":")[-1] != b.split(":")[-1]
            ],
        ),
    ],
    "devices/seconds": [
        ("a thread runs on one core at a time", lambda work, cores: sum(work) / cores),
        ("more devices aren't more cores", lambda work, cores: max(work)),
        ("no other order of turns is faster", lambda work, cores: sum(work)),
        (
            "no other order of turns is faster",
            lambda work, cores: max(work) * -(-len(work) // cores),
        ),
    ],
    "devices/number": hunted("devices/number"),
    "one-device/training": [
        *hunted("one-device/training"),
        (
            "the small last batch counts, too",
            lambda w, b: training(w, [x for x in b if len(x[1]) == len(b[0][1])]),
        ),
        ("it is a step on each batch", lambda w, b: training(w, b[:1])),
    ],
    "one-device/batch": [
        (
            "gradients need room, too",
            lambda p, a, s, m: max(0, (m - 4 * p * (1 + s)) // (4 * a)),
        ),
        (
            "the optimizer's copies need room",
            lambda p, a, s, m: max(0, (m - 8 * p) // (4 * a)),
        ),
        ("a float32 has four bytes", lambda p, a, s, m: max(0, (m - p * (2 + s)) // a)),
        (
            "no less than 0 samples fit",
            lambda p, a, s, m: (m - 4 * p * (2 + s)) // (4 * a),
        ),
        ("it fits", lambda p, a, s, m: m // (4 * a)),
    ],
    "one-device/sizes": [
        ("a ReLU halves it", functools.partial(sizes, relu=1.0)),
        ("no ReLU follows the last layer", functools.partial(sizes, last=0.5)),
        ("the deviation is squared", functools.partial(sizes, power=1)),
        (
            "an output sums one product per input",
            lambda s, w, d: sizes(s, [*w[1:], 1], d),
        ),
        (
            "each layer gets the output of the layer below",
            lambda s, w, d: [s * n * d * d / 2 for n in w[:-2]] + [s * w[-2] * d * d],
        ),
    ],
    "three-ways-to-split/batch": [
        ("data parallelism receives no more", lambda p, h, k: p // h),
        ("no smaller batch is enough", lambda p, h, k: p // h + 1),
        ("both send as much backward as forward", lambda p, h, k: -(-2 * p // h)),
        (
            "the number of devices doesn't matter",
            lambda p, h, k: math.ceil(p * (k - 1) / k / h),
        ),
        ("it is a whole number of samples", lambda p, h, k: p / h),
    ],
    "three-ways-to-split/backward": [
        ("each term is of the device's own columns", lambda g, W, k: [g @ W.T / k] * k),
        ("each term is of the device's own columns", terms_swapped),
        ("a term has the input's shape", lambda g, W, k: np.array_split(g @ W.T, k, 1)),
        ("one term per device", lambda g, W, k: [g @ W.T] * (k == 1)),
        ("the terms add up to one device's gradient", lambda g, W, k: [g @ W.T] * k),
    ],
    "three-ways-to-split/seconds": [
        (
            "layerwise, all devices wait for each other after every layer",
            lambda p: (max(map(sum, p)),) * 2,
        ),
        (
            "in data parallelism no device waits before the end",
            lambda p: (layerwise(p),) * 2,
        ),
        (
            "the slowest device decides",
            lambda p: (layerwise(p), np.array(p).sum(1).mean()),
        ),
    ],
    "three-ways-to-split/logits": hunted("three-ways-to-split/logits"),
    "how-clusters-run/part": [
        (
            "the shares differ by at most one",
            lambda n, r, k: (0, n) if r == 0 else (n, n),
        ),
        (
            "the larger shares come first",
            lambda n, r, k: (r * (n // k), n if r == k - 1 else (r + 1) * (n // k)),
        ),
        (
            "the samples are present",
            lambda n, r, k: (r * -(-n // k), (r + 1) * -(-n // k)),
        ),
        (
            "the larger shares come first",
            lambda n, r, k: (r * n // k, (r + 1) * n // k),
        ),
        (
            "each sample is read exactly once",
            lambda n, r, k: (r * (n // k), (r + 1) * (n // k) + (r < n % k)),
        ),
    ],
    "how-clusters-run/scale": [
        ("a worker with more samples has more weight", lambda own, n, k: n / (k * own)),
        ("with equal shares nothing changes", lambda own, n, k: own / n),
        ("with equal shares nothing changes", lambda own, n, k: k),
        ("each sample weighs the same", lambda own, n, k: 1.0),
    ],
    "how-clusters-run/stuck": [
        ("a rank that has no call left is missed", stuck_while_all_call),
        (
            "up to this call, all ranks do the same",
            lambda c: None if stuck_by_length(c) is None else 0,
        ),
        ("if all ranks call the same, no rank waits", lambda c: min(map(len, c))),
        ("it is the first such call", lambda c: None),
    ],
    "how-clusters-run/calls": hunted("how-clusters-run/calls"),
}
