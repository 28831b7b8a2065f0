"""Answers to exercises of part 3: right ones, and wrong ones with what they break."""

from __future__ import annotations

import itertools
import math

import numpy as np

# mirrored-strategy


def idle_by_dealing(rows, devices):
    share, given = math.ceil(rows / devices), []
    while rows > 0:
        given.append(min(share, rows))
        rows -= share
    return devices - len(given)


def idle_by_starts(rows, devices):
    share = math.ceil(rows / devices)
    return sum(d * share >= rows for d in range(devices))


def weights_by_arrays(sizes):
    sizes = np.array(sizes)
    return [np.full(n, w).tolist() for n, w in zip(sizes, sizes / sizes.mean())]


def epoch_loss(losses):
    total = rows = 0
    for own in itertools.chain(*losses):
        for loss in own.tolist():
            total, rows = total + loss, rows + 1
    return total / rows


def mean_of_replicas(losses):
    return float(np.mean([own.mean() for batch in losses for own in batch if len(own)]))


# feeding-the-devices


def calls_backwards(stages, elements, size, epochs):
    """Of each function: is there a cache or a batch before or behind it?"""
    out = {}
    for i, name in enumerate(stages):
        if name in ("cache", "batch", "prefetch"):
            continue
        many = -(-elements // size) if "batch" in stages[:i] else elements
        out[name] = many * (1 if "cache" in stages[i:] else epochs)
    return out


def calls_played(stages, elements, size, epochs):
    """Every element of every epoch, one after the other."""
    out = {s: 0 for s in stages if s not in ("cache", "batch", "prefetch")}
    kept = {}
    for epoch in range(epochs):
        stream = list(range(elements))
        skip = stages.index("cache") if epoch and "cache" in stages else -1
        for i, stage in enumerate(stages):
            if stage == "cache":
                stream = kept.setdefault("all", stream)
            elif stage == "batch":
                stream = [stream[a : a + size] for a in range(0, len(stream), size)]
            elif stage != "prefetch" and i > skip:
                out[stage] += len(stream)
    return out


def calls(stages, elements, size, epochs, cached=True, batched=True, up=True):
    first = (
        stages
        if "cache" not in stages or not cached
        else stages[: stages.index("cache")]
    )
    times = {
        s: 1 if cached and "cache" in stages and s in first else epochs for s in stages
    }
    out = {}
    for s in stages:
        if s == "batch" and batched:
            elements = -(-elements // size) if up else elements // size
        elif s not in ("batch", "cache", "prefetch"):
            out[s] = elements * times[s]
    return out


def once_only(stages, elements, size, epochs):
    """Behind a cache nothing is done again either."""
    out = calls(stages, elements, size, epochs)
    return {s: n // epochs for s, n in calls(stages, elements, size, epochs, cached=False).items()} if "cache" in stages else out  # fmt: skip


def feeds_by_search(data, step, work, cores):
    bound = max(data, work / cores)
    return next(k for k in itertools.count(1) if step / k <= bound)


def feeds_by_whole_numbers(data, step, work, cores):
    bound = max(data * cores, work)  # of cores times the time
    return max(1, -(-step * cores // bound))


def order_by_queues(files):
    open_, order = [list(own) for own in files], []
    while open_:
        order += [own.pop(0) for own in open_]
        open_ = [own for own in open_ if own]
    return order


def order_by_sorting(files):
    placed = [
        (r, f, record) for f, own in enumerate(files) for r, record in enumerate(own)
    ]
    return [record for _, _, record in sorted(placed)]


def order_zipped(files):
    return [record for records in zip(*files) for record in records]


def order_without_zero(files):
    return [record for record in order_by_sorting(files) if record]


def order_skipping(files):
    order, open_ = [], [list(own) for own in files]
    while open_:
        for own in open_:
            order.append(own.pop(0))
            if not own:
                open_.remove(own)
    return order


def order_again(files):
    longest = max(map(len, files))
    return [own[r % len(own)] for r in range(longest) for own in files]


# files-for-many-workers


def steps_played(sizes, workers, batch):
    left = [
        sum(n for f, n in enumerate(sizes) if f % workers == w) for w in range(workers)
    ]
    steps = 0
    while all(left):
        left = [max(0, n - batch) for n in left]
        steps += 1
    return steps, sum(left)


def steps_by_arrays(sizes, workers, batch, up=True, own=min):
    padded = np.pad(sizes, (0, -len(sizes) % workers)).reshape(-1, workers)
    records = padded.sum(0)
    steps = np.ceil(records / batch) if up else records // batch
    n = int(own(steps))
    return n, int(np.maximum(records - n * batch, 0).sum())


def parts_by_heap(sizes, workers):
    import heapq

    heap = [(0, w, []) for w in range(workers)]
    for size, i in sorted(zip(sizes, itertools.count()), reverse=True):
        total, w, own = heapq.heappop(heap)
        heapq.heappush(heap, (total + size, w, [*own, i]))
    return [own for _, _, own in sorted(heap, key=lambda each: each[1])]


def parts_by_trying(sizes, workers):
    ways = itertools.product(range(workers), repeat=len(sizes))

    def longest(way):
        return max(sum(s for s, v in zip(sizes, way) if v == w) for w in range(workers))

    best = min(ways, key=longest)
    return [[i for i, v in enumerate(best) if v == w] for w in range(workers)]


def in_order(sizes, workers):
    parts = [[] for _ in range(workers)]
    for i in range(len(sizes)):
        min(parts, key=lambda own: sum(sizes[j] for j in own)).append(i)
    return parts


def smallest_first(sizes, workers):
    parts = [[] for _ in range(workers)]
    for i in sorted(range(len(sizes)), key=lambda i: sizes[i]):
        min(parts, key=lambda own: sum(sizes[j] for j in own)).append(i)
    return parts


def epochs_of(samples, workers, epochs, rng, drop=False):
    found = []
    for epoch in range(epochs):
        orders = [rng(epoch, w).permutation(samples) for w in range(workers)]
        end = samples // workers * workers if drop else samples
        found.append([orders[w][:end][w::workers].tolist() for w in range(workers)])
    return found


def epochs_by_blocks(samples, workers, epochs, seed):
    rng, found = np.random.default_rng(seed), []
    for _ in range(epochs):
        order = rng.permutation(samples)
        found.append([own.tolist() for own in np.array_split(order, workers)])
    return found


def epochs_by_keys(samples, workers, epochs, seed):
    found = []
    for epoch in range(epochs):
        keys = np.random.default_rng(seed + 10_000 * epoch).uniform(size=samples)
        order = np.argsort(keys)
        found.append([[int(i) for i in order[w::workers]] for w in range(workers)])
    return found


def padded_epochs(samples, workers, epochs, seed):
    each, found = -(-samples // workers), []
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(samples)
        order = np.resize(order, each * workers)
        found.append([order[w::workers].tolist() for w in range(workers)])
    return found


# mixed-precision


def stored_by_frexp(x, e, f, keep=True, cut=False, infinite=True):
    c = 2 ** (e - 1) - 1
    m, power = math.frexp(x)
    digits = f + 1 if power > 1 - c else f + 1 - (2 - c - power)
    if not keep and x and power <= 1 - c:
        return 0.0
    scale = 2.0 ** max(digits, -60)
    m = (math.trunc if cut else round)(m * scale) / scale
    found, largest = math.ldexp(m, power), (2 - 2.0**-f) * 2.0**c
    if abs(found) <= largest:
        return found
    return math.copysign(math.inf if infinite else largest, x)


def stored_by_neighbours(x, e, f):
    """The two numbers of the format around x, and the nearer one."""
    c = 2 ** (e - 1) - 1
    spacing, low = 2.0 ** (1 - c - f), abs(x)
    while low >= spacing * 2 ** (f + 1):
        spacing *= 2
    below = math.floor(low / spacing)
    rest = low / spacing - below
    above = rest > 0.5 or (rest == 0.5 and below % 2 == 1)
    found = (below + above) * spacing
    return math.copysign(found if found < 2.0 ** (c + 1) else math.inf, x)


def looked_at_first(x, e, f):
    largest = (2 - 2.0**-f) * 2.0 ** (2 ** (e - 1) - 1)
    if abs(x) > largest:  # though it may be rounded down to the largest
        return math.copysign(math.inf, x)
    return stored_by_frexp(x, e, f)


def half_up(x, e, f):
    """Not to even: what lies in the middle always goes away from zero."""
    c = 2 ** (e - 1) - 1
    power = max(math.floor(math.log2(abs(x))), 1 - c) if x else 0
    spacing = 2.0 ** (power - f)
    found = math.copysign(math.floor(abs(x) / spacing + 0.5) * spacing, x)
    return found if abs(found) < 2.0 ** (c + 1) else math.copysign(math.inf, x)


def mixed_step(w, grads, scale, n, rate, most, each=False):
    with np.errstate(over="ignore"):
        mean = np.mean(grads, axis=0) * len(grads) / scale / n
    if not np.all(np.isfinite(grads[0] if each else mean)):
        return w
    norm = math.sqrt(float(mean @ mean))
    with np.errstate(invalid="ignore"):
        return w - rate * (mean if norm <= most else mean / norm * most)


def step_by_parts(w, grads, scale, n, rate, most):
    if not all(np.all(np.isfinite(g)) for g in grads):
        return w
    with np.errstate(over="ignore"):
        return w - rate * clip(sum(grads) / scale / n, most)


def step_of_floats(w, grads, scale, n, rate, most):
    unscaled = [sum(own) / scale / n for own in zip(*(g.tolist() for g in grads))]
    if not all(map(math.isfinite, unscaled)):
        return w
    factor = min(1.0, most / math.hypot(*unscaled))
    return np.array([a - rate * factor * g for a, g in zip(w, unscaled)])


def clip(g, most):
    with np.errstate(all="ignore"):
        return g * min(1.0, most / np.linalg.norm(g))


def ways_to_step(gradient):
    def step(w, grads, scale, n, rate, most):
        total = sum(grads)
        if not np.isfinite(total).all():
            return w
        return w - rate * gradient(total, scale, n, most)

    return step


# roofline


def seconds_by_arrays(layers, peak, bandwidth):
    flops, size = np.transpose(layers)
    return float(np.maximum(flops / peak, size / bandwidth).sum())


def seconds_by_intensity(layers, peak, bandwidth):
    return sum(f / min(peak, f / size * bandwidth) for f, size in layers)


def batch_by_fractions(i, o, ridge):
    from fractions import Fraction

    per_sample = Fraction(2 * i * o, ridge) - 4 * (i + o)
    return math.ceil(4 * i * o / per_sample) if per_sample > 0 else None


def batch_by_halving(i, o, ridge):
    def enough(b):
        return b * i * o >= 2 * ridge * (b * i + i * o + b * o)

    high = 1
    while not enough(high):
        high *= 2
        if high > 10**12:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def conv_by_positions(batch, size, kernel, channels, filters, padded):
    starts = range(size) if padded else range(size - kernel + 1)
    positions = sum(1 for _ in itertools.product(starts, starts))
    return positions * batch * filters * (2 * kernel * kernel * channels)


def conv_as_product(batch, size, kernel, channels, filters, padded):
    """The kernel as a matrix: (patches, kernel numbers) by (kernel numbers, filters)."""
    side = size - (0 if padded else kernel - 1)
    rows, inner = batch * side * side, kernel * kernel * channels
    return 2 * rows * inner * filters


def conv(batch, size, kernel, channels, filters, side):
    return 2 * batch * side**2 * kernel**2 * channels * filters


def intensity(b, i, o, width, kernel=1, signal=1):
    return 2 * b * i * o / (width * (signal * b * (i + o) + kernel * i * o))


# looking-inside


def gain_by_parts(work, seconds):
    rest = seconds - max(work)
    return seconds / (rest + float(np.mean(work)))


def gain_by_saving(work, seconds):
    saved = max(work) - math.fsum(work) / len(work)
    return 1 / (1 - saved / seconds)


def speedup_by_solving(many, t_many, few, t_few, devices):
    a, b = np.linalg.solve([[1, many], [1, few]], [t_many, t_few])
    a = max(a, 0.0)
    return t_many / (a + (t_many - a) / devices)


def speedup_by_ratio(many, t_many, few, t_few, devices, clip_at=0.0):
    ratio = many / few
    share = max(clip_at, (ratio * t_few - t_many) / (ratio - 1) / t_many)
    return 1 / (share + (1 - share) / devices)


def diagnosis_by_key(readings):
    def place(name):
        value = readings[name][0]
        if math.isnan(value):
            return 2, 0
        return (0, 0) if name in ("traces", "calls") else (1, -value)

    found = [n for n, (v, limit) in readings.items() if not v <= limit]
    return sorted(found, key=place)


def diagnosis_in_three(readings):
    counts, shares, unclear = [], [], []
    for name, (value, limit) in readings.items():
        if value != value:  # noqa: PLR0124
            unclear.append(name)
        elif value > limit and name in ("traces", "calls"):
            counts.append(name)
        elif value > limit:
            shares.append((value, name))
    return counts + [name for _, name in sorted(shares)[::-1]] + unclear


def diagnosis_with(readings, over=lambda v, limit: v > limit, last=True, up=False):
    found = [n for n, (v, limit) in readings.items() if over(v, limit)]
    counts = [n for n in found if n in ("traces", "calls")]
    shares = sorted(set(found) - set(counts), key=lambda n: readings[n][0])
    unclear = [n for n, (v, _) in readings.items() if math.isnan(v)]
    ranked = counts + (shares if up else shares[::-1])
    return ranked + unclear if last else unclear + ranked


RIGHT = {
    "mirrored-strategy/idle": [idle_by_dealing, idle_by_starts],
    "mirrored-strategy/weights": [
        weights_by_arrays,
        lambda sizes: [[len(sizes) * n / sum(sizes) for _ in range(n)] for n in sizes],
    ],
    "mirrored-strategy/epoch": [
        epoch_loss,
        lambda losses: np.concatenate([own for b in losses for own in b]).mean(),
    ],
    "feeding-the-devices/calls": [calls_backwards, calls_played, calls],
    "feeding-the-devices/devices": [feeds_by_search, feeds_by_whole_numbers],
    "feeding-the-devices/interleave": [order_by_queues, order_by_sorting],
    "files-for-many-workers/steps": [steps_played, steps_by_arrays],
    "files-for-many-workers/by-size": [parts_by_heap, parts_by_trying],
    "files-for-many-workers/epochs": [epochs_by_blocks, epochs_by_keys],
    "mixed-precision/stored": [stored_by_frexp, stored_by_neighbours],
    "mixed-precision/step": [mixed_step, step_of_floats],
    "roofline/seconds": [
        seconds_by_arrays,
        seconds_by_intensity,
        lambda layers, P, B: sum((f / P, s / B)[s * P > f * B] for f, s in layers),
    ],
    "roofline/batch": [batch_by_fractions, batch_by_halving],
    "roofline/convolution": [conv_by_positions, conv_as_product],
    "roofline/intensity": [
        intensity,
        lambda b, i, o, w: 2 / w / (1 / o + 1 / b + 1 / i),
    ],
    "looking-inside/even": [gain_by_parts, gain_by_saving],
    "looking-inside/speedup": [speedup_by_solving, speedup_by_ratio],
    "looking-inside/diagnosis": [diagnosis_by_key, diagnosis_in_three, diagnosis_with],
}

COUNTED = "each filter sees all channels, and makes an output channel"
WRONG = {
    "mirrored-strategy/idle": [
        ("a device's share is a whole number of rows", lambda n, k: 0),
        (
            "with more rows than devices, some may still get none",
            lambda n, k: max(0, k - n),
        ),
        ("devices that get a row aren't idle", lambda n, k: k - n // -(-n // k)),
        ("devices that get a row aren't idle", lambda n, k: k - 1),
    ],
    "mirrored-strategy/weights": [
        ("each row counts the same", lambda sizes: [[1.0] * n for n in sizes]),
        (
            "each row counts the same",
            lambda sizes: [[sum(sizes) / len(sizes) / n] * n for n in sizes],
        ),
        (
            "even shards need no weights",
            lambda sizes: [[n / sum(sizes)] * n for n in sizes],
        ),
        (
            "one weight per row",
            lambda sizes: [[len(sizes) * n / sum(sizes)] for n in sizes],
        ),
        (
            "the loss isn't scaled",
            lambda sizes: [[n / max(sizes)] * n for n in sizes],
        ),
    ],
    "mirrored-strategy/epoch": [
        (
            "a smaller batch counts less",
            lambda losses: np.mean([np.concatenate(b).mean() for b in losses]),
        ),
        ("each row counts the same", mean_of_replicas),
        (
            "it is divided by the number of rows in the batch",
            lambda losses: (
                sum(sum(map(np.sum, b)) for b in losses)
                / (len(losses) * sum(map(len, losses[0])))
            ),
        ),
        (
            "a replica without rows adds nothing",
            lambda losses: np.mean(
                [
                    sum(x) / len(x) if len(x) else math.nan
                    for b in losses
                    for x in b
                    for _ in range(max(1, len(x)))
                ]
            ),
        ),
    ],
    "feeding-the-devices/calls": [
        ("cached results aren't computed again", lambda *g: calls(*g, cached=False)),
        (
            "after batch, a function gets a whole batch",
            lambda *g: calls(*g, batched=False),
        ),
        ("a smaller last batch counts as a batch", lambda *g: calls(*g, up=False)),
        ("work that isn't cached is done in each epoch", once_only),
        ("one count per function", lambda *g: list(calls(*g).values())),
    ],
    "feeding-the-devices/devices": [
        (
            "the host's cores are a bound, too",
            lambda d, s, w, c: max(1, math.ceil(s / d)),
        ),
        (
            "with more GPUs, batches come no faster",
            lambda d, s, w, c: max(1, int(s / max(d, w / c))),
        ),
        ("it is a number of GPUs", lambda d, s, w, c: s / max(d, w / c)),
        (
            "with fewer GPUs, batches come more slowly",
            lambda d, s, w, c: 1 + int(s / max(d, w / c)),
        ),
        ("with more GPUs, batches come no faster", lambda d, s, w, c: 1),
        (
            "with more GPUs, batches come no faster",
            lambda d, s, w, c: max(1, math.ceil(s / max(d, w))),
        ),
    ],
    "feeding-the-devices/interleave": [
        ("no record is lost", order_zipped),
        ("a record that is 0 is a record", order_without_zero),
        ("when a file ends, the next file follows", order_skipping),
        ("files take turns", lambda files: sum(files, [])),
        ("no record comes twice", order_again),
    ],
    "files-for-many-workers/steps": [
        (
            "no step waits for a worker without data",
            lambda *g: steps_by_arrays(*g, own=max),
        ),
        ("a smaller last batch is a step", lambda *g: steps_by_arrays(*g, up=False)),
        (
            "a batch that isn't full uses fewer records",
            lambda s, w, b: (
                steps_by_arrays(s, w, b)[0],
                sum(s) - steps_by_arrays(s, w, b)[0] * w * b,
            ),
        ),
        (
            "the records that remain are counted",
            lambda *g: (steps_by_arrays(*g)[0], 0),
        ),
        (
            "they go on while all workers have data",
            lambda *g: (max(0, steps_by_arrays(*g)[0] - 1), steps_by_arrays(*g)[1]),
        ),
    ],
    "files-for-many-workers/by-size": [
        (
            "records are balanced, not files",
            lambda s, k: [list(range(w, len(s), k)) for w in range(k)],
        ),
        ("the numbers of files differ by at most one", in_order),
        ("the numbers of files differ by at most one", smallest_first),
        ("no file is left out", lambda s, k: [own[:-1] for own in parts_by_heap(s, k)]),
        ("no file is read twice", lambda s, k: [list(range(len(s)))] * k),
        (
            "one list per worker",
            lambda s, k: [own for own in parts_by_heap(s, k) if own][1:],
        ),
    ],
    "files-for-many-workers/epochs": [
        (
            "each epoch has a different order",
            lambda n, k, e, s: epochs_of(n, k, e, lambda *_: np.random.default_rng(s)),
        ),
        (
            "the workers' parts fit together",
            lambda n, k, e, s: epochs_of(
                n, k, e, lambda *own: np.random.default_rng([s, *own])
            ),
        ),
        ("no sample is read twice", padded_epochs),
        (
            "samples are shuffled",
            lambda n, k, e, s: [
                [list(range((w + i) % k, n, k)) for w in range(k)] for i in range(e)
            ],
        ),
        (
            "no sample is left out",
            lambda n, k, e, s: epochs_of(
                n, k, e, lambda i, _: np.random.default_rng([s, i]), drop=True
            ),
        ),
        (
            "each epoch has a different order",
            lambda n, k, e, s: [[list(range(w, n, k)) for w in range(k)]] * e,
        ),
    ],
    "mixed-precision/stored": [
        (
            "a number that is too large becomes infinite",
            lambda *g: stored_by_frexp(*g, infinite=False),
        ),
        ("digits are rounded, not cut off", lambda *g: stored_by_frexp(*g, cut=True)),
        (
            "below the normal numbers the spacing stays",
            lambda *g: stored_by_frexp(*g, keep=False),
        ),
        ("of two equally near numbers, it is the even one", half_up),
        (
            "it is the nearest number of the format",
            lambda x, e, f: stored_by_frexp(x, e, f + 1),
        ),
        (
            "a number that isn't too large stays finite",
            lambda x, e, f: stored_by_frexp(x, e - 1, f),
        ),
        ("a number that isn't too large stays finite", looked_at_first),
        (
            "a number that is too large becomes infinite",
            lambda *g: abs(s) if math.isinf(s := stored_by_frexp(*g)) else s,
        ),
    ],
    "mixed-precision/step": [
        (
            "an overflow on any device stops the step",
            lambda *g: mixed_step(*g, each=True),
        ),
        ("a sum that overflows stops the step, too", step_by_parts),
        (
            "the scale doesn't change the step",
            ways_to_step(lambda t, s, n, most: clip(t / n, most)),
        ),
        (
            "it is clipped when it is the mean's gradient",
            ways_to_step(lambda t, s, n, most: clip(t, most) / s / n),
        ),
        (
            "it is clipped when it is the mean's gradient",
            ways_to_step(lambda t, s, n, most: clip(t / n, most) / s),
        ),
        (
            "a gradient that is too long is clipped",
            ways_to_step(lambda t, s, n, most: t / s / n),
        ),
        (
            "a step goes downhill",
            ways_to_step(lambda t, s, n, most: -clip(t / s / n, most)),
        ),
        (
            "it is divided by all samples",
            ways_to_step(lambda t, s, n, most: clip(t / s, most)),
        ),
    ],
    "roofline/seconds": [
        ("bytes take time", lambda layers, P, B: sum(f for f, _ in layers) / P),
        ("FLOPs take time", lambda layers, P, B: sum(s for _, s in layers) / B),
        (
            "a layer moves while it computes",
            lambda layers, P, B: sum(f / P + s / B for f, s in layers),
        ),
        (
            "each layer has its own bound",
            lambda layers, P, B: max(
                sum(f for f, _ in layers) / P, sum(s for _, s in layers) / B
            ),
        ),
        (
            "it is the least time",
            lambda layers, P, B: seconds_by_arrays(layers[:1], P, B) / 2,
        ),
    ],
    "roofline/batch": [
        ("input and output are moved, too", lambda i, o, r: 2 * r),
        (
            "it is None if no batch is large enough",
            lambda i, o, r: math.ceil(2 * r * i * o / max(i * o - 2 * r * (i + o), 1)),
        ),
        ("if a batch is large enough, it isn't None", lambda i, o, r: None),
        (
            "it is a number of samples",
            lambda i, o, r: (
                2 * r * i * o / (i * o - 2 * r * (i + o)) + 0.25
                if i * o > 2 * r * (i + o)
                else None
            ),
        ),
        (
            "it reaches the peak",
            lambda i, o, r: (
                (batch_by_halving(i, o, r) or 0) - 1
                if batch_by_halving(i, o, r)
                else None
            ),
        ),
        (
            "no smaller batch reaches it",
            lambda i, o, r: batch_by_halving(i, o, r) and batch_by_halving(i, o, r) + 1,
        ),
    ],
    "roofline/convolution": [
        (
            "a product counts 2 FLOPs, with its sum",
            lambda *g: conv_as_product(*g) // 2,
        ),
        (
            "without padding the output is smaller",
            lambda b, n, k, c, f, p: conv(b, n, k, c, f, n),
        ),
        (
            "with padding the output is as large",
            lambda b, n, k, c, f, p: conv(b, n, k, c, f, n - k + 1),
        ),
        (COUNTED, lambda b, n, k, c, f, p: conv_as_product(b, n, k, 1, f, p)),
        (COUNTED, lambda b, n, k, c, f, p: conv_as_product(b, n, k, c, 1, p)),
        ("it counts all products", lambda b, *g: conv_as_product(1, *g)),
    ],
    "roofline/intensity": [
        ("the kernel is moved, too", lambda *g: intensity(*g, kernel=0)),
        ("the signals are moved, too", lambda *g: intensity(*g, signal=0)),
        (
            "it is FLOPs per byte, not FLOPs per number",
            lambda b, i, o, w: intensity(b, i, o, 1),
        ),
        (
            "a product is 2 FLOPs, with its sum",
            lambda *g: intensity(*g) / 2,
        ),
        (
            "a number has as many bytes as its dtype",
            lambda b, i, o, w: intensity(b, i, o, 4),
        ),
    ],
    "looking-inside/even": [
        (
            "time that isn't work stays",
            lambda work, t: max(work) * len(work) / sum(work),
        ),
        ("more than 1 means faster", lambda work, t: 1 / gain_by_parts(work, t)),
        (
            "all devices take the mean, not the least",
            lambda work, t: t / max(t - max(work) + min(work), 1e-300),
        ),
        ("even shares gain nothing", lambda work, t: float(len(work))),
        (
            "it is the old time over the new one",
            lambda work, t: t / (t - (max(work) - min(work)) / 2),
        ),
    ],
    "looking-inside/speedup": [
        (
            "time that doesn't shrink with the batch isn't split",
            lambda n, t, m, u, k: float(k),
        ),
        ("a cost isn't negative", lambda *g: speedup_by_ratio(*g, clip_at=-9.0)),
        ("more than 1 means faster", lambda *g: 1 / speedup_by_ratio(*g)),
        (
            "if all time is fixed, devices gain nothing",
            lambda n, t, m, u, k: (
                t / (u * (m < n) / 2 + (t - u / 2) / k)
                if t == u
                else speedup_by_ratio(n, t, m, u, k)
            ),
        ),
        (
            "it is one device's time, divided by the time of all",
            lambda n, t, m, u, k: 1.0,
        ),
    ],
    "looking-inside/diagnosis": [
        (
            "an unclear probe is reported",
            lambda r: [n for n in diagnosis_with(r) if not math.isnan(r[n][0])],
        ),
        (
            "a probe at its limit is healthy",
            lambda r: diagnosis_with(r, over=lambda v, limit: v >= limit),
        ),
        ("the largest share comes first", lambda r: diagnosis_with(r, up=True)),
        ("unclear probes come last", lambda r: diagnosis_with(r, last=False)),
        (
            "counts come before shares",
            lambda r: sorted(
                diagnosis_by_key(r), key=lambda n: n in ("traces", "calls")
            ),
        ),
        ("a healthy probe isn't named", list),
        ("a probe above its limit is named", lambda r: diagnosis_by_key(r)[:1]),
        (
            "counts stay in their order",
            lambda r: (
                sorted(
                    [n for n in diagnosis_by_key(r) if n in ("traces", "calls")],
                    key=lambda n: -r[n][0],
                )
                + [n for n in diagnosis_by_key(r) if n not in ("traces", "calls")]
            ),
        ),
    ],
}
