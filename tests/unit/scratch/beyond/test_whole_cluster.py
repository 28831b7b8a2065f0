"""The loop plays the very collectives of the chapters before.

The page plays their plans, and holds one GPU to eight, and published runs to what is
played.
"""

from functools import partial

import pytest

from manygpu import scratch
from manygpu.backstage.unsent import messages_of
from manygpu.scratch.splitting.pipeline import needs
from manygpu.simulate import collectives
from manygpu.simulate.cluster import Cluster, Link
from manygpu.simulate.works import Agenda, put_messages, put_plan
from manygpu.trace.spans import Span, length

LINK = Link(10e-6, 5e9)


def played(messages, cluster: Cluster) -> list[Span]:
    agenda = Agenda()
    put_messages(agenda, messages, cluster.route)
    return scratch.simulate(agenda)


def test_what_is_sent_between_stages_comes_on_top():
    agenda, plan = Agenda(), scratch.gpipe(2, 1)
    put_plan(agenda, plan, needs, lambda op: 1.0, lambda a, b, op: (0.25, 0.5, ()))
    spans = scratch.simulate(agenda)
    assert length(spans) == pytest.approx(4 + 2 * 0.75)
    assert sum(span.name == "communication" for span in spans) == 2


@pytest.mark.parametrize(
    "name, collective, n",
    [
        *(("naive", scratch.naive_allreduce, n) for n in (2, 5, 8)),
        *(("ring", scratch.ring_allreduce, n) for n in (2, 5, 8)),
        *(("tree", scratch.tree_allreduce, n) for n in (2, 4, 8)),
        *(("halving_doubling", scratch.halving_doubling_allreduce, n) for n in (2, 8)),
    ],
)
def test_a_collective_takes_what_its_formula_says(name, collective, n):
    formula = getattr(collectives, f"{name}_seconds")
    size = 40 * 1024  # divisible by all n
    spans = played(messages_of(collective, n, size), Cluster(1, n, LINK, LINK))
    assert length(spans) == pytest.approx(formula(n, size, LINK), rel=1e-9)


def test_a_tree_of_another_number_waits_a_bit_less():
    """A leaf's message sets out while the one before is on its way."""
    size, levels = 40 * 1024, 6
    spans = played(
        messages_of(scratch.tree_allreduce, 5, size), Cluster(1, 5, LINK, LINK)
    )
    formula = collectives.tree_seconds(5, size, LINK)
    assert formula - levels * LINK.latency < length(spans) < formula


@pytest.mark.parametrize("cards", [1, 2, 4])
def test_two_levels_share_the_cards(cards):
    """Bandwidth is shared, latency isn't: both stand in the formula."""
    cluster = Cluster(3, 4, Link(0.0, 50e9), Link(0.0, 5e9), cards)
    groups = [list(range(4 * k, 4 * k + 4)) for k in range(3)]
    collective = partial(scratch.hierarchical_allreduce, groups=groups)
    spans = played(messages_of(collective, 12, 12 * 4096), cluster)
    formula = collectives.hierarchical_seconds(cluster, 12 * 4096)
    assert length(spans) == pytest.approx(formula, rel=1e-9)
