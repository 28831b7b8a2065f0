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


RIGHT = {
    "looking-inside/speedup": [speedup_by_line],
    "sending-less/feedback": [sent_into_the_next, sent_from_the_end],
}
WRONG = {
    "looking-inside/speedup": [
        (
            "where a would be negative, all of t_many is shared out",
            lambda *given: speedup_by_line(*given, again=False),
        ),
    ],
    "sending-less/feedback": [
        ("the largest are sent", lambda g, c: sent_into_the_next(g, c, fewer=1)),
    ],
}
