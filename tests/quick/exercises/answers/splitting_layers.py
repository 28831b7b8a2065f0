"""Answers to exercises of network to what-a-tensor-means, but for pipelines."""

from __future__ import annotations

import numpy as np


def messages_by_walking(devices, sizes, back=True, ahead=0, last=False):
    found = []
    for i in range(1, len(devices)):
        if devices[i - 1] != devices[i] or last:
            found.append((devices[i - 1], devices[i], sizes[i - 1 + ahead]))
    for i in range(len(devices) - 1, 0, -1):
        if back and (devices[i - 1] != devices[i] or last):
            found.append((devices[i], devices[i - 1], sizes[i - 1 + ahead]))
    return found


def messages_by_pairs(devices, sizes):
    there = [one for one in zip(devices, devices[1:], sizes) if one[0] != one[1]]
    return [*there, *((b, a, size) for a, b, size in reversed(there))]


def back_in_the_same_order(devices, sizes):
    there = messages_by_walking(devices, sizes, back=False)
    return there + [(b, a, size) for a, b, size in there]


def cut_by_sorting(parameters, outputs, room):
    for _, cut in sorted((outputs[c - 1], c) for c in range(1, len(parameters))):
        if sum(parameters[:cut]) <= room and sum(parameters[cut:]) <= room:
            return cut
    return None


def cut_in_a_loop(parameters, outputs, room, later=False, behind=0, fits=True):
    best, first, total = None, 0, sum(parameters)
    for cut in range(1, len(parameters)):
        first += parameters[cut - 1]
        here = outputs[cut - 1 + behind]
        if (not fits or first <= room >= total - first) and (
            best is None or here < best[0] or (later and here == best[0])
        ):
            best = here, cut
    return best and best[1]


def input_gradients(gs, units, scale, mean=True, along=True):
    """All together as one array, then cut again."""
    g, u = np.concatenate(gs), np.concatenate(units)
    found = scale * (g - mean * g.mean(0) - along * u * (g * u).mean(0))
    return np.split(found, np.cumsum([len(one) for one in gs])[:-1])


def input_gradients_by_sample(gs, units, scale):
    count, first, second = 0, np.zeros_like(scale), np.zeros_like(scale)
    for own, unit in zip(gs, units):
        for g, u in zip(own, unit):
            count, first, second = count + 1, first + g, second + g * u
    return [
        (own - first / count - second / count * unit) * scale
        for own, unit in zip(gs, units)
    ]


def mean_of_means(gs, units, scale):
    there = [(g, u) for g, u in zip(gs, units) if len(g)]
    mean = np.mean([g.mean(0) for g, _ in there], axis=0)
    along = np.mean([(g * u).mean(0) for g, u in there], axis=0)
    return [scale * (g - mean - u * along) for g, u in zip(gs, units)]


def own_moments(gs, units, scale):
    return [
        input_gradients([g], [u], scale)[0] if len(g) else g for g, u in zip(gs, units)
    ]


def totals_in_a_loop(grads, summed):
    totals = dict(grads[0])
    for own in grads[1:]:
        for name, g in own.items():
            if name not in summed:
                totals[name] = totals[name] + g
    return totals


def totals_by_dividing(grads, summed):
    """Add all up, and divide what was there so often."""
    return {
        name: np.sum([own[name] for own in grads], axis=0)
        / (len(grads) if name in summed else 1)
        for name in grads[0]
    }


def losses_two_by_two(tops, sums, chosen):
    """Merged from device to device, each time with the larger top."""
    top, total = tops[0], sums[0]
    for one, more in zip(tops[1:], sums[1:]):
        both = np.maximum(top, one)
        total = total * np.exp(top - both) + more * np.exp(one - both)
        top = both
    return top + np.log(total) - chosen.sum(0)


def losses_in_logs(tops, sums, chosen):
    return np.logaddexp.reduce(tops + np.log(sums), axis=0) - chosen.sum(0)


def losses_with_all_exponentials(tops, sums, chosen):
    with np.errstate(all="ignore"):
        return np.log((sums * np.exp(tops)).sum(0)) - chosen.sum(0)


def rows_by_reshape(places, channels, k):
    rows = np.arange(places * channels).reshape(places, k, channels // k)
    return [rows[:, d].ravel().tolist() for d in range(k)]


def rows_by_asking(places, channels, k, device=lambda c, run: c // run):
    found = [[] for _ in range(k)]
    for row in range(places * channels):
        found[device(row % channels, channels // k)].append(row)
    return found


def rows_channel_first(places, channels, k):
    every = [c * places + p for c in range(channels) for p in range(places)]
    return [sorted(own) for own in np.split(np.array(every), k)]


def key_heads_by_range(heads, key_heads, k):
    group, run = heads // key_heads, heads // k
    return [
        list(range(d * run // group, ((d + 1) * run - 1) // group + 1))
        for d in range(k)
    ]


def key_heads_by_array(heads, key_heads, k):
    asked = np.repeat(np.arange(key_heads), heads // key_heads)
    return [np.unique(own).tolist() for own in np.split(asked, k)]


def gains_of_all_tokens(units, upstreams):
    total = (np.concatenate(units) * np.concatenate(upstreams)).sum(0)
    return np.repeat(total[None], len(units), axis=0)


def gains_by_product(units, upstreams):
    total = np.einsum("td,td->d", np.concatenate(units), np.concatenate(upstreams))
    return [total] * len(units)


MOVES = {"PR": "all-reduce", "PS": "reduce-scatter", "PI": "all-reduce"}
MOVES |= {"SR": "all-gather", "SI": "all-gather", "SP": "pad", "IS": "cut"}
MOVES |= {"IR": "nothing", "IP": "0 but on the first", "RS": "cut", "RI": "nothing"}


def way_back_by_table(source, target):
    answers = {
        ("P", "R"): "all-reduce",
        ("P", "I"): "nothing",
        ("P", "S"): "all-gather",
        ("S", "R"): "reduce-scatter",
        ("S", "I"): "cut",
        ("S", "P"): "cut",
        ("I", "R"): "all-reduce",
        ("I", "S"): "all-gather",
        ("I", "P"): "nothing",
    }
    return answers[source, target]


def way_back_by_moves(source, target):
    """The book's table of moves, from the target's gradient to the source's."""
    back = str.maketrans("RP", "PR")
    return MOVES[target.translate(back) + source.translate(back)]


def as_if_copies(source, target):
    """R's gradient taken for whole."""
    pair = source + target
    wrong = {"IR": "nothing", "PR": "nothing", "SR": "cut"}
    return wrong.get(pair) or way_back_by_table(source, target)


def largest_by_table(kind, dim):
    along = {("S(-1)", -1): "V", ("S(-2)", -2): "V"}
    return {"P": None}.get(kind, along.get((kind, dim), kind))


def largest_by_letters(kind, dim):
    letter, cut = kind[0], kind[2:-1]
    if letter == "S" and int(cut) == dim:
        return "V"
    return kind if letter in "RIVS" else None


def norm_of_whole(parts, gains):
    x = np.concatenate(parts, -1)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True)) * np.concatenate(gains)
    return np.split(x, np.cumsum([p.shape[-1] for p in parts])[:-1], axis=-1)


def norm_by_weights(parts, gains):
    widths = np.array([x.shape[-1] for x in parts], float)
    means = [(x * x).mean(-1, keepdims=True) for x in parts]
    mean = np.average(means, axis=0, weights=widths)
    return [x * mean**-0.5 * gain for x, gain in zip(parts, gains)]


def norm_by(parts, gains, root):
    return [x / root(x, parts) * gain for x, gain in zip(parts, gains)]


def mean_square(x):
    return (x * x).mean(-1, keepdims=True)


RIGHT = {
    "network/messages": [messages_by_walking, messages_by_pairs],
    "network/cut": [cut_by_sorting, cut_in_a_loop],
    "batch-normalization/input-gradients": [input_gradients, input_gradients_by_sample],
    "batch-normalization/summed-once": [totals_in_a_loop, totals_by_dividing],
    "layerwise/losses": [losses_two_by_two, losses_in_logs],
    "layerwise/rows": [rows_by_reshape, rows_by_asking],
    "transformer/key-heads": [key_heads_by_range, key_heads_by_array],
    "transformer/gains": [gains_of_all_tokens, gains_by_product],
    "what-a-tensor-means/way-back": [way_back_by_table, way_back_by_moves],
    "what-a-tensor-means/largest": [largest_by_table, largest_by_letters],
    "what-a-tensor-means/norm": [norm_of_whole, norm_by_weights],
}
WRONG = {
    "network/messages": [
        (
            "each output's gradient comes back",
            lambda d, s: messages_by_walking(d, s, back=False),
        ),
        (
            "an output travels, and a gradient as large as it",
            lambda d, s: messages_by_walking(d, s, ahead=1),
        ),
        (
            "a device sends itself nothing",
            lambda d, s: messages_by_walking(d, s, last=True),
        ),
        ("the backward pass begins at the end", back_in_the_same_order),
        (
            "it is the list of all messages of a step",
            lambda d, s: [*messages_by_walking(d, s), (d[-1], d[0] + 1, s[-1])],
        ),
    ],
    "network/cut": [
        (
            "the output of the layer before the cut travels",
            lambda p, o, room: cut_in_a_loop(p, o, room, behind=1),
        ),
        ("both parts fit", lambda p, o, room: cut_in_a_loop(p, o, room, fits=False)),
        (
            "of several equally good ones, it is the first",
            lambda p, o, room: cut_in_a_loop(p, o, room, later=True),
        ),
        ("a cut that fits is found", lambda p, o, room: None),
        ("each device has a layer", lambda p, o, room: cut_in_a_loop(p, o, room) or 0),
    ],
    "batch-normalization/input-gradients": [
        ("the sums are over all devices", own_moments),
        ("each sample weighs the same", mean_of_means),
        (
            "an input also moves the spread",
            lambda *given: input_gradients(*given, along=False),
        ),
        (
            "an input also moves the mean",
            lambda *given: input_gradients(*given, mean=False),
        ),
        (
            "it is the gradient that the chain rule gives",
            lambda g, u, s: input_gradients(g, u, 1 + 0 * s),
        ),
    ],
    "batch-normalization/summed-once": [
        (
            "summed gradients aren't summed again",
            lambda grads, done: totals_in_a_loop(grads, ()),
        ),
        ("gradients that differ per device are added up", lambda grads, done: grads[0]),
        (
            "gradients that differ per device are added up",
            lambda grads, done: totals_by_dividing(grads, list(grads[0])),
        ),
        (
            "each parameter has a gradient",
            lambda grads, done: {
                n: g for n, g in totals_in_a_loop(grads, done).items() if n not in done
            },
        ),
    ],
    "layerwise/losses": [
        ("it is the loss of uncut classes", lambda t, s, c: -losses_in_logs(t, s, c)),
        ("no exponential overflows", losses_with_all_exponentials),
        (
            "sums with different factors don't add up",
            lambda t, s, c: np.log(s.sum(0)) + t.max(0) - c.sum(0),
        ),
        (
            "the subtracted number is added again",
            lambda t, s, c: losses_in_logs(t, s, c) - t.max(0),
        ),
        ("one device has the class", lambda t, s, c: losses_in_logs(t, s, c[:1])),
    ],
    "layerwise/rows": [
        ("one list per device", lambda p, c, k: rows_by_asking(p, c, k)[0]),
        (
            "a device's rows are those of its channels",
            lambda p, c, k: [own.tolist() for own in np.split(np.arange(p * c), k)],
        ),
        (
            "a device's rows are those of its channels",
            lambda p, c, k: rows_by_asking(p, c, k, lambda channel, run: channel % k),
        ),
        ("a device's rows are those of its channels", rows_channel_first),
        (
            "they are in rising order",
            lambda p, c, k: [own[::-1] for own in rows_by_asking(p, c, k)],
        ),
        ("each row is on one device, once", lambda p, c, k: [list(range(p * c))] * k),
    ],
    "transformer/key-heads": [
        ("one list per device", lambda h, n, k: [[q * n // h] for q in range(h)]),
        (
            "a device has the keys of all its queries",
            lambda h, n, k: [own.tolist() for own in np.array_split(range(n), k)],
        ),
        ("it has no other key heads", lambda h, n, k: [list(range(n))] * k),
        (
            "each is present once, in rising order",
            lambda h, n, k: [
                [q * n // h for q in own] for own in np.split(np.arange(h), k)
            ],
        ),
        (
            "it has no other key heads",
            lambda h, n, k: [
                sorted({q % n for q in own.tolist()})
                for own in np.split(np.arange(h), k)
            ],
        ),
    ],
    "transformer/gains": [
        ("the copies stay equal", lambda u, g: [(a * b).sum(0) for a, b in zip(u, g)]),
        (
            "parts are summed, not averaged",
            lambda u, g: (
                [np.mean([(a * b).sum(0) for a, b in zip(u, g)], axis=0)] * len(u)
            ),
        ),
        (
            "it is a sum over tokens",
            lambda u, g: [(np.concatenate(u) * np.concatenate(g)).mean(0)] * len(u),
        ),
        (
            "it is the gradient of units * gain",
            lambda u, g: [np.concatenate(g).sum(0)] * len(u),
        ),
        ("one gradient per device", lambda u, g: gains_of_all_tokens(u, g)[0]),
    ],
    "what-a-tensor-means/way-back": [
        ("the gradient of an R is a P", as_if_copies),
        ("the backward move isn't the forward move", lambda a, b: MOVES[a + b]),
        (
            "it is the move between the meanings of the gradients",
            lambda a, b: "nothing" if b == "I" else way_back_by_table(a, b),
        ),
        ("the answer is one of the five", lambda a, b: "all-to-all"),
    ],
    "what-a-tensor-means/largest": [
        (
            "the largest numbers of pieces aren't parts of a sum",
            lambda kind, dim: (
                "P" if kind == f"S({dim})" else largest_by_table(kind, dim)
            ),
        ),
        (
            "the largest numbers of partial sums say nothing about the sum",
            lambda kind, dim: "P" if kind == "P" else largest_by_table(kind, dim),
        ),
        (
            "a piece's largest isn't the whole's",
            lambda kind, dim: None if kind == "P" else kind,
        ),
        (
            "a dimension that isn't joined keeps its meaning",
            lambda kind, dim: "V" if kind[0] == "S" else largest_by_table(kind, dim),
        ),
    ],
    "what-a-tensor-means/norm": [
        (
            "the mean is over all columns",
            lambda *given: norm_by(*given, lambda x, _: np.sqrt(mean_square(x))),
        ),
        (
            "each column weighs the same",
            lambda *given: norm_by(
                *given, lambda _, all_: np.sqrt(sum(map(mean_square, all_)) / len(all_))
            ),
        ),
        (
            "a sum of roots isn't the root of a sum",
            lambda *given: norm_by(
                *given,
                lambda _, all_: sum(
                    np.sqrt(
                        (x * x).sum(-1, keepdims=True) / sum(y.shape[-1] for y in all_)
                    )
                    for x in all_
                ),
            ),
        ),
        (
            "it is the norm of uncut tokens",
            lambda parts, gains: norm_of_whole(parts, [1 + 0 * g for g in gains]),
        ),
    ],
}
