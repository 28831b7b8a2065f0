"""Answers to exercises: right ones, and wrong ones with what they break."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

SAMPLE, RUNS = "each sample weighs the same", "it runs"
KIND = "it returns what the docstring says"


def shares(n, k):
    return [n // k + (i < n % k) for i in range(k)]


def one_by_one(data):
    for own in data[1:]:
        data[0] += own
    for own in data[1:]:
        own[...] = data[0]


def too_early(data):
    for own in data:
        own[...] = np.sum(data, axis=0)


def new_ones(data):
    return [np.sum(data, axis=0) for _ in data]


def only_first(data):
    data[0] += np.sum(data[1:], axis=0)


def ring(n, ahead=1, steps=None):
    steps = range(n - 1 if steps is None else steps)
    return [[(i, (i + 1) % n, (i - s - ahead) % n) for i in range(n)] for s in steps]


def ring_by_chunks(n):
    plan = [[] for _ in range(n - 1)]
    for chunk in range(n):
        for s in range(n - 1):
            sender = (chunk + 1 + s) % n
            plan[s].append((sender, (sender + 1) % n, chunk))
    return plan


def ring_one_message_a_step(n):
    return [[message] for each in ring(n) for message in each]


def doubling(n):
    plan, have = [], 1
    while have < n:
        plan.append([(i, i + have) for i in range(have) if i + have < n])
        have *= 2
    return plan


def halving(n):
    plan, spans = [], [(0, n)]
    while any(b - a > 1 for a, b in spans):
        cuts = [(a, (a + b + 1) // 2, b) for a, b in spans]
        plan.append([(a, c) for a, c, b in cuts if c < b])
        spans = [
            part for a, c, b in cuts for part in ((a, c), (c, b)) if part[0] < part[1]
        ]
    return plan


def any_free(n):
    plan, has, lacks = [], [0], list(range(1, n))
    while lacks:
        step = list(zip(has, lacks))
        plan.append(step)
        has, lacks = has + [j for _, j in step], lacks[len(step) :]
    return plan


def buckets(sizes, limit):
    made, room = [], -1
    for i in reversed(range(len(sizes))):
        if sizes[i] > room:
            made.append([])
            room = limit
        made[-1].append(i)
        room -= sizes[i]
    return made


def buckets_by_sum(sizes, limit):
    made = [[len(sizes) - 1]]
    for i in range(len(sizes) - 2, -1, -1):
        if sum(sizes[j] for j in made[-1]) + sizes[i] <= limit:
            made[-1] = [*made[-1], i]
        else:
            made.append([i])
    return made


def buckets_recursive(sizes, limit):
    if not sizes:
        return []
    first, total = [len(sizes) - 1], sizes[-1]
    while first[-1] and total + sizes[first[-1] - 1] <= limit:
        first.append(first[-1] - 1)
        total += sizes[first[-1]]
    return [first, *buckets_recursive(sizes[: first[-1]], limit)]


def buckets_from_the_front(sizes, limit):
    last = len(sizes) - 1
    return [[last - i for i in b] for b in buckets(sizes[::-1], limit)]


def overfull(sizes, limit):
    made, total = [[]], 0
    for i in reversed(range(len(sizes))):
        if total >= limit:
            made.append([])
            total = 0
        made[-1].append(i)
        total += sizes[i]
    return made


def pairwise(x):
    while len(x) > 1:
        half = len(x) // 2
        rest = x[2 * half :]
        x = np.concatenate([x[:half] + x[half : 2 * half], rest])
    return x[0] if len(x) else np.float32(0)


def compensated(x):
    total = lost = np.float32(0)
    for each in x:
        own = each - lost
        more = total + own
        lost = (more - total) - own
        total = more
    return total


def sorted_pairs(x):
    return pairwise(np.sort(x))


def one_after_the_other(x):
    return functools.reduce(lambda a, b: np.float32(a + b), x, np.float32(0))


def one_forward_one_backward(p, m, warm=lambda s, p: p - s - 1):
    orders = []
    for s in range(p):
        w = min(m, warm(s, p))
        order = [("F", i) for i in range(w)]
        for i in range(m - w):
            order += [("F", w + i), ("B", i)]
        orders.append(order + [("B", i) for i in range(m - w, m)])
    return orders


def by_counting(p, m):
    orders = []
    for s in range(p):
        f = b = 0
        order = []
        while b < m:
            if f < m and f - b < p - s:
                order.append(("F", f))
                f += 1
            else:
                order.append(("B", b))
                b += 1
        orders.append(order)
    return orders


def merged(counts, means, variances):
    count, mean, squares = 0, 0.0, 0.0
    for n, m, v in zip(counts, means, variances):
        if n:
            apart, both = m - mean, count + n
            mean = mean + apart * n / both
            squares = squares + v * n + apart**2 * count * n / both
            count = both
    return mean, squares / count


def shifted(counts, means, variances):
    at = means[0]
    n, m = np.array(counts, float)[:, None], np.array(means) - at
    mean = (n * m).sum(0) / n.sum()
    squares = (n * (np.array(variances) + m**2)).sum(0) / n.sum()
    return mean + at, squares - mean**2


def unweighted(counts, means, variances):
    mean = np.mean(means, axis=0)
    return mean, np.mean(np.array(variances) + (np.array(means) - mean) ** 2, axis=0)


def of_squares(counts, means, variances):
    n, m = np.array(counts, float)[:, None], np.array(means)
    mean = (n * m).sum(0) / n.sum()
    return mean, (n * (np.array(variances) + m**2)).sum(0) / n.sum() - mean**2


def pair(x, A, a, B, b, k, times=lambda d: d == 0):
    cuts = np.array_split(A, k, 1), np.array_split(a, k), np.array_split(B, k)
    terms = [np.maximum(x @ own + part, 0) @ rows for own, part, rows in zip(*cuts)]
    return [term + b * times(d) for d, term in enumerate(terms)]


def pair_from_the_last(x, A, a, B, b, k):
    terms = pair(x, A, a, B, 0 * b, k)
    terms[-1] = terms[-1] + b
    return terms


def pair_of_rows(x, A, a, B, b, k):
    cuts = zip(np.array_split(x, k, 1), np.array_split(A, k), range(k))
    return [np.maximum(p @ q + a * (d == 0), 0) @ B + b * (d == 0) for p, q, d in cuts]


def pair_swapped(x, A, a, B, b, k):
    cuts = np.array_split(A, k, 1), np.array_split(a, k), np.array_split(B, k)[::-1]
    terms = [np.maximum(x @ own + part, 0) @ rows for own, part, rows in zip(*cuts)]
    return [term + b * (d == 0) for d, term in enumerate(terms)]


def whole_on_one(x, A, a, B, b, k):
    whole = np.maximum(x @ A + a, 0) @ B + b
    return [whole * (d == 0) for d in range(k)]


def peak(n, s):
    return -(-n // s) + min(s, n)


def first_cuts(costs, stages, key=max):
    def slowest(cuts):
        ends = [0, *cuts, len(costs)]
        return key(sum(costs[a:b]) for a, b in zip(ends, ends[1:]))

    return min(itertools.combinations(range(1, len(costs)), stages - 1), key=slowest)


def cuts_by_bound(costs, stages):
    """The smallest bound under which a greedy walk needs no more stages."""
    bounds = sorted(
        {sum(costs[a:b]) for a, b in itertools.combinations(range(len(costs) + 1), 2)}
    )
    for bound in bounds:
        cuts, total = [], 0
        for i, cost in enumerate(costs):
            if total + cost > bound:
                cuts.append(i)
                total = 0
            total += cost
        if max(costs) <= bound and len(cuts) < stages:
            spare = [i for i in range(1, len(costs)) if i not in cuts]
            return sorted([*cuts, *spare[: stages - 1 - len(cuts)]])
    return []


def cuts_backwards(costs, stages):
    found = first_cuts(costs[::-1], stages)
    return sorted(len(costs) - cut for cut in found)


def equal_counts(costs, stages):
    return [len(costs) * (s + 1) // stages for s in range(stages - 1)]


def heads_by_reshape(qkv, heads, k):
    parts = np.split(qkv.reshape(len(qkv), 3, heads, -1), k, axis=2)
    return [part.reshape(len(qkv), -1) for part in parts]


def heads_by_thirds(qkv, heads, k):
    thirds = [np.split(third, k, 1) for third in np.split(qkv, 3, 1)]
    return [np.concatenate(own, 1) for own in zip(*thirds)]


def heads_by_columns(qkv, heads, k):
    own = qkv.shape[1] // 3 // k
    third = qkv.shape[1] // 3
    columns = [
        [c * third + d * own + i for c in range(3) for i in range(own)]
        for d in range(k)
    ]
    return [qkv[:, each] for each in columns]


def heads_interleaved(qkv, heads, k):
    return [p.transpose(0, 2, 1, 3).reshape(len(qkv), -1)
            for p in np.split(qkv.reshape(len(qkv), 3, heads, -1), k, 2)]  # fmt: skip


def sent(gradients, count, keep=1.0, largest=True, all_=False):
    left, out = 0.0, []
    for gradient in gradients:
        meant = gradient + keep * left
        order = np.argsort(-np.abs(meant) if largest else np.abs(meant), kind="stable")
        own = np.zeros_like(meant)
        places = order if all_ else order[:count]
        own[places] = meant[places]
        left = meant - own
        out.append(own)
    return out


def sent_by_threshold(gradients, count):
    left, out = np.zeros_like(gradients[0]), []
    for gradient in gradients:
        left = left + gradient
        bound = np.sort(np.abs(left))[-count]
        own = np.where(np.abs(left) >= bound, left, 0)
        left = left - own
        out.append(own)
    return out


def sent_one_at_a_time(gradients, count):
    left, out = np.zeros_like(gradients[0]), []
    for gradient in gradients:
        left, own = left + gradient, np.zeros_like(left)
        for _ in range(count):
            i = int(np.argmax(np.abs(left)))
            own[i], left[i] = own[i] + left[i], 0
        out.append(own)
    return out


def only_this_steps(gradients, count):
    return [sent([gradient], count)[0] for gradient in gradients]


def staleness(pushes):
    seen, out = {}, []
    for step, name in enumerate(pushes):
        out.append(step - seen.get(name, 0))
        seen[name] = step + 1
    return out


def staleness_by_search(pushes):
    out = []
    for i, name in enumerate(pushes):
        before = [j for j in range(i) if pushes[j] == name]
        out.append(i - (before[-1] + 1 if before else 0))
    return out


def staleness_by_counters(pushes):
    behind, out = dict.fromkeys(pushes, 0), []
    for name in pushes:
        out.append(behind[name])
        behind = {other: n + 1 for other, n in behind.items()} | {name: 0}
    return out


def with_its_own(pushes):
    seen, out = {}, []
    for step, name in enumerate(pushes):
        out.append(step - seen.get(name, -1))
        seen[name] = step
    return out


def local(gradients, rate, every, up=-1, when=lambda s, e: (s + 1) % e == 0):
    w = np.zeros((len(gradients), gradients[0].shape[1]))
    for step in range(len(gradients[0])):
        w = w + up * rate * np.stack([own[step] for own in gradients])
        if when(step, every):
            w = np.broadcast_to(w.mean(0), w.shape).copy()
    return w


def local_in_rounds(gradients, rate, every):
    g, steps = np.array(gradients), len(gradients[0])
    whole = steps // every * every
    start = -rate * g[:, :whole].mean(0).sum(0)
    return start - rate * g[:, whole:].sum(1)


def local_with_loops(gradients, rate, every):
    w = [np.zeros(gradients[0].shape[1]) for _ in gradients]
    for step, now in enumerate(zip(*gradients), 1):
        w = [own - rate * g for own, g in zip(w, now)]
        if not step % every:
            w = [sum(w) / len(w)] * len(w)
    return w


def fewest(p, memory, share, n):
    room = memory * (1 - share)
    return next((k for k in range(1, n + 1) if 16 * p <= k * room), None)


def fewest_by_division(p, memory, share, n):
    need = max(1, math.ceil(16 * p / (memory * (1 - share))))
    return need if need <= n else None


def fewest_downwards(p, memory, share, n):
    found = [k for k in range(n, 0, -1) if 16 * p / k <= memory * (1 - share)]
    return found[-1] if found else None


def mesh(data, model):
    ranks = np.arange(data * model).reshape(data, model)
    return ranks.T.tolist(), ranks.tolist()


def mesh_by_ranges(data, model):
    n = data * model
    along_data = [list(range(m, n, model)) for m in range(model)]
    return along_data, [list(range(i, i + model)) for i in range(0, n, model)]


def mesh_by_rank(data, model):
    rows, columns = [[] for _ in range(data)], [[] for _ in range(model)]
    for rank in range(data * model):
        row, column = divmod(rank, model)
        rows[row].append(rank)
        columns[column].append(rank)
    return columns, rows


def cut_inputs(x, W, b, k, bias=lambda d: d == 0):
    cuts = zip(np.array_split(x, k, 1), np.array_split(W, k))
    return [own @ rows + b * bias(d) for d, (own, rows) in enumerate(cuts)]


def cut_inputs_with_slices(x, W, b, k):
    ends = np.cumsum([0, *shares(len(W), k)])
    terms = [x[:, i:j] @ W[i:j] for i, j in zip(ends, ends[1:])]
    terms[-1] = terms[-1] + b
    return terms


def cut_inputs_by_masks(x, W, b, k):
    owner = np.repeat(np.arange(k), shares(len(W), k))
    return [(x * (owner == d)) @ W + b / k for d in range(k)]


def on_one_device(x, W, b, k):
    return [(x @ W + b) * (d == 0) for d in range(k)]


def weighted_means(sums, counts):
    means = [s / max(n, 1) for s, n in zip(sums, counts)]
    return np.average(means, axis=0, weights=counts)


def in_a_loop(sums, counts):
    total = np.zeros_like(sums[0])
    for each in sums:
        total += each
    return total * (1 / np.sum(counts))


def replica_losses(losses, batch):
    return [float(sum(own)) / batch for own in losses]


def prefetched_by_events(loading, training):
    starts, ends = [], []
    ready = 0.0
    for i, load in enumerate(loading):
        ready = max(ready, starts[-1] if starts else 0) + load
        starts.append(max(ready, ends[-1]) if ends else ready)
        ends.append(starts[-1] + training[i])
    return ends[-1]


def prefetched_as_a_list(loading, training):
    r, s, e = [0.0], [0.0], [0.0]
    for a, b in zip(loading, training):
        r.append(max(r[-1], s[-1]) + a)
        s.append(max(r[-1], e[-1]))
        e.append(s[-1] + b)
    return max(e)


def unlimited(loading, training):
    ready = free = 0.0
    for load, step in zip(loading, training):
        ready += load
        free = max(ready, free) + step
    return free


def scales(finite, start, every, up=2, restart=True):
    out, scale, good = [], start, 0
    for fine in finite:
        out.append(scale)
        if fine:
            good += 1
            if good == every:
                scale, good = scale * up, 0
        else:
            scale, good = scale / 2, 0 if restart else good
    return out


def scales_by_history(finite, start, every):
    out, run = [start], []
    for fine in finite[:-1]:
        run = [*run, True] if fine else []
        now = out[-1]
        if not fine:
            now = now / 2
        elif len(run) == every:
            now, run = now * 2, []
        out.append(now)
    return out


class Scale:
    def __init__(self, start, every):
        self.value, self.every, self.left = start, every, every

    def after(self, fine):
        self.left -= 1
        if not fine:
            self.value, self.left = self.value / 2, self.every
        elif self.left == 0:
            self.value, self.left = self.value * 2, self.every


def scales_by_class(finite, start, every):
    scale, out = Scale(start, every), []
    for fine in finite:
        out.append(scale.value)
        scale.after(fine)
    return out


def at_once(finite, start, every):
    return [*scales(finite, start, every)[1:], start][: len(finite)]


def merged_spans(spans):
    out = []
    for a, b in sorted(spans):
        if out and a <= out[-1][1]:
            out[-1] = (out[-1][0], max(b, out[-1][1]))
        else:
            out.append((a, b))
    return out


def hidden(computing, sending):
    pairs = itertools.product(merged_spans(computing), merged_spans(sending))
    return sum(max(0, min(b, d) - max(a, c)) for (a, b), (c, d) in pairs)


def hidden_by_arrays(computing, sending):
    both = np.zeros((2, 100), bool)
    for own, spans in zip(both, (computing, sending)):
        for a, b in spans:
            own[a:b] = True
    return int(both.all(0).sum())


def in_pairs(computing, sending):
    pairs = itertools.product(computing, sending)
    return sum(max(0, min(b, d) - max(a, c)) for (a, b), (c, d) in pairs)


def pieces(array, mesh, spec):
    out = []
    for place in itertools.product(*map(range, mesh)):
        own = array
        for axis, by in enumerate(spec):
            if by is not None:
                own = np.array_split(own, mesh[by], axis)[place[by]]
        out.append(own)
    return out


def pieces_by_slices(array, mesh, spec):
    def part(axis, place):
        by = spec[axis]
        if by is None:
            return slice(None)
        size = array.shape[axis] // mesh[by]
        return slice(place[by] * size, (place[by] + 1) * size)

    places = [divmod(d, mesh[1]) for d in range(mesh[0] * mesh[1])]
    return [array[part(0, place), part(1, place)] for place in places]


def pieces_by_index(array, mesh, spec):
    rows, columns = np.indices(mesh).reshape(2, -1)
    out = []
    for place in zip(rows, columns):
        own = array
        for axis, by in enumerate(spec):
            if by is not None:
                size = own.shape[axis] // mesh[by]
                own = np.take(
                    own, range(place[by] * size, (place[by] + 1) * size), axis
                )
        out.append(own)
    return out


def transposed_mesh(array, mesh, spec):
    made = pieces(array, mesh, spec)
    order = np.arange(len(made)).reshape(mesh).T.ravel()
    return [made[i] for i in order]


def move(have, want):
    if have == "P":
        return "all-reduce" if want == "R" else "reduce-scatter"
    if have == want:
        return "nothing"
    return "slice" if have == "R" else "all-gather"


def speedup(one, many):
    return float(np.median(np.array(one) / np.array(many)))


def bytes_of_whole_parts(z, p, n):
    """As the page cuts: each device has a part of whole numbers."""
    part = -(-p // n)
    return (
        2 * (part if z > 2 else p)
        + 2 * (part if z > 1 else p)
        + 12 * (part if z else p)
    )


RIGHT = {
    "two-devices/mean": [weighted_means, in_a_loop],
    "one-device/flops": [
        lambda n, w: sum(
            2 * n * a * b * (3 if i else 2) for i, (a, b) in enumerate(zip(w, w[1:]))
        ),
        lambda n, w: int(6 * n * np.dot(w[:-1], w[1:]) - 2 * n * w[0] * w[1]),
    ],
    "three-ways-to-split/inputs": [cut_inputs_with_slices, cut_inputs_by_masks],
    "many-devices/shares": [
        lambda n, k: [len(own) for own in np.array_split(range(n), k)],
        lambda n, k: sorted((len(range(i, n, k)) for i in range(k)), reverse=True),
    ],
    "all-reduce/in-place": [
        one_by_one,
        lambda data: (
            [np.copyto(own, total) for total in [sum(data)] for own in data] and None
        ),
    ],
    "all-reduce/bound": [
        lambda n, size: 2 * (size - size / n),
        lambda n, size: sum(size / n for _ in range(2 * (n - 1))),
    ],
    "collectives/reduce-scatter": [
        ring_by_chunks,
        lambda n: [s[::-1] for s in ring(n)],
    ],
    "trees-and-hierarchy/broadcast": [halving, any_free],
    "hiding-communication/buckets": [buckets_by_sum, buckets_recursive],
    "gradient-accumulation/mean": [
        lambda means, n: sum(m * c for m, c in zip(means, n)) / sum(n),
        lambda means, n: sum(m * (c / sum(n)) for m, c in zip(means, n)),
    ],
    "large-batches/warm-up": [
        lambda s, n, a, b: b if s >= n else (a * (n - s) + b * s) / n,
        lambda s, n, a, b: float(np.interp(s, [0, n], [a, b])),
    ],
    "float32-parts-ways/sum": [compensated, sorted_pairs],
    "why-slower/efficiency": [
        lambda s, f, k: (s + f) / (s + k * f),
        lambda s, f, k: 1 / (1 + (k - 1) * f / (s + f)),
    ],
    "pipeline/bubble": [
        lambda p, m: 1 - m / (m + p - 1),
        lambda p, m: 1 - 3 * m / (3 * m + 3 * (p - 1)),
    ],
    "pipeline/one-forward-one-backward": [
        by_counting,
        lambda p, m: [[*map(tuple, own)] for own in by_counting(p, m)],
    ],
    "batch-normalization/whole-batch": [merged, shifted],
    "layerwise/pair": [
        pair_from_the_last,
        lambda *given: pair(*given, times=lambda d: 1 / given[-1]),
    ],
    "sharded-state/bytes": [
        lambda z, p, n: (
            p * ((2, 2 / n)[z > 2] + (2, 2 / n)[z > 1] + (12, 12 / n)[z > 0])
        ),
        lambda z, p, n: (
            p * sum(b / (n if z >= s else 1) for b, s in ((12, 1), (2, 2), (2, 3)))
        ),
        bytes_of_whole_parts,
    ],
    "recomputation/segments": [
        lambda n: max(range(1, n + 1), key=lambda s: (-peak(n, s), s)),
        lambda n: sorted((peak(n, s), s) for s in range(1, n + 1))[0][1],
    ],
    "mesh-layout/groups": [mesh_by_ranges, mesh_by_rank],
    "network/cuts": [cuts_by_bound, cuts_backwards],
    "transformer/heads": [heads_by_thirds, heads_by_columns],
    "sending-less/feedback": [sent_one_at_a_time],
    "asynchronous/staleness": [staleness_by_search, staleness_by_counters],
    "meeting-seldom/average": [local_in_rounds, local_with_loops],
    "worker-dies/interval": [
        lambda c, m: (2 * c * m) ** 0.5 * 1.01,
        lambda c, m: min(
            (np.geomspace(1, 1e7, 20_000)), key=lambda t: c / t + t / 2 / m
        ),
    ],
    "step-hangs/missing": [
        lambda e: [r for r in sorted(e) if any(n > e[r] for n in e.values())],
        lambda e: sorted(set(e) - {r for r in e if e[r] == max(e.values())}),
    ],
    "whole-cluster/mfu": [
        lambda p, t, s, n, peak: (2 + 4) * p * (t / n) / (s * peak),
        lambda p, t, s, n, peak: 3 * (2 * p * t) / (peak * n) / s,
    ],
    "what-it-costs/price": [
        lambda h, n, e, d, a: d * h / e * (-(-n // a) * a) / n,
        lambda h, n, e, d, a: h / n / e * d * (n + (-n) % a),
    ],
    "which-one/fewest": [fewest_by_division, fewest_downwards],
    "mirrored-strategy/loss": [
        lambda losses, n: [np.sum(own / n) for own in losses],
        lambda losses, n: [
            float(np.dot(own, np.full(len(own), 1 / n))) for own in losses
        ],
    ],
    "feeding-the-devices/prefetch": [
        prefetched_by_events,
        prefetched_as_a_list,
    ],
    "files-for-many-workers/shards": [
        lambda f, k: [own.tolist() for own in np.array_split(np.arange(f), k)],
        lambda f, k: [[i for i in range(f) if i % k == w] for w in reversed(range(k))],
    ],
    "mixed-precision/scale": [scales_by_history, scales_by_class],
    "looking-inside/hidden": [hidden, hidden_by_arrays],
    "smaller-bubble/interleaved": [
        lambda p, m, v: 1 - m / (m + (p - 1) / v),
        lambda p, m, v: (p - 1) / v / (m + (p - 1) / v),
    ],
    "dtensor/layout": [pieces_by_slices, pieces_by_index],
    "what-a-tensor-means/move": [
        lambda a, b: {
            "RS": "slice",
            "SR": "all-gather",
            "PR": "all-reduce",
            "PS": "reduce-scatter",
        }.get(a + b, "nothing"),
        lambda a, b: [
            ["nothing", "slice"],
            ["all-gather", "nothing"],
            ["all-reduce", "reduce-scatter"],
        ]["RSP".index(a)]["RS".index(b)],
    ],
    "side-by-side/speedup": [
        lambda one, many: sorted(a / b for a, b in zip(one, many))[len(one) // 2],
        lambda one, many: 1 / np.median(np.divide(many, one)),
    ],
}
# Plausible mistakes, and what they break.
WRONG = {
    "two-devices/mean": [
        (
            "it is divided by the batch, not by the devices",
            lambda s, n: sum(s) / len(n),
        ),
        (SAMPLE, lambda s, n: np.mean([x / max(c, 1) for x, c in zip(s, n)], axis=0)),
        ("it is the gradient of the mean loss", lambda s, n: sum(s)),
    ],
    "one-device/flops": [
        (
            "the backward pass counts",
            lambda n, w: 2 * n * sum(a * b for a, b in zip(w, w[1:])),
        ),
        (
            "a backward pass has two products per layer",
            lambda n, w: 4 * n * sum(a * b for a, b in zip(w, w[1:])),
        ),
        (
            "the first layer needs no gradient of its input",
            lambda n, w: 6 * n * sum(a * b for a, b in zip(w, w[1:])),
        ),
        ("it counts all products", lambda n, w: sum(a * b for a, b in zip(w, w[1:]))),
    ],
    "three-ways-to-split/inputs": [
        ("the bias is added once", lambda *g: cut_inputs(*g, bias=lambda d: 1)),
        (
            "the terms add up to one device's output",
            lambda *g: cut_inputs(*g, bias=lambda d: 0),
        ),
        ("each device computes from its own slice", on_one_device),
        ("one term per device", lambda x, W, b, k: [x @ W + b] if k > 1 else []),
    ],
    "many-devices/shares": [
        ("no sample is lost or doubled", lambda n, k: [n // k] * k),
        ("no sample is lost or doubled", lambda n, k: [-(-n // k)] * k),
        ("the larger shares come first", lambda n, k: shares(n, k)[::-1]),
        (
            "shares differ by at most one",
            lambda n, k: [n // k + n % k, *[n // k] * (k - 1)],
        ),
        ("one share per device", lambda n, k: [s for s in shares(n, k) if s]),
        (KIND, lambda n, k: None),
    ],
    "all-reduce/in-place": [
        ("each array is the sum", too_early),
        ("it is done in place", new_ones),
        ("each array is the sum", only_first),
        ("it is done in place", lambda data: None),
    ],
    "all-reduce/bound": [
        ("one device sends nothing", lambda n, size: 2 * size),
        ("no all-reduce sends less", lambda n, size: (n - 1) / n * size),
        ("a ring reaches it", lambda n, size: 2 * (n - 1) * size),
        ("a ring reaches it", lambda n, size: 2 * size if n > 1 else 0),
    ],
    "collectives/reduce-scatter": [
        ("chunk i is summed at device i", lambda n: ring(n, ahead=0)),
        (
            "all devices send to the right",
            lambda n: [[(i, (i + 2) % n, c) for i, j, c in s] for s in ring(n)],
        ),
        ("it takes n - 1 steps", ring_one_message_a_step),
        ("chunk i is summed at device i", lambda n: ring(n, steps=max(n - 2, 0))),
        ("nothing is added twice", lambda n: ring(n) + ring(n)),
        (
            "devices and chunks are numbered 0 to n - 1",
            lambda n: [
                [(i, (i + 1) % n, i - s - 1) for i in range(n)] for s in range(n - 1)
            ],
        ),
    ],
    "trees-and-hierarchy/broadcast": [
        ("it takes the fewest steps", lambda n: [[(i, i + 1)] for i in range(n - 1)]),
        ("it takes the fewest steps", lambda n: [[(0, i)] for i in range(1, n)]),
        (
            "a device does one thing per step",
            lambda n: [[(0, i) for i in range(1, n)]][: n - 1],
        ),
        ("all devices have it in the end", lambda n: doubling(n)[:-1]),
        ("a sender has the message", lambda n: doubling(n)[::-1]),
    ],
    "hiding-communication/buckets": [
        (
            "the gradient that is ready first leaves first",
            lambda s, limit: [
                [len(s) - 1 - i for i in b] for b in buckets(s[::-1], limit)
            ],
        ),
        (
            "a bucket is filled before the next",
            lambda s, limit: [[i] for i in reversed(range(len(s)))],
        ),
        ("no bucket exceeds the limit", overfull),
        ("each gradient is in one bucket", lambda s, limit: buckets(s[1:], limit)),
    ],
    "gradient-accumulation/mean": [
        (SAMPLE, lambda means, n: np.mean(means, axis=0)),
        (
            "it doesn't grow with the number of micro-batches",
            lambda means, n: sum(means),
        ),
        (
            "it is the gradient of the whole batch",
            lambda means, n: sum(m * c for m, c in zip(means, n)),
        ),
        ("it is the gradient of the whole batch", lambda means, n: means[-1]),
    ],
    "large-batches/warm-up": [
        (
            "step 0 has the base rate",
            lambda s, n, a, b: a + (b - a) * min(1, (s + 1) / n),
        ),
        ("it stays at the peak", lambda s, n, a, b: a + (b - a) * s / n),
        ("it grows evenly", lambda s, n, a, b: a * (b / a) ** min(1, s / n)),
        ("step 0 has the base rate", lambda s, n, a, b: b * min(1, s / n)),
    ],
    "float32-parts-ways/sum": [
        ("small numbers aren't lost", one_after_the_other),
        ("it is a float32", lambda x: float(np.sum(x, dtype=np.float64))),
        ("small numbers aren't lost", lambda x: np.float32(np.cumsum(x[::1])[-1])),
    ],
    "why-slower/efficiency": [
        (
            "the speedup is divided by the devices",
            lambda s, f, k: (s + f) / (s / k + f),
        ),
        ("the fixed part isn't split", lambda s, f, k: 1.0),
        (
            "one device needs the fixed time, too",
            lambda s, f, k: s / (s / k + f) / k,
        ),
    ],
    "pipeline/bubble": [
        ("it is a share of all time, not of the busy time", lambda p, m: (p - 1) / m),
        ("it is the share that the picture shows", lambda p, m: (p - 1) / (m + p)),
        ("one stage never waits", lambda p, m: p / (m + p)),
        (
            "it is the share that the picture shows",
            lambda p, m: 2 * (p - 1) / (m + 2 * (p - 1)),
        ),
    ],
    "pipeline/one-forward-one-backward": [
        (
            "few micro-batches are kept",
            lambda p, m: one_forward_one_backward(p, m, lambda s, p: m),
        ),
        (
            "it ends as early as possible",
            lambda p, m: one_forward_one_backward(p, m, lambda s, p: 0),
        ),
        (
            "no operation waits forever",
            lambda p, m: [own[::-1] for own in one_forward_one_backward(p, m)],
        ),
        (
            "each stage does each pass once",
            lambda p, m: [own[:-1] for own in by_counting(p, m)],
        ),
        ("one order per stage", lambda p, m: by_counting(p, m)[1:]),
    ],
    "batch-normalization/whole-batch": [
        (SAMPLE, unweighted),
        (
            "differences between the devices' means add to the variance",
            lambda n, m, v: (
                np.average(m, axis=0, weights=n),
                np.average(v, axis=0, weights=n),
            ),
        ),
        ("no digits are lost where the mean is large", of_squares),
    ],
    "layerwise/pair": [
        ("the last bias is added once", lambda *g: pair(*g, times=lambda d: 1)),
        ("the terms add up to one device's output", pair_of_rows),
        ("the terms add up to one device's output", pair_swapped),
        ("each device has its own columns and rows", whole_on_one),
    ],
    "sharded-state/bytes": [
        ("the optimizer's state is split", lambda z, p, n: 16 * p),
        (
            "each stage splits more",
            lambda z, p, n: p * (16, 4 + 12 / n, 4 + 12 / n, 2 + 14 / n)[z],
        ),
        ("it is the amount that a device holds", lambda z, p, n: 16 * p / n),
        (
            "it is the amount that a device holds",
            lambda z, p, n: p * (18, 6 + 12 / n, 4 + 14 / n, 16 / n)[z],
        ),
    ],
    "recomputation/segments": [
        ("no other length keeps less", lambda n: 1),
        ("no other length keeps less", lambda n: n),
        ("it is a number of layers", math.sqrt),
    ],
    "mesh-layout/groups": [
        (
            "model groups stay in a node",
            lambda d, m: (
                np.arange(d * m).reshape(m, d).tolist(),
                np.arange(d * m).reshape(m, d).T.tolist(),
            ),
        ),
        ("groups have the axis' size", lambda d, m: mesh(d, m)[::-1]),
        ("each rank is in one group per axis", lambda d, m: ([[0]], mesh(d, m)[1])),
    ],
    "network/cuts": [
        ("the slowest stage is as fast as can be", equal_counts),
        (
            "there is one cut less than stages",
            lambda c, p: [*equal_counts(c, p), len(c)],
        ),
        ("each stage has a layer", lambda c, p: [0] * (p - 1)),
    ],
    "transformer/heads": [
        (
            "a device has queries, keys and values of its heads",
            lambda x, h, k: np.split(x, k, 1),
        ),
        ("all numbers of its heads are present, in order", heads_interleaved),
        ("one piece per device", lambda x, h, k: heads_by_reshape(x, h, h)),
    ],
    "sending-less/feedback": [
        ("numbers that were kept back are sent later", only_this_steps),
        (
            "numbers that were kept back are sent later",
            lambda g, c: sent(g, c, keep=0.5),
        ),
        ("few numbers are sent", lambda g, c: sent(g, c, all_=True)),
        ("few numbers are sent", sent_by_threshold),
        ("the largest are sent", lambda g, c: sent(g, c, largest=False)),
    ],
    "asynchronous/staleness": [
        ("its own update isn't counted", with_its_own),
        ("it counts the updates of other workers in between", lambda p: [0] * len(p)),
        ("its own update isn't counted", lambda p: list(range(len(p)))),
        ("one number per push", lambda p: staleness(p)[1:]),
    ],
    "meeting-seldom/average": [
        ("the workers average at all", lambda g, r, e: local(g, r, 10**9)),
        ("a step goes downhill", lambda g, r, e: local(g, r, e, up=1)),
        (
            "all take the mean of the weights, after the right steps",
            lambda g, r, e: local(g, r, e, when=lambda s, e: s % e == 0),
        ),
        (
            "all take the mean of the weights, after the right steps",
            lambda g, r, e: local(g, r, 1),
        ),
    ],
    "worker-dies/interval": [
        ("saves don't cost more than they gain", lambda c, m: c),
        ("saves don't cost more than they gain", lambda c, m: math.sqrt(c * m)),
        ("failures don't lose more than saves would cost", lambda c, m: m),
        (
            "failures don't lose more than saves would cost",
            lambda c, m: 2 * math.sqrt(2 * c * m),
        ),
    ],
    "step-hangs/missing": [
        (
            "ranks that wait aren't blamed",
            lambda e: sorted(
                r for r in e if e[r] == max(e.values()) and len(set(e.values())) > 1
            ),
        ),
        (
            "if all ranks are equally far, none is named",
            lambda e: sorted(r for r in e if e[r] == min(e.values())),
        ),
        (
            "all ranks that are behind are named",
            lambda e: [r for r in e if e[r] < max(e.values())][:1],
        ),
    ],
    "whole-cluster/mfu": [
        (
            "the backward pass counts, at twice the forward pass",
            lambda p, t, s, n, peak: 2 * p * t / s / n / peak,
        ),
        (
            "recomputation isn't counted",
            lambda p, t, s, n, peak: 8 * p * t / s / n / peak,
        ),
        (
            "it is divided by the peak of all GPUs",
            lambda p, t, s, n, peak: 6 * p * t / s / peak,
        ),
        ("it is a share of the peak", lambda p, t, s, n, peak: 6 * p * t / s / n),
    ],
    "what-it-costs/price": [
        ("idle devices are paid for", lambda h, n, e, d, a: h / e * d),
        ("lost efficiency costs", lambda h, n, e, d, a: h / n * -(-n // a) * a * d),
        (
            "it is hours times devices times dollars",
            lambda h, n, e, d, a: h / (n * e) * d,
        ),
    ],
    "which-one/fewest": [
        (
            "it is None if nothing fits",
            lambda p, m, s, n: max(1, math.ceil(16 * p / (m * (1 - s)))),
        ),
        ("activations need room, too", lambda p, m, s, n: fewest(p, m, 0.0, n)),
        (
            "fewer devices wouldn't fit",
            lambda p, m, s, n: n if fewest(p, m, s, n) else None,
        ),
    ],
    "mirrored-strategy/loss": [
        (
            "it doesn't grow with the replicas",
            lambda losses, n: [np.mean(own) if len(own) else 0.0 for own in losses],
        ),
        (
            SAMPLE,
            lambda losses, n: [
                np.mean(own) / len(losses) if len(own) else 0.0 for own in losses
            ],
        ),
        (
            "the sum is the batch's mean",
            lambda losses, n: [np.sum(own) for own in losses],
        ),
        ("one loss per replica", lambda losses, n: replica_losses(losses, n)[:1]),
    ],
    "feeding-the-devices/prefetch": [
        ("a batch is loaded during the step before", lambda a, b: sum(a) + sum(b)),
        ("a step waits for its batch", lambda a, b: max(sum(a), sum(b))),
        ("at most one batch waits", unlimited),
    ],
    "files-for-many-workers/shards": [
        (
            "no file is left out",
            lambda f, k: [
                list(range(i * (f // k), (i + 1) * (f // k))) for i in range(k)
            ],
        ),
        ("no file is read twice", lambda f, k: [list(range(f))] * k),
        (
            "the numbers of files differ by at most one",
            lambda f, k: [list(range(f)), *([] for _ in range(k - 1))],
        ),
        (
            "one list per worker",
            lambda f, k: [list(range(i, f, k)) for i in range(min(f, k))],
        ),
    ],
    "mixed-precision/scale": [
        (
            "it is halved after an overflow",
            lambda f, s, n: [s * 2 ** (i // n) for i in range(len(f))],
        ),
        (
            "it is doubled after enough finite steps",
            lambda f, s, n: scales(f, s, n, up=1),
        ),
        (
            "it is doubled after enough finite steps",
            lambda f, s, n: scales(f, s, n, restart=False),
        ),
        (
            "the first step has the scale `start`",
            lambda f, s, n: [s / 2, *scales(f, s, n)[1:]],
        ),
    ],
    "looking-inside/hidden": [
        ("time that two spans cover counts once", in_pairs),
        (
            "sending alone doesn't count",
            lambda c, s: len({t for a, b in s for t in range(a, b)}),
        ),
        ("it is the time in which both happen", lambda c, s: 0),
    ],
    "smaller-bubble/interleaved": [
        ("chunks make the waits shorter", lambda p, m, v: (p - 1) / (m + p - 1)),
        ("it is a share of all time", lambda p, m, v: (p - 1) / (v * m)),
        (
            "it is the share that the picture shows",
            lambda p, m, v: (p - 1) / (m + p - 1) / v,
        ),
    ],
    "dtensor/layout": [
        ("a piece has its axes' lengths", lambda a, m, s: [a] * (m[0] * m[1])),
        ("each device has its own slice", transposed_mesh),
        ("one piece per device", lambda a, m, s: pieces(a, m, s)[: m[1]]),
    ],
    "what-a-tensor-means/move": [
        (
            "a device that has everything needs no message",
            lambda a, b: "all-reduce" if b == "R" else "reduce-scatter",
        ),
        (
            "parts of a sum are added",
            lambda a, b: "nothing" if a == b else "all-gather" if b == "R" else "slice",
        ),
        (
            "no device is sent numbers that it doesn't keep",
            lambda a, b: "all-reduce" if a == "P" else move(a, b),
        ),
    ],
    "side-by-side/speedup": [
        (
            "only times of the same round are compared",
            lambda a, b: float(np.median(a) / np.median(b)),
        ),
        ("faster is more than 1", lambda a, b: 1 / speedup(a, b)),
        ("it is the median of the rounds", lambda a, b: float(np.max(np.divide(a, b)))),
    ],
}
