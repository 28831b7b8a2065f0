"""The messages of a collective, recorded without sending any.

Every collective of the book takes `send`, which carries its messages. In a graph that
never runs, nothing is computed and nothing moves, but `send` is called all the same.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from manygpu.checks import check_count
from manygpu.hops import Hop
from manygpu.scratch.data_parallel.collectives import MessageLog


def messages_of(collective: Callable, n: int, size: int) -> list[tuple[Hop, int]]:
    """Return the messages of a collective over `n` tensors of `size` bytes each.

    Args:
        collective: is called as `collective(tensors, send=log)`.
        n: how many take part.
        size: bytes of each tensor.

    Raises:
        TypeError, ValueError: a number below 1 or not whole.
    """
    shapes, log = [(check_count("size", size),)] * check_count("n", n), MessageLog()
    with tf.Graph().as_default(), tf.device("CPU:0"):
        placeholder = tf.compat.v1.placeholder
        collective([placeholder(tf.int8, shape) for shape in shapes], send=log)
    return log.messages
