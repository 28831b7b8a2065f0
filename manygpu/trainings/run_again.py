"""Is a segment really run again on the way back, and not a moment too early?

Gradients don't tell: those of a segment that keeps all it makes are right, too.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import tensorflow as tf

Segment = Callable[..., tf.Tensor]
RUNS = 2  # forward, and once more on the way back


def check_run_again(wrap: Callable[[Segment], Segment]) -> None:
    """Try what `wrap` makes of a small segment, in a graph and without one.

    Raises:
        RuntimeError: a step doesn't run it twice, the second run may come before its
            upstream gradient, or a tape keeps what the first one makes.
    """
    runs, waits = in_a_graph(wrap)
    if runs != RUNS:
        often = "once" if runs == 1 else f"{runs} times"
        raise RuntimeError(
            f"a segment runs {often} in a step, not twice: forward, and again on the "
            f"way back"
        )
    if not waits:
        raise RuntimeError(
            "the second run of a segment waits for nothing: in a graph it may come "
            "before its upstream gradient, and all is kept at once"
        )
    if kept_by_tape(wrap):
        raise RuntimeError("a tape keeps what the first run of a segment has made")


def in_a_graph(wrap: Callable[[Segment], Segment]) -> tuple[int, bool]:
    """How often the segment runs, and whether the last run waits for the upstream."""
    made: list[tf.Tensor] = []

    def segment(h: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        made.append(tf.tanh(h * w))
        return tf.tanh(made[-1] * w)

    with tf.Graph().as_default():
        h, w, upstream = (tf.compat.v1.placeholder(tf.float32, [2]) for _ in range(3))
        with tf.GradientTape() as tape:
            tape.watch([h, w])
            out = wrap(segment)(h, w)
        tape.gradient(out, [h, w], upstream)
        waits = bool(made) and upstream.op in above(made[-1].op)
    return len(made), waits


def above(op: tf.Operation) -> set[tf.Operation]:
    """All operations that must have run before this one may."""
    seen, left = set(), [op]
    while left:
        now = left.pop()
        if now not in seen:
            seen.add(now)
            left += [*now.control_inputs, *(tensor.op for tensor in now.inputs)]
    return seen


def kept_by_tape(wrap: Callable[[Segment], Segment]) -> bool:
    """Whether what the first run makes inside is there until the way back."""
    made: list[weakref.ref] = []

    def segment(h: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        inside = tf.tanh(h * w)
        made.append(weakref.ref(inside))
        return tf.tanh(inside * w)

    h, w = tf.ones(2), tf.ones(2)
    with tf.GradientTape() as tape:
        tape.watch([h, w])
        out = wrap(segment)(h, w)
    if made[0]() is not None:
        gc.collect()
    kept = made[0]() is not None
    tape.gradient(out, [h, w])  # the tape lives until here
    return kept
