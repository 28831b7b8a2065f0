"""How the projects' bugs can be mended: (before, after) in a script, in two ways each.

By project: for the first bug and for the second, two lists of replacements; and the
property that still breaks where only that one is mended.
"""

from __future__ import annotations

from manygpu.exercises.projects import judges

Way = list[tuple[str, str]]

BY_SAMPLES = [("total = tf.add_n(gradients)", """total = tf.add_n(
        [g * (len(part) / len(X)) for g, part in zip(gradients, parts, strict=True)]
    )""")]  # fmt: skip
BY_SUMS = [
    ("gradients.append(gradient(w, X[part], y[part]))",
     "gradients.append(gradient(w, X[part], y[part]) * len(part))"),
    ("total = tf.add_n(gradients)", "total = tf.add_n(gradients) / len(X)"),
]  # fmt: skip
RATE = "    rate *= len(devices)  # more devices can take larger steps\n"
NO_RATE = [(RATE, "")]
DIVIDED = [("y[i : i + batch], rate)", "y[i : i + batch], rate / len(devices))")]

UNEVEN = [("total += found", "total += found * (len(y[i : i + part]) / len(X))"),
          ("(scale * len(starts))", "scale")]  # fmt: skip
BY_COUNT = [("total += found", "total += np.float64(len(X[i : i + part])) * found"),
            ("(scale * len(starts))", "(scale * len(X))")]  # fmt: skip
LEAVES = [("scale /= 2", "return w, scale / 2")]
AFTER = [
    ("total = np.zeros(len(w))", "total, fine = np.zeros(len(w)), True"),
    ("        if np.isfinite(found).all():\n",
     "        fine = fine and np.isfinite(found).all()\n        if fine:\n"),
    ("        else:\n            scale /= 2\n", ""),
    ("    return w - rate", "    if not fine:\n        return w, scale / 2\n"
     "    return w - rate"),
]  # fmt: skip

KEEP_BATCH = [
    ('np.zeros(features), "epoch": 0}', 'np.zeros(features), "epoch": 0, "batch": 0}'),
    ("    while steps:\n", '    at = state["batch"]\n    while steps:\n'),
    ("todo = batches(len(X), size, epoch)\n",
     "todo = batches(len(X), size, epoch)[at:]\n"),
    ("            epoch += 1\n        steps",
     "            epoch, at = epoch + 1, 0\n        else:\n            at += steps\n"
     "        steps"),
    ('"epoch": epoch}', '"epoch": epoch, "batch": at}'),
    ('epoch=state["epoch"])', 'epoch=state["epoch"], batch=state["batch"])'),
    ('"epoch": int(kept["epoch"])', '"epoch": int(kept["epoch"]), '
     '"batch": int(kept["batch"])'),
]  # fmt: skip
COUNT_STEPS = [
    ("    while steps:\n", "    taken, per = epoch, -(-len(X) // size)\n"
     "    while steps:\n        epoch, at = divmod(taken, per)\n"),
    ("todo = batches(len(X), size, epoch)\n",
     "todo = batches(len(X), size, epoch)[at:]\n"),
    ("        if steps >= len(todo):\n            epoch += 1\n",
     "        taken += min(steps, len(todo))\n"),
    ('"epoch": epoch}', '"epoch": taken}'),
]  # fmt: skip
VELOCITY = [
    ('np.savez(file, w=state["w"],',
     'np.savez(file, velocity=state["velocity"], w=state["w"],'),
    ('{"w": kept["w"],', '{"velocity": kept["velocity"], "w": kept["w"],'),
]  # fmt: skip
STACKED = [
    ('w=state["w"]', 'w=np.stack([state["w"], state["velocity"]])'),
    ('start(len(kept["w"]))', 'start(kept["w"].shape[1])'),
    ('{"w": kept["w"],', '{"w": kept["w"][0], "velocity": kept["w"][1],'),
]  # fmt: skip

WARM = [("min(1, micros)", "min(stages - stage, micros)")]
COUNTED = [("warm = min(1, micros)", "warm = 0\n    while warm < micros and "
            "warm + stage < stages:\n        warm += 1")]  # fmt: skip
NO_WAIT = [("queue.Queue(1)", "queue.Queue()"),
           ("        self.box.join()  # until it is taken\n", "")]  # fmt: skip
# each thread waits for the one before: two that wait to put come in any order
BY_THREAD = [
    ("self.box.put(array)\n        self.box.join()  # until it is taken\n",
     "before, put = getattr(self, 'last', None), self.box.put\n"
     "        in_turn = lambda: (before and before.join(), put(array))\n"
     "        self.last = threading.Thread(target=in_turn, daemon=True)\n"
     "        self.last.start()\n"),
]  # fmt: skip

ONE_NORM = [
    ("length = np.linalg.norm(share)",
     "length = np.linalg.norm(np.concatenate(shares))"),
]  # fmt: skip
SQUARES = [
    ("    found = []\n",
     "    found = []\n    length = sum(s @ s for s in shares) ** 0.5\n"),
    ("        length = np.linalg.norm(share)\n", ""),
]  # fmt: skip
MEANS = [("np.sum(shares, axis=0)", "np.mean(shares, axis=0)")]
SHORTER = [("[gradient(w, *own) for", "[gradient(w, *own) / devices for")]

MENDS: dict[str, list[tuple[list[Way], str]]] = {
    "odd-batch": [([BY_SAMPLES, BY_SUMS], judges.LENGTH),
                  ([NO_RATE], judges.SAMPLE)],
    "half-precision": [([UNEVEN, BY_COUNT], judges.OVERFLOW),
                       ([LEAVES, AFTER], judges.SAMPLE)],
    "resume": [([KEEP_BATCH, COUNT_STEPS], judges.OPTIMIZER),
               ([VELOCITY, STACKED], judges.DATA)],
    "pipeline": [([WARM, COUNTED], judges.WAITS),
                 ([NO_WAIT, BY_THREAD], judges.BUSY)],
    "sharded": [([ONE_NORM, SQUARES], judges.MEAN),
                ([MEANS, SHORTER], judges.FACTOR)],
}  # fmt: skip


def mended(code: str, *ways: Way) -> str:
    """A script with these replacements; each must be there once."""
    for before, after in (pair for way in ways for pair in way):
        assert code.count(before) == 1, f"{before!r} isn't there once"
        code = code.replace(before, after)
    return code
