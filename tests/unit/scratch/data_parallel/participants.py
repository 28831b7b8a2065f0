"""Participants of a collective, dealt out to eight devices, and what they send."""

from functools import partial

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from manygpu.scratch.data_parallel import collectives
from manygpu.scratch.data_parallel.collectives import MessageLog, deliver
from manygpu.scratch.data_parallel.trees_and_hierarchy import (
    halving_doubling_allreduce,
    hierarchical_allreduce,
)
from tests.unit.helpers import EIGHT

COUNTS = st.integers(1, 17)
quick = settings(deadline=None, max_examples=20)
dealt = partial(collectives.dealt, EIGHT)  # one a participant, in turn
nearest_first = partial(halving_doubling_allreduce, farthest_first=False)


def hierarchy(size: int):
    def in_two_levels(data, send=deliver):
        n = len(data)
        groups = [list(range(i, min(i + size, n))) for i in range(0, n, size)]
        return hierarchical_allreduce(data, groups, send)

    return in_two_levels


def drawn(n: int, shape: tuple, dtype: str, seed: int) -> np.ndarray:
    """(n, *shape) numbers whose sums fit the dtype, except that integers may wrap."""
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, (n, *shape)).astype(dtype)
    return (rng.normal(size=(n, *shape)) * 10).astype(dtype)


def run_logged(allreduce, n: int, numbers: int) -> MessageLog:
    log = MessageLog()
    allreduce(dealt(drawn(n, (numbers,), "float32", 0)), log)
    return log


def chunk_bytes(numbers: int, n: int) -> list[int]:
    """Of float32 chunks, by counting: number j goes to chunk j % n."""
    return [4 * len(range(i, numbers, n)) for i in range(n)]


def one_message_a_step(log: MessageLog) -> bool:
    """Whether nobody sends, or receives, two messages in a step."""
    hops = [hop for hop, _ in log.messages]
    sends = {(hop.step, hop.source) for hop in hops}
    return len(hops) == len(sends) == len({(hop.step, hop.target) for hop in hops})
