"""A recomputed segment is judged by its runs, too: gradients are right without any."""

from __future__ import annotations

import pytest
import tensorflow as tf

from manygpu.exercises.hunts import hunt
from manygpu.prove.verdict import PROPERTIES

# As a reader types them; names are those of the chapter's module.
RIGHT = """
def recomputed(segment):
    checked = check_segment(segment)

    @tf.custom_gradient
    def run(*inputs):
        def backward(upstream):
            with tf.control_dependencies([upstream]):
                again = [tf.identity(t) for t in inputs]
            with tf.GradientTape() as tape:
                tape.watch(again)
                out = segment(*again)
            return tape.gradient(out, again, upstream)

        return checked(*map(tf.stop_gradient, inputs)), backward

    return lambda h, *params: run(*check_inputs([h, *params]))
"""
NOT_AGAIN = "def recomputed(segment):\n    return segment\n"
KEPT = RIGHT.replace("*map(tf.stop_gradient, inputs)", "*inputs")
EARLY = RIGHT.replace("tf.control_dependencies([upstream])", "tf.name_scope('again')")


def typed(source):
    space = {"tf": tf}
    exec(source, space)
    return space["recomputed"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_that_is_run_again_is_accepted(number):
    assert hunt("recomputation", number).mended(typed(RIGHT))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (NOT_AGAIN, "a segment runs once in a step, not twice"),
        (KEPT, "a tape keeps what the first run of a segment has made"),
        (EARLY, "waits for nothing"),
    ],
)
@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_that_is_kept_is_refused(number, source, said):
    found = hunt("recomputation", number).mended(typed(source))
    assert found.broken == PROPERTIES["runs"].says
    assert said in found.said


@pytest.mark.parametrize("number", [1, 2])
def test_the_planted_bugs_are_still_named_by_their_gradient(number):
    one = hunt("recomputation", number)
    assert one.mended(typed(one.code.replace("Segment", "object"))).broken == (
        PROPERTIES["gradient"].says
    )
