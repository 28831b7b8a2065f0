"""Trains a chain of layers, a stage a thread, so that stages work at the same time.

python mine.py
"""

import queue
import threading
import time

import numpy as np


class Link:
    """Hands arrays from one stage to another, in their order."""

    def __init__(self):
        self.box = queue.Queue(1)

    def send(self, array):
        self.box.put(array)
        self.box.join()  # until it is taken

    def receive(self):
        array = self.box.get()
        self.box.task_done()
        return array


def order(stage, stages, micros):
    """What a stage does: ("F", m) and ("B", m), forward and backward of micro-batch m.

    One forward, one backward: a stage never holds more than stages - stage of them.
    """
    warm = min(1, micros)
    plan = [("F", m) for m in range(warm)]
    for m in range(micros):
        plan.append(("B", m))
        if m + warm < micros:
            plan.append(("F", m + warm))
    return plan


def work(stage, weights, parts, targets, down, up, gradients, pause):
    last, kept = stage == len(weights) - 1, {}
    for kind, m in order(stage, len(weights), len(parts)):
        if kind == "F":
            kept[m] = down[stage - 1].receive() if stage else parts[m]
            time.sleep(pause)
            if not last:
                down[stage].send(kept[m] @ weights[stage])
        else:
            held = kept.pop(m)
            off = held @ weights[stage] - targets[m] if last else up[stage].receive()
            time.sleep(pause)
            gradients[stage] += held.T @ off
            if stage:
                up[stage - 1].send(off @ weights[stage].T)


def run(weights, parts, targets, pause=0.0):
    """Return the gradient of each stage's weights, summed over the micro-batches.

    Of half the squared error. pause: seconds that each pass takes longer.
    """
    gradients = [np.zeros_like(w) for w in weights]
    down, up = ([Link() for _ in weights[1:]] for _ in range(2))
    given = weights, parts, targets, down, up, gradients, pause
    threads = [
        threading.Thread(target=work, args=(stage, *given), daemon=True)
        for stage in range(len(weights))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return gradients


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(4, 4)) for _ in range(3)]
    parts, targets = rng.normal(size=(2, 8, 5, 4))
    begun = time.monotonic()
    run(weights, parts, targets, pause=0.01)
    print(f"3 stages, 8 micro-batches: {time.monotonic() - begun:.2f} s")
