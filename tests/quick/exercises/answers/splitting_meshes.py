"""Answers to exercises of recomputation to mesh-layout."""

from __future__ import annotations

import itertools
import math

import numpy as np


def passes_by_segments(layers, length, again=lambda last: not last):
    segments = [range(layers)[a : a + length] for a in range(0, layers, length)]
    found = [("F", i) for i in range(layers)]
    for own in segments[::-1]:
        found += [("F", i) for i in own if again(own is segments[-1])]
        found += [("B", i) for i in own[::-1]]
    return found


def passes_layer_by_layer(layers, length):
    found, made = [("F", i) for i in range(layers)], (layers - 1) // length
    for i in range(layers - 1, -1, -1):
        if i // length != made:
            made = i // length
            found += [("F", j) for j in range(made * length, i + 1)]
        found.append(("B", i))
    return found


def passes_from_the_start(layers, length):
    """Each time from the model's input on."""
    found = [("F", i) for i in range(layers)]
    for first in reversed(range(0, layers, length)):
        end = min(first + length, layers)
        found += [("F", i) for i in range(end) if end < layers]
        found += [("B", i) for i in range(first, end)[::-1]]
    return found


def again_by_bits(sizes, seconds, room):
    best = None
    for mask in range(2 ** len(sizes)):
        own = [i for i in range(len(sizes)) if mask >> i & 1]
        kept = sum(size for i, size in enumerate(sizes) if i not in own)
        took = sum(seconds[i] for i in own)
        if kept <= room and (best is None or took < best[0]):
            best = took, own
    return best[1]


def again_by_keeping(sizes, seconds, room):
    """What is worth most is kept: a knapsack, filled up result by result."""
    ways = {0: (0, ())}
    for i, (size, saved) in enumerate(zip(sizes, seconds)):
        for used, (gain, kept) in list(ways.items())[::-1]:
            more = used + size
            if more <= room and gain + saved > ways.get(more, (-1,))[0]:
                ways[more] = gain + saved, (*kept, i)
    _, kept = max(ways.values())
    return [i for i in range(len(sizes)) if i not in kept]


def greedy(sizes, seconds, room, worth):
    order = sorted(range(len(sizes)), key=lambda i: worth(sizes[i], seconds[i]))
    own, kept = [], sum(sizes)
    while kept > room:
        own.append(order.pop())
        kept -= sizes[own[-1]]
    return own


def peak_by_moments(sizes, starts):
    ends = [*starts[1:], len(sizes) - 1]
    return max(
        sum(sizes[a] for a in starts[: j + 1]) + sum(sizes[starts[j] + 1 : ends[j] + 1])
        for j in range(len(starts))
    )


def peak_backwards(sizes, starts):
    inputs, end, most = sum(sizes[a] for a in starts), len(sizes) - 1, 0
    for first in reversed(starts):
        most = max(most, inputs + sum(sizes[first + 1 : end + 1]))
        inputs, end = inputs - sizes[first], first
    return most


def outputs_of(sizes, starts):
    ends = [*starts[1:], len(sizes) - 1]
    return [sum(sizes[a + 1 : b + 1]) for a, b in zip(starts, ends)]


def traffic_by_cases(stage, micro_batches, devices, size):
    half = size - size / devices
    if stage < 2:
        return 2 * half
    return sum(half if stage == 2 else 3 * half for _ in range(micro_batches)) + (
        half if stage == 2 else 0
    )


def traffic_by_table(stage, m, devices, size):
    gathers, scatters = [(1, 1), (1, 1), (1, m), (2 * m, m)][stage]
    return (gathers + scatters) * size * (1 - 1 / devices)


def clip_of_whole(chunks, limit):
    whole = np.concatenate(chunks)
    length = np.linalg.norm(whole)
    if length > limit:
        whole = whole * (limit / length)
    return np.split(whole, np.cumsum([len(c) for c in chunks])[:-1])


def clip_by_largest(chunks, limit):
    total = math.sqrt(sum(float(c @ c) for c in chunks))
    return [c / max(1.0, total / limit) for c in chunks]


def clip_by(chunks, lengths, limit):
    return [c * min(1.0, limit / max(n, 1e-12)) for c, n in zip(chunks, lengths)]


def bytes_by_lengths(shape, mesh, spec, size):
    total, free = size, dict(mesh)
    for n, by in zip(shape, spec):
        if by is not None and by not in free:
            return None
        parts = 1 if by is None else free.pop(by)
        if n % parts:
            return None
        total *= n // parts
    return total


def bytes_by_slices(shape, mesh, spec, size):
    cuts = [by for by in spec if by]
    if any(cuts.count(by) > 1 for by in cuts):
        return None
    if any(by and n % mesh[by] for n, by in zip(shape, spec)):
        return None
    whole = np.zeros(shape, np.int8)
    own = whole[
        tuple(slice(0, n // mesh[by] if by else n) for n, by in zip(shape, spec))
    ]
    return own.size * size


def bytes_shared_out(shape, mesh, spec, size):
    found = bytes_by_lengths(shape, mesh, spec, size)
    return found and math.prod(shape) * size / math.prod(mesh.values())


def bytes_rounded_up(shape, mesh, spec, size):
    parts = [1 if by is None else mesh[by] for by in spec]
    return math.prod(-(-n // m) for n, m in zip(shape, parts)) * size


def bytes_cut_twice(shape, mesh, spec, size):
    parts = [1 if by is None else mesh[by] for by in spec]
    if any(n % m for n, m in zip(shape, parts)):
        return None
    return math.prod(n // m for n, m in zip(shape, parts)) * size


def joined_by_places(pieces, mesh, spec):
    """Axis by axis: of a mesh axis that cuts nothing, its first devices are enough."""
    by_place = {place: pieces[i] for i, place in enumerate(np.ndindex(*mesh))}

    def at(row, column):
        place = [0, 0]
        for by, where in zip(spec, (row, column)):
            if by is not None:
                place[by] = where
        return by_place[tuple(place)]

    rows, columns = (1 if by is None else mesh[by] for by in spec)
    return np.block([[at(r, c) for c in range(columns)] for r in range(rows)])


def joined_by_spec(pieces, mesh, spec):
    grid = np.empty(mesh, object)
    for i, piece in enumerate(pieces):
        grid[divmod(i, mesh[1])] = piece
    for axis in (0, 1):
        if axis not in spec:
            grid = grid[:1] if axis == 0 else grid[:, :1]
    if spec[0] == 1 or spec[1] == 0:
        grid = grid.T
    return np.block(grid.tolist())


def joined_turned(pieces, mesh, spec):
    turned = np.arange(len(pieces)).reshape(mesh[::-1]).T.ravel()
    return joined_by_places([pieces[i] for i in turned], mesh, spec)


def sums_by_groups(grads, sizes):
    stages, data, slices = sizes
    found = [None] * len(grads)
    for stage, part in itertools.product(range(stages), range(slices)):
        group = [(stage * data + d) * slices + part for d in range(data)]
        for rank in group:
            found[rank] = np.sum([grads[other] for other in group], axis=0)
    return found


def sums_by_place(grads, sizes):
    def slice_of(rank):
        return rank // (sizes[1] * sizes[2]), rank % sizes[2]

    totals = {}
    for rank, g in enumerate(grads):
        totals[slice_of(rank)] = totals.get(slice_of(rank), 0) + g
    return [totals[slice_of(rank)] for rank in range(len(grads))]


def sums_over(grads, sizes, axes):
    cube = np.array(grads).reshape(*sizes, -1)
    whole = np.broadcast_to(cube.sum(axes, keepdims=True), cube.shape)
    return list(whole.reshape(len(grads), -1))


def norm_by_shares(grads, data, layerwise):
    squares = 0.0
    for own in grads:
        for array, cut in own:
            squares += float((array**2).sum()) / data / (1 if cut else layerwise)
    return squares**0.5


def norm_of_joined(grads, data, layerwise):
    row = grads[:layerwise]
    slices = [array for own in row for array, cut in own if cut]
    whole = [array for array, cut in row[0] if not cut]
    return np.linalg.norm(np.concatenate([one.ravel() for one in slices + whole]))


def norm_of(ranks, grads, whole=True):
    arrays = [
        array.ravel() for rank in ranks for array, cut in grads[rank] if cut or whole
    ]
    return np.linalg.norm(np.concatenate(arrays))


def samples_by_trying(widths, data, layerwise):
    n = 1
    while not along(widths, data, layerwise, n):
        n += 1
    return n


def along(widths, d, t, n):
    outputs = widths[2::2]
    forward, back = sum(outputs), sum(outputs[:-1])
    count = sum((a + 1) * b for a, b in zip(widths, widths[1:]))
    return 2 * (t - 1) * n * (forward + back) > 2 * (d - 1) * (
        count + (t - 1) * forward
    )


def samples_by_floor(widths, d, t, images=0, biases=1, more=1):
    outputs = widths[2::2]
    one = (t - 1) * (sum(outputs) + sum(outputs[: len(outputs) - 1 + images]))
    count = sum((a + 1) * b for a, b in zip(widths, widths[1:]))
    return (d - 1) * (count + biases * (t - 1) * sum(outputs)) // one + more


def order_by_recursion(sizes, sent, node):
    """From inside outwards: what may come next, and what the rest then costs."""

    def best(left, inside):
        if not left:
            return 0, []
        ways = []
        for axis in left:
            many = inside * sizes[axis]
            cost, rest = best([a for a in left if a != axis], many)
            ways.append(
                (cost + sent[axis] * (1 if many <= node else 10), [*rest, axis])
            )
        return min(ways)

    return best(list(sizes), 1)[1]


def order_by_subsets(sizes, sent, node):
    """The set of axes that saves most, of those that share a node."""
    sets = itertools.chain(*(itertools.combinations(sizes, n) for n in range(4)))
    fit = [own for own in sets if math.prod(sizes[a] for a in own) <= node]
    inside = max(fit, key=lambda own: sum(sent[a] for a in own))
    return [a for a in sizes if a not in inside] + list(inside)


def mesh_by_trying(devices, node, memory, room):
    """The fewest devices that share a model first; of these, the most slices."""
    for shared in range(1, devices + 1):
        if devices % shared or shared * room < memory:
            continue
        for slices in range(node, 0, -1):
            if shared % slices == 0 and node % slices == 0:
                return shared // slices, devices // shared, slices
    return None


def mesh_by_sorting(devices, node, memory, room):
    every = itertools.product(range(1, devices + 1), repeat=2)
    fit = [
        (p, devices // p // t, t)
        for p, t in every
        if devices % (p * t) == 0 and node % t == 0 and p * t * room >= memory
    ]
    return sorted(fit, key=lambda mesh: (-mesh[1], mesh[0]))[0] if fit else None


def mesh_of_nodes(devices, node, memory, room):
    """As many slices as a node has, then stages until the model fits."""
    slices = math.gcd(node, devices)
    for stages in range(1, devices // slices + 1):
        fits = memory <= room * stages * slices
        if fits and devices % (stages * slices) == 0:
            return stages, devices // (stages * slices), slices
    return None


def leaves_by_walking(sizes, axis, node):
    stride, n = math.prod(sizes[axis + 1 :]), sizes[axis]
    firsts = [r for r in range(math.prod(sizes)) if r // stride % n == 0]
    return any(r // node != (r + (n - 1) * stride) // node for r in firsts)


def leaves_by_pairs(sizes, axis, node):
    places = list(itertools.product(*map(range, sizes)))

    def line(place):
        return place[:axis] + place[axis + 1 :]

    pairs = itertools.combinations(enumerate(places), 2)
    return any(
        line(p) == line(q) and r // node != s // node for (r, p), (s, q) in pairs
    )


def leaves_of_rank_0(sizes, axis, node):
    stride = math.prod(sizes[axis + 1 :])
    return (sizes[axis] - 1) * stride >= node


def leaves_first_axis_inside(sizes, axis, node):
    return leaves_by_walking(sizes[::-1], len(sizes) - 1 - axis, node)


RIGHT = {
    "recomputation/passes": [passes_by_segments, passes_layer_by_layer],
    "recomputation/again": [again_by_bits, again_by_keeping],
    "recomputation/peak": [peak_by_moments, peak_backwards],
    "sharded-state/traffic": [traffic_by_cases, traffic_by_table],
    "sharded-state/clip": [clip_of_whole, clip_by_largest],
    "dtensor/bytes": [bytes_by_lengths, bytes_by_slices],
    "dtensor/sums": [
        lambda x, W: [x[1], x[0], W[1]],
        lambda x, W: tuple(cut for cut in (W[0], x[0], W[1])),
    ],
    "dtensor/joined": [joined_by_places, joined_by_spec],
    "hybrid-meshes/sums": [sums_by_groups, sums_by_place],
    "hybrid-meshes/norm": [norm_by_shares, norm_of_joined],
    "hybrid-meshes/samples": [samples_by_trying, samples_by_floor],
    "mesh-layout/order": [order_by_recursion, order_by_subsets],
    "mesh-layout/mesh": [mesh_by_trying, mesh_by_sorting],
    "mesh-layout/leaves": [leaves_by_walking, leaves_by_pairs],
}
WRONG = {
    "recomputation/passes": [
        (
            "a segment that has just run isn't run again",
            lambda n, s: passes_by_segments(n, s, lambda last: True),
        ),
        (
            "dropped activations are computed again",
            lambda n, s: passes_by_segments(n, s, lambda last: False),
        ),
        ("a layer runs forward twice at most", passes_from_the_start),
        (
            "each layer has one backward pass, the last layer first",
            lambda n, s: passes_by_segments(n, s)[:-1],
        ),
        (
            "a segment runs forward immediately before its backward pass",
            lambda n, s: sorted(
                passes_by_segments(n, s), key=lambda one: one[0] == "B"
            ),
        ),
    ],
    "recomputation/again": [
        ("the kept results fit", lambda b, t, room: []),
        (
            "no choice takes less time",
            lambda b, t, room: greedy(b, t, room, lambda b, t: b / t),
        ),
        (
            "no choice takes less time",
            lambda b, t, room: greedy(b, t, room, lambda b, t: b),
        ),
        (
            "no choice takes less time",
            lambda b, t, room: greedy(b, t, room, lambda b, t: -t),
        ),
        (
            "each position comes at most once",
            lambda b, t, room: again_by_bits(b, t, room) * 2,
        ),
    ],
    "recomputation/peak": [
        (
            "the fullest moment counts",
            lambda b, a: sum(b[i] for i in a) + outputs_of(b, a)[-1],
        ),
        (
            "inputs are dropped after their segment's backward pass",
            lambda b, a: sum(b[i] for i in a) + max(outputs_of(b, a)),
        ),
        ("inputs of the segments before are kept", lambda b, a: max(outputs_of(b, a))),
        ("it is the amount that is kept at the same time", lambda b, a: sum(b)),
    ],
    "sharded-state/traffic": [
        (
            "parameters that aren't kept are sent for each micro-batch",
            lambda z, m, n, s: traffic_by_table(z, 1, n, s),
        ),
        (
            "stages 0 and 1 send once a step",
            lambda z, m, n, s: traffic_by_table(z, m, n, s) * (m if z < 2 else 1),
        ),
        (
            "new parameters are gathered once per step",
            lambda z, m, n, s: (
                traffic_by_table(z, m, n, s) if z != 2 else 2 * m * s * (n - 1) / n
            ),
        ),
        (
            "stage 3 gathers for the backward pass, too",
            lambda z, m, n, s: traffic_by_table(z, m, n, s) * (2 / 3 if z == 3 else 1),
        ),
        ("one device sends nothing", lambda z, m, n, s: (2, 2, m + 1, 3 * m)[z] * s),
        (
            "it is the amount that a device sends",
            lambda z, m, n, s: (2, 2, m + 1, 3 * m)[z] * s * (n - 1),
        ),
    ],
    "sharded-state/clip": [
        (
            "it is the clipped gradient",
            lambda c, limit: [np.clip(own, -limit / 2, limit / 2) for own in c],
        ),
        (
            "a chunk isn't clipped alone",
            lambda c, limit: clip_by(c, [np.linalg.norm(own) for own in c], limit),
        ),
        (
            "lengths of chunks don't add up, their squares do",
            lambda c, limit: clip_by(c, [sum(map(np.linalg.norm, c))] * len(c), limit),
        ),
        (
            "a length is the root of the sum of the squares",
            lambda c, limit: clip_by(c, [sum(own @ own for own in c)] * len(c), limit),
        ),
        (
            "a gradient that is short enough stays",
            lambda c, limit: [
                own * limit / np.linalg.norm(np.concatenate(c)) for own in c
            ],
        ),
    ],
    "dtensor/bytes": [
        ("a length that a mesh axis doesn't divide is refused", bytes_rounded_up),
        ("a mesh axis cuts one axis only", bytes_cut_twice),
        ("a tensor that isn't cut is whole on each device", bytes_shared_out),
        (
            "it is the amount that a device holds",
            lambda shape, mesh, spec, size: bytes_by_lengths(shape, mesh, spec, 1),
        ),
    ],
    "dtensor/sums": [
        ("a product is summed along what it adds up", lambda x, W: (None, x[0], W[1])),
        ("the weight's gradient adds up samples", lambda x, W: (x[1], None, W[1])),
        ("the input's gradient adds up outputs", lambda x, W: (x[1], x[0], None)),
        ("the weight's gradient adds up samples", lambda x, W: (x[1], W[1], x[0])),
        ("there are three answers", lambda x, W: (x[1],)),
        (
            "an axis that cuts nothing sums nothing",
            lambda x, W: ("data", "data", "data"),
        ),
    ],
    "dtensor/joined": [
        ("devices are numbered row by row", joined_turned),
        (
            "copies count once",
            lambda pieces, mesh, spec: np.concatenate(pieces),
        ),
        (
            "spec says which mesh axis cuts which axis",
            lambda pieces, mesh, spec: joined_by_places(
                pieces, mesh, (0, 1) if spec == (1, 0) else spec
            ),
        ),
        ("each piece is in its place", lambda *given: joined_by_places(*given)[::-1]),
    ],
    "hybrid-meshes/sums": [
        ("one gradient per rank", lambda grads, sizes: sums_by_place(grads, sizes)[:1]),
        (
            "only copies of the same parameters are added",
            lambda grads, sizes: [np.sum(grads, axis=0)] * len(grads),
        ),
        (
            "only copies of the same parameters are added",
            lambda grads, sizes: sums_over(grads, sizes, (1, 2)),
        ),
        (
            "only copies of the same parameters are added",
            lambda grads, sizes: sums_over(grads, sizes, (2,)),
        ),
        (
            "they are summed, not averaged",
            lambda grads, sizes: [
                own / sizes[1] for own in sums_by_groups(grads, sizes)
            ],
        ),
        ("all copies get the sum", lambda grads, sizes: grads),
    ],
    "hybrid-meshes/norm": [
        ("copies along data count once", lambda g, d, t: norm_of(range(d * t), g)),
        (
            "an array that is whole on all ranks of a row counts once",
            lambda g, d, t: norm_of(range(t), g),
        ),
        ("all slices count", lambda g, d, t: norm_of([0], g)),
        (
            "squares are added, not lengths",
            lambda g, d, t: (
                sum(norm_of([r], g, whole=False) for r in range(t))
                + np.linalg.norm(g[0][1][0])
            ),
        ),
        (
            "it is the length on one device",
            lambda g, d, t: norm_of(range(t), g, whole=False),
        ),
    ],
    "hybrid-meshes/samples": [
        (
            "it is a number of samples",
            lambda w, d, t: samples_by_floor(w, d, t) - 0.5,
        ),
        (
            "the gradient of the images isn't computed",
            lambda w, d, t: (
                (d - 1)
                * (sum((a + 1) * b for a, b in zip(w, w[1:])) + (t - 1) * sum(w[2::2]))
                // ((t - 1) * 2 * sum(w[2::2]))
                + 1
            ),
        ),
        (
            "each rank of a row has the last bias of a block",
            lambda w, d, t: samples_by_floor(w, d, t, biases=0),
        ),
        ("layerwise sends more", lambda w, d, t: samples_by_floor(w, d, t, more=0)),
        (
            "fewer samples don't suffice",
            lambda w, d, t: samples_by_floor(w, d, t, more=2),
        ),
    ],
    "mesh-layout/order": [
        ("no other order takes less", lambda sizes, sent, node: list(sizes)),
        (
            "no other order takes less",
            lambda sizes, sent, node: sorted(sizes, key=lambda a: -sent[a]),
        ),
        (
            "the innermost axis fits into a node",
            lambda sizes, sent, node: sorted(sizes, key=sent.get),
        ),
        (
            "each axis is present once",
            lambda sizes, sent, node: [max(sizes, key=sent.get)],
        ),
    ],
    "mesh-layout/mesh": [
        (
            "all devices are used",
            lambda *given: (lambda one: one and (one[0], 1, one[2]))(
                mesh_by_trying(*given)
            ),
        ),
        ("no mesh has more copies", mesh_of_nodes),
        (
            "groups of slices stay in a node",
            lambda n, node, memory, room: mesh_by_trying(n, n, memory, room),
        ),
        (
            "a device's part fits",
            lambda n, node, memory, room: mesh_by_trying(n, node, 0, room),
        ),
        (
            "no mesh has fewer stages",
            lambda n, node, memory, room: mesh_by_trying(n, 1, memory, room),
        ),
        ("a mesh that fits is found", lambda n, node, memory, room: None),
    ],
    "mesh-layout/leaves": [
        ("every group counts, not only the group of rank 0", leaves_of_rank_0),
        (
            "along an outer axis, neighbours are far apart",
            lambda sizes, axis, node: sizes[axis] > node,
        ),
        (
            "along the last axis, neighbours have neighbouring ranks",
            leaves_first_axis_inside,
        ),
    ],
}
