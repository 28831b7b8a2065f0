"""What somebody wrote who solved the pages: what passed by chance, and was refused."""

from __future__ import annotations

import numpy as np


def speedup_by_line(many, t_many, few, t_few, devices, again=True):
    b = (t_many - t_few) / (many - few)
    a = t_many - b * many
    if a < 0:
        a, b = 0, t_many / many if again else b
    return t_many / (a + b * many / devices)


def sent_into_the_next(gradients, count, fewer=0):
    sent = []
    for t, meant in enumerate(gradients):
        places = np.argsort(-np.abs(meant), kind="stable")[: max(1, count - fewer)]
        sent.append(np.zeros_like(meant))
        sent[-1][places] = meant[places]
        if t + 1 < len(gradients):
            gradients[t + 1] += meant - sent[-1]
    return sent


def sent_from_the_end(gradients, count):
    """Of equal ones, the last."""
    turned = [gradient[::-1].copy() for gradient in gradients]
    return [own[::-1] for own in sent_into_the_next(turned, count)]


def hidden_by_ticks(computing, sending):
    inside = [any(a <= t < b for a, b in computing) for t in range(100)]
    return sum(inside[t] for t in range(100) if any(a <= t < b for a, b in sending))


def hidden_from_the_first(computing, sending):
    """Wrong: it takes it that there is a span."""
    first = min(a for a, _ in computing + sending[:1])
    last = max(max(b for _, b in computing), max(b for _, b in sending))
    both = np.zeros((2, last - first), bool)
    for row, spans in zip(both, (computing, sending)):
        for a, b in spans:
            row[max(a - first, 0) : max(b - first, 0)] = True
    return int(both.all(0).sum())


def shares_as_a_tuple(samples, devices):
    each, left = divmod(samples, devices)
    return (each + 1,) * left + (each,) * (devices - left)


def epoch_by_counting(images, batch, devices):
    steps, last = 0, 0
    while images > 0:
        steps, last = steps + 1, min(images, batch)
        images -= batch
    return steps, last // devices


def terms_where_columns_are(g, W, k):
    """Wrong: who has no columns has no term."""
    cuts = zip(np.array_split(g, k, axis=1), np.array_split(W, k, axis=1))
    return [own @ columns.T for own, columns in cuts if own.size]


def shares_by_speed_with_one_each(samples, speeds):
    """Wrong: nobody is left without, as long as there are enough."""
    shares = [int(samples >= len(speeds))] * len(speeds)
    while sum(shares) < samples:
        ends = [(n + 1) / speed for n, speed in zip(shares, speeds)]
        shares[ends.index(min(ends))] += 1
    return shares


def losses_from(tops, sums, chosen, top):
    """With one number, or one a sample, subtracted from all logits."""
    with np.errstate(all="ignore"):
        total = (sums * np.exp(tops - top)).sum(0)
        return np.log(total) + top - chosen.sum(0)


def mesh(devices, node, memory, room, by=lambda m: (-m[1], m[0]), slices=(), whole=1):
    """The first of all meshes (stages, copies, slices) that fit."""
    slices = slices or [t for t in range(1, node + 1) if node % t == 0]
    fit = [
        (p, devices // (p * t), t)
        for p in range(1, devices + 1)
        for t in slices
        if t <= node and p * t <= devices and p * t * room >= memory
        if not whole or devices % (p * t) == 0
    ]
    return min(fit, key=by, default=None)


RIGHT = {
    "looking-inside/speedup": [speedup_by_line],
    "sending-less/feedback": [sent_into_the_next, sent_from_the_end],
    "many-devices/shares": [shares_as_a_tuple],
    "many-devices/epoch": [epoch_by_counting],
    "layerwise/losses": [lambda t, s, c: losses_from(t, s, c, t.max(0))],
    "mesh-layout/mesh": [mesh],
    "looking-inside/hidden": [hidden_by_ticks],
}
WRONG = {
    "looking-inside/speedup": [
        (
            "if a would be negative, all of t_many is split",
            lambda *given: speedup_by_line(*given, again=False),
        ),
    ],
    "sending-less/feedback": [
        ("the largest are sent", lambda g, c: sent_into_the_next(g, c, fewer=1)),
    ],
    "three-ways-to-split/backward": [
        ("one term per device", terms_where_columns_are),
    ],
    "many-devices/shares": [
        ("samples are whole", lambda n, k: [n / k] * k),
    ],
    "many-devices/by-speed": [
        ("a faster device gets more", shares_by_speed_with_one_each),
    ],
    "many-devices/epoch": [
        (
            "the smallest shard is rounded down",
            lambda n, b, k: (-(-n // b), max(1, ((n - 1) % b + 1) // k)),
        ),
    ],
    "layerwise/losses": [
        (
            "no exponential overflows",
            lambda t, s, c: losses_from(t, s, c, t.mean(0)),
        ),
        ("no exponential overflows", lambda t, s, c: losses_from(t, s, c, t.min(0))),
        ("no exponential overflows", lambda t, s, c: losses_from(t, s, c, t[0])),
        (
            "not all of a sample's exponentials become 0",
            lambda t, s, c: losses_from(t, s, c, t.max()),
        ),
    ],
    "mesh-layout/mesh": [
        ("no mesh has more copies", lambda *g: mesh(*g, by=lambda m: (m[0], -m[1]))),
        (
            "groups of slices stay in a node",
            lambda *g: mesh(*g, slices=range(1, g[1] + 1)),
        ),
        ("no mesh has fewer stages", lambda *g: mesh(*g, slices=(1, 2, 4, 8))),
        ("all devices are used", lambda *g: mesh(*g, whole=False)),
    ],
    "looking-inside/hidden": [
        ("it runs", hidden_from_the_first),
    ],
}
