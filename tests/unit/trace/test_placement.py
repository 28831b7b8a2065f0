"""Placements: what is noted of each piece, what is added up, where tiles lie."""

import pytest
import tensorflow as tf
from matplotlib.colors import to_hex

from manygpu import figures
from manygpu.trace.placement import Piece, Placement
from tests.unit.helpers import EIGHT

A, B, C = EIGHT[:3]


def on(device: str, *shape: int) -> tf.Tensor:
    with tf.device(device):
        return tf.ones(shape)


@pytest.fixture
def two_layers() -> Placement:
    """Layer 0 cut by samples on A and B; layer 1 whole on B, from both."""
    made = Placement()
    W, b = on(A, 4, 5), on(A, 5)
    below = [
        made.run(d, 0, lambda X, W, b: X @ W + b, on(C, n, 4), W, b)
        for d, n in ((A, 2), (B, 1))
    ]
    out = made.run(B, 1, lambda Xs, V: tf.concat(Xs, 0) @ V, below, on(B, 5, 3))
    assert out.device.endswith(B)
    assert (out.numpy() == 5 * (4 + 1)).all()
    return made


def test_a_piece_holds_what_ran_and_what_it_read(two_layers):
    assert two_layers.pieces == [
        Piece(A, 0, (2, 5), 4 * 10, 4 * 25, ((C, 4 * 8),), 4 * 8),
        Piece(B, 0, (1, 5), 4 * 5, 4 * 25, ((C, 4 * 4),), 4 * 4),
        Piece(B, 1, (3, 3), 4 * 9, 4 * 15, ((A, 4 * 10), (B, 4 * 5)), 4 * 15),
    ]


def test_bytes_are_those_of_each_device_without_the_batch_in_what_it_receives(
    two_layers,
):
    assert [len(two_layers.on(d)) for d in (A, B, C)] == [1, 2, 0]
    assert [two_layers.params(d) for d in (A, B, C)] == [100, 100 + 60, 0]
    # What B gathered it keeps once, and the output for the loss.
    found = [two_layers.activations(d) for d in (A, B, C)]
    assert found == [4 * 8, 4 * 4 + 4 * 15 + 4 * 9, 0]
    assert [two_layers.received(d) for d in (A, B, C)] == [0, 40, 0]
    assert [two_layers.sent(d) for d in (A, B, C)] == [40, 0, 0]
    for name in (B.lower(), B.removeprefix("/device:"), f"/job:localhost/task:0{B}"):
        assert (two_layers.params(name), two_layers.received(name)) == (160, 40)


def pieces(*shapes: tuple[int, ...]) -> Placement:
    """One layer, a piece of each shape on a device of its own."""
    devices = zip(EIGHT, shapes, strict=False)
    return Placement([Piece(d, 0, shape, 0, 0, ()) for d, shape in devices])


@pytest.mark.parametrize(
    ("shapes", "whole", "tiles"),
    [
        ([(3, 5), (1, 5)], (4, 5), [(A, 0, 0, 1, 0.75), (B, 0, 0.75, 1, 0.25)]),
        (
            [(4, 7, 7, 1), (4, 7, 7, 3)],
            (4, 7, 7, 4),
            [(A, 0, 0, 0.25, 1), (B, 0.25, 0, 0.75, 1)],
        ),
    ],
)
def test_tiles_of_samples_lie_above_each_other_of_channels_side_by_side(
    shapes, whole, tiles
):
    assert pieces(*shapes).tiles(0, whole) == tiles


def test_a_whole_layer_is_one_tile_and_no_other_layers_are_among_them(two_layers):
    assert two_layers.tiles(1, (3, 3)) == [(B, 0, 0, 1, 1)]


def draw(placement: Placement, whole: tuple[int, ...], devices: list[str]):
    """The axes with a drawing of one layer."""
    _, ax = figures.subplots()
    placement.draw(ax, pieces(whole), devices, ["dense"], "by data")
    return ax


def test_the_drawing_has_a_colour_a_device_and_names_the_idle_ones():
    ax = draw(pieces((3, 5), (1, 5)), (4, 5), [A, B, C])
    assert ax.get_title(loc="left") == "by data"
    assert ax.get_xlabel() == "idle: 2"
    assert [t.get_text() for t in ax.get_yticklabels()] == ["dense"]
    fills = {to_hex(p.get_facecolor()) for p in ax.patches if p.get_facecolor()[3]}
    assert fills == {figures.color(0), figures.color(1)}
    assert [t.get_text() for t in ax.texts] == ["0", "1"]


def test_boxes_and_numbers_lie_where_their_tiles_do():
    ax = draw(pieces((4, 1), (4, 3)), (4, 4), [A, B])
    places = {p.get_bbox().bounds for p in ax.patches}
    assert places == {(0, 0.1, 0.25, 0.8), (0.25, 0.1, 0.75, 0.8)}
    assert [t.get_position() for t in ax.texts] == [(0.125, 0.5), (0.625, 0.5)]
    assert ax.get_xlim()[0] <= 0 and ax.get_xlim()[1] >= 1
    assert ax.get_xlabel() == ""


def test_numbers_in_low_tiles_go_up_as_stairs():
    ax = draw(pieces((1, 5), (1, 5), (1, 5), (1, 5)), (4, 5), EIGHT[:4])
    places = [t.get_position() for t in ax.texts]
    assert [x for x, _ in places] == [1 / 8, 3 / 8, 5 / 8, 7 / 8]
    middles = [0.1 + 0.8 * (i + 0.5) / 4 for i in range(4)]
    assert [y for _, y in places] == pytest.approx(middles)
