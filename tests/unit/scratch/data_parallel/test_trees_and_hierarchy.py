"""Trees, halving, hierarchies: steps and bytes; the page says how far messages go."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.data_parallel.collectives import MessageLog, ring_allreduce
from manygpu.scratch.data_parallel.trees_and_hierarchy import (
    halving_doubling_allreduce,
    hierarchical_allreduce,
    tree_allreduce,
)
from tests.unit.scratch.data_parallel.participants import (
    COUNTS,
    chunk_bytes,
    dealt,
    drawn,
    quick,
    run_logged,
)


@given(n=COUNTS, numbers=st.integers(0, 40))
@quick
def test_the_tree_takes_two_times_log_n_steps_with_whole_tensors(n, numbers):
    log = run_logged(tree_allreduce, n, numbers)
    assert log.steps == 2 * int(np.ceil(np.log2(n)))
    assert len(log.messages) == 2 * (n - 1)
    assert {size for _, size in log.messages} <= {4 * numbers}


ORDERS = pytest.mark.parametrize("farthest_first", [True, False])


def reversed_bits(i: int, p: int) -> int:
    """The number whose q = log2(p) binary digits are those of i, read backwards."""
    return int(f"{i:0{p.bit_length()}b}"[:0:-1] or "0", 2)


@ORDERS
@given(n=COUNTS, numbers=st.integers(0, 40))
@settings(deadline=None, max_examples=40)
def test_halving_and_doubling_sends_its_formula_to_the_byte(farthest_first, n, numbers):
    """Participant i ends its halvings with the chunk of its bits, the first on top."""
    allreduce = partial(halving_doubling_allreduce, farthest_first=farthest_first)
    log, S = run_logged(allreduce, n, numbers), 4 * numbers
    p = max(2**k for k in range(5) if 2**k <= n)
    q, c = p.bit_length() - 1, chunk_bytes(numbers, p)
    assert log.steps == 2 * q + 2 * (p < n)
    rest = n - p  # so many even ones hand over to their right neighbour and sit out
    stay = [i for i in range(n) if i >= 2 * rest or i % 2]
    for i in set(range(n)) - set(stay):
        assert log.sent(i) == log.received(i) == S
    for number, i in enumerate(stay):
        mine = number if farthest_first else reversed_bits(number, p)
        # Doubling: the block of 1, 2, ..., p/2 chunks that mine is in.
        blocks = [mine - mine % 2**k for k in range(q)]
        doubled = sum(sum(c[low : low + 2**k]) for k, low in enumerate(blocks))
        folded = S * (number < rest)
        assert log.sent(i) == S - c[mine] + doubled + folded
        assert log.received(i) == doubled + S - c[mine] + folded
        if numbers % p == 0:
            assert (log.sent(i) - folded) * p == 2 * (p - 1) * S


@st.composite
def partitions(draw) -> list[list[int]]:
    """Groups of any sizes, of 1 to 9 participants in any order, numbered by NumPy."""
    n = draw(st.integers(1, 9))
    order = np.array(draw(st.permutations(range(n))))
    cuts = sorted(draw(st.sets(st.integers(1, n - 1)))) if n > 1 else []
    return [list(order[a:b]) for a, b in pairwise([0, *cuts, n])]


@given(groups=partitions(), numbers=st.integers(0, 40))
@settings(deadline=None, max_examples=40)
def test_the_hierarchy_sums_and_sends_little_out_of_any_groups(groups, numbers):
    n, S = sum(map(len, groups)), 4 * numbers
    values = drawn(n, (numbers,), "int32", 4)
    log = MessageLog()
    for result in hierarchical_allreduce(dealt(values), groups, log):
        np.testing.assert_array_equal(result.numpy(), values.sum(0, dtype=np.int32))
    home = {i: k for k, group in enumerate(groups) for i in group}
    out = [(h, s) for h, s in log.messages if home[h.source] != home[h.target]]
    m = len(groups)
    assert sum(size for _, size in out) == 2 * (m - 1) * S
    assert len({hop.step for hop, _ in out}) == 2 * (m - 1)
    assert log.steps == 2 * (max(map(len, groups)) - 1) + 2 * (m - 1)


@pytest.mark.parametrize("groups", [[[0, 1, 2, 3, 4]], [[0], [1], [2], [3], [4]]])
def test_one_level_of_the_hierarchy_alone_is_the_ring(groups):
    log = MessageLog()
    hierarchical_allreduce(dealt(np.ones((5, 13), np.float32)), groups, log)
    ring = run_logged(ring_allreduce, 5, 13)
    assert sorted(log.messages) == sorted(ring.messages)
