"""Every way to split, alone and with others, gives one device's gradients: a table.

Rows are strategies, columns models; a cell compares every gradient on every rank, and
the bytes along each axis. Then ten mistakes, each of which must turn a cell red, and be
named with its axis. Run with `-s` to see the table.
"""

from collections.abc import Callable, Iterator
from unittest import mock

import pytest
import tensorflow as tf

from manygpu.scratch.splitting import hybrid_meshes as meshes
from manygpu.scratch.splitting.layerwise import COLUMNS, ROWS
from manygpu.scratch.splitting.transformer import BLOCK_CUT_TOKENS
from manygpu.scratch.splitting.what_a_tensor_means import I, R
from tests.unit import compositions as of
from tests.unit.compositions import (
    CELLS,
    NETS,
    TABLE,
    Cell,
    examined,
    scattered_to_the_neighbour,
    why_not,
)

WITHIN = 1e-13  # of a parameter's largest gradient, in float64
DONE: dict[tuple[str, str], Cell] = {}
IN_GRAPHS: dict[tuple[str, str], Cell] = {}


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Print what was compared, once all of it was."""
    yield
    print()
    for row in TABLE:
        print(f"{row:34}", *(f"{said(net, row):>24}" for net in NETS))
    for cells, how in ((DONE, "eager"), (IN_GRAPHS, "as a graph")):
        worst = max((cell.worst for cell in cells.values()), default=0)
        seconds = sum(cell.seconds for cell in cells.values())
        print(f"{len(cells)} cells {how}: worst {worst:.0e}, {seconds:.0f} CPU s")


def said(net: str, row: str) -> str:
    cell = DONE.get((net, row))
    if cell:
        return f"{cell.worst:.0e} in {cell.seconds:.2f} s"
    return "-" if why_not(NETS[net], TABLE[row]) else ""


@pytest.mark.parametrize("net, row", CELLS)
def test_a_cell_is_one_device_and_sends_what_its_letters_say(net, row):
    cell = DONE[net, row] = examined(NETS[net], TABLE[row])
    assert cell.wrong == []
    assert cell.worst <= WITHIN


GRAPHS = [
    *(
        ("dense chain", row)
        for row in ("GPipe", "zero bubble", "ZeRO 1", "ZeRO 3", "tensor")
    ),
    *(("Keras", row) for row in ("1F1B", "interleaved", "HSDP 2 x 2", "data x tensor")),
    *(("LeNet, 12 classes", row) for row in ("data", "data x tensor")),
    *(("transformer", row) for row in ("network", "cut tokens", "ZeRO 2", "tensor")),
    ("dense chain", "data x pipe x tensor"),
]


@pytest.mark.parametrize("net, row", GRAPHS)
def test_a_cell_is_one_device_as_one_graph(net, row):
    cell = IN_GRAPHS[net, row] = examined(NETS[net], TABLE[row], graph=True)
    assert cell.wrong == []
    assert cell.worst <= WITHIN


def test_a_cell_without_a_meaning_says_why():
    empty = {
        (net, row): why
        for net in NETS
        for row in TABLE
        if (why := why_not(NETS[net], TABLE[row]))
    }
    assert len(CELLS) + len(empty) == len(NETS) * len(TABLE)
    assert set(empty.values()) == {of.BOTH, of.NO_TOKENS, of.SHARDED, of.STATE_ALONE}
    of_transformer = {why for (net, _), why in empty.items() if net == "transformer"}
    assert of_transformer == {of.BOTH, of.SHARDED, of.STATE_ALONE}


# Ten mistakes.


def patched(target: object, name: str, broken: object):
    return mock.patch.object(target, name, broken)


def without(axis: str):
    """No sum along an axis."""
    groups_of = meshes.groups_of

    def broken(shards, along):
        return {} if along == axis else groups_of(shards, along)

    return patched(meshes, "groups_of", broken)


def norms_not_summed():
    """The norms' letter on the tokens' axis is I, as if all did the same."""
    ready, cut = meshes.ready_cuts, BLOCK_CUT_TOKENS
    letters = tuple(I if letter == R else letter for letter in cut.letters)
    wrong = cut._replace(letters=letters)

    def broken(layers, mesh, cuts):
        return ready(layers, mesh, [wrong if one is cut else one for one in cuts])

    return patched(meshes, "ready_cuts", broken)


def summed_twice():
    total = meshes.sum_gradients

    def broken(shards, grads, send):
        return total(shards, total(shards, grads, send), send)

    return patched(meshes, "sum_gradients", broken)


def over_all_ranks():
    """One group of all ranks that hold a parameter."""

    def broken(shards, axis):
        if axis != "data":
            return {}
        everywhere = tuple(range(len(shards)))
        return {everywhere: list(range(len(shards.specs)))}

    return patched(meshes, "groups_of", broken)


def cut_as(right, wrong):
    """Layers that should be cut in one way are cut in another."""
    ready = meshes.ready_cuts

    def broken(*given):
        return [wrong if cut == right else cut for cut in ready(*given)]

    return patched(meshes, "ready_cuts", broken)


def bias_as_often_as_ranks():
    return cut_as(ROWS, ROWS._replace(letters=(ROWS.letters[0], R)))


def the_same_samples():
    share = meshes.StageProgram.share

    def broken(self, batch, **dims):
        parts = share(self, batch, **dims)
        first = []
        for part in parts:
            with tf.device(part.device):
                first.append(tf.identity(parts[0]))
        return first

    return patched(meshes.StageProgram, "share", broken)


def no_sum_at_the_entrance():
    def broken(axis, apply, h, *params):
        return h.each(apply, *params)

    return cut_as(COLUMNS, COLUMNS._replace(program=broken))


def averaged():
    total = meshes.add_together

    def broken(grads, send):
        means = []
        for own in total(grads, send):
            with tf.device(own[0].device):
                means.append([g / len(grads) for g in own])
        return means

    return patched(meshes, "add_together", broken)


MISTAKES: dict[str, tuple[Callable, str, str, str]] = {
    "norms not summed over tokens": (
        norms_not_summed,
        "transformer",
        "cut tokens",
        "layerwise 1 counted 0 times, due 1",
    ),
    "a tied matrix not summed over stages": (
        lambda: without("pipeline"),
        "transformer",
        "network",
        "pipeline 1 counted 0 times, due 1",
    ),
    "copies of shards not summed": (
        lambda: without("copies"),
        "LeNet, 12 classes",
        "HSDP 2 x 2",
        "copies 1 counted 0 times, due 1",
    ),
    "an all-reduce too many": (
        summed_twice,
        "dense chain",
        "data",
        "counted 3 times, due 1, as if summed one time too many along data",
    ),
    "the group of all ranks": (
        over_all_ranks,
        "dense chain",
        "data x tensor",
        "layerwise 1 counted 1 times, due 0",
    ),
    "a bias as often as there are ranks": (
        bias_as_often_as_ranks,
        "dense chain",
        "tensor",
        "counted 2 times, due 1, as if summed one time too many along layerwise",
    ),
    "a reduce-scatter to the wrong rank": (
        scattered_to_the_neighbour,
        "dense chain",
        "ZeRO 3",
        "data 0 has the part of data 1",
    ),
    "the same samples on all ranks": (
        the_same_samples,
        "Keras",
        "ZeRO 3",
        "samples of data 0 counted 3 times, due 1",
    ),
    "no sum at the entrance of a pair": (
        no_sum_at_the_entrance,
        "dense chain",
        "tensor",
        "layerwise: -2016 bytes",
    ),
    "a mean in the place of a sum": (
        averaged,
        "Keras",
        "HSDP 2 x 2",
        "counted 0.5 times, due 1, as if divided by the number of ranks along copies "
        "or data",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_turns_a_cell_red_and_is_named_with_its_axis(mistake):
    broken, net, row, said = MISTAKES[mistake]
    with broken():
        cell = examined(NETS[net], TABLE[row])
    assert cell.worst > 1e-3
    assert any(said in one for one in cell.wrong), cell.wrong
