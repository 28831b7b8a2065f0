"""Messages of a collective that nobody has sent: those of the real one; bad input."""

import pytest
import tensorflow as tf

from manygpu import scratch
from manygpu.backstage.unsent import messages_of
from tests import refusals
from tests.refusals import good

REFUSED = good(messages_of, collective=scratch.ring_allreduce, n=2, size=8).refuses(
    ("n", [1.5], TypeError), ("n", [0], ValueError), ("size", [0], ValueError)
)


@pytest.mark.parametrize("refusal", REFUSED, ids=str)
def test_bad_numbers_are_refused(refusal):
    refusals.is_refused(refusal)


@pytest.mark.parametrize("n", [2, 3])
def test_they_are_those_of_a_ring_that_was_sent(n):
    log = scratch.MessageLog()
    with tf.device("CPU:0"):
        scratch.ring_allreduce([tf.ones(12) for _ in range(n)], send=log)
    sent = [(hop[:3], size) for hop, size in log.messages]
    found = messages_of(scratch.ring_allreduce, n, 48)
    assert [(hop[:3], size) for hop, size in found] == sent
