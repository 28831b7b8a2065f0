"""Exercises of part 4: meshes of devices, whom a rank talks to, how it is laid out."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import all_off, mistaken, off, other

D, M = "data", "model"


def _layouts(draw: random.Random) -> Iterator[tuple]:
    yield from (((4,), {D: 2}, (None,), 4), ((4,), {D: 2}, (D,), 4))
    yield from (((5,), {D: 2}, (D,), 4), ((4, 4), {D: 2, M: 2}, (D, D), 4))
    yield from (((8, 6), {D: 2, M: 3}, (None, M), 2), ((3, 4), {D: 2}, (D, None), 4))
    yield (4, 6, 8), {D: 2, M: 2}, (None, D, None), 4
    for _ in range(5):
        d, m = draw.randint(2, 4), draw.randint(2, 4)
        spec = draw.choice([(D, None), (None, M), (D, M), (M, D)])
        yield (12 * draw.randint(1, 9), 12 * draw.randint(1, 9)), {D: d, M: m}, spec, 4


@exercise(
    "dtensor/bytes",
    '''
def my_bytes(shape, mesh, spec, size):
    """Return the bytes that a device holds of a tensor, or None.

    A mesh axis can split at most one axis of a tensor, and its length must
    divide that axis. If the tensor can't be split as `spec` says, return None.

    shape: the shape of the whole tensor.
    mesh: the length of each mesh axis, such as {"data": 2}.
    spec: for each axis of the tensor, the mesh axis that splits it, or None.
    size: the bytes of one number.
    """
    raise NotImplementedError("How long is each axis on one device?")
''',
    _layouts,
)
def judge_bytes(found, shape, mesh, spec, size):
    used = [by for by in spec if by is not None]
    parts = [1 if by is None else mesh[by] for by in spec]
    refused = found is not None and f"it is {found}"
    uneven = any(n % m for n, m in zip(shape, parts))
    yield "a length that a mesh axis doesn't divide is refused", uneven and refused
    twice = len(set(used)) < len(used)
    yield "a mesh axis cuts one axis only", twice and refused
    if uneven or twice:
        return
    right = math.prod(shape) // math.prod(parts) * size
    wrong, total = other(found, right), math.prod(shape) * size
    shared = found == total / math.prod(mesh.values()) and wrong
    yield "a tensor that isn't cut is whole on each device", shared
    yield "it is the amount that a device holds", wrong


def _products(draw: random.Random) -> Iterator[tuple]:
    yield from (((None, None), (None, None)), ((None, M), (M, None)))
    yield from (((D, None), (None, None)), ((None, None), (None, M)))
    yield from (((D, None), (None, M)), ((D, M), (M, None)), ((None, D), (D, M)))
    yield (M, D), (D, None)


@exercise(
    "dtensor/sums",
    '''
def my_sums(x, W):
    """Return the mesh axes over which three products are summed.

    The three products are x @ W, the gradient of W, and the gradient of x. The
    gradient of x @ W is split as x @ W is.

    x, W: for each of the matrix's two axes, the mesh axis that splits it, or
        None. The second axis of x is split as the first axis of W is.

    The result is a tuple with a name or None for each product.
    """
    raise NotImplementedError(
        "Along which axis does each of the three products add up?"
    )
''',
    _products,
)
def judge_dtensor_sums(found, x, W):
    found, (samples, inputs), (_, outputs) = list(found), x, W
    yield "there are three answers", other(len(found), 3)
    unasked = [name for name in found if name and name not in (*x, *W)]
    yield "an axis that cuts nothing sums nothing", unasked and f"{unasked[0]!r} does"
    product = found[0] != inputs and f"it is {found[0]!r}"
    yield "a product is summed along what it adds up", product
    weight = found[1] != samples and f"it is {found[1]!r}"
    yield "the weight's gradient adds up samples", weight
    back = found[2] != outputs and f"it is {found[2]!r}"
    yield "the input's gradient adds up outputs", back


def _scattered(draw: random.Random) -> Iterator[tuple]:
    yield [arrays(draw, 2, 2)], (1, 1), (None, None)
    for mesh, spec in (
        ((2, 1), (0, None)),
        ((2, 2), (None, None)),
        ((2, 2), (0, 1)),
        ((2, 2), (1, 0)),
        ((2, 3), (None, 1)),
        ((3, 2), (1, None)),
        ((3, 2), (0, 1)),
    ):
        counts = [1 if by is None else mesh[by] for by in spec]
        whole = arrays(draw, 2 * counts[0], 3 * counts[1])
        yield [_piece(whole, p, mesh, spec) for p in np.ndindex(*mesh)], mesh, spec


def _piece(whole: np.ndarray, place: tuple, mesh: tuple, spec: tuple) -> np.ndarray:
    for axis, by in enumerate(spec):
        if by is not None:
            whole = np.split(whole, mesh[by], axis)[place[by]]
    return whole


def _joined(pieces: list, mesh: tuple, spec: tuple, turned: bool = False) -> np.ndarray:
    """The whole; turned: with devices numbered down the columns of the mesh."""
    height, width = pieces[0].shape
    counts = [1 if by is None else mesh[by] for by in spec]
    whole = np.zeros((height * counts[0], width * counts[1]))
    for i, piece in enumerate(pieces):
        place = (i % mesh[0], i // mesh[0]) if turned else divmod(i, mesh[1])
        row, column = (0 if by is None else place[by] for by in spec)
        top, left = row * height, column * width
        whole[top : top + height, left : left + width] = piece
    return whole


@exercise(
    "dtensor/joined",
    '''
def my_joined(pieces, mesh, spec):
    """Return the whole matrix, made of the pieces that the devices hold.

    Device r * columns + c is in row r and column c of the mesh.

    mesh: (rows, columns), the numbers of devices.
    spec: for each axis of the matrix, the mesh axis that splits it, 0 or 1, or
        None. Along a mesh axis that splits nothing, all devices have the same
        piece.
    """
    raise NotImplementedError("Where does the piece of device i belong?")
''',
    _scattered,
    hunted=True,
)
def judge_joined(found, pieces, mesh, spec):
    right = _joined(pieces, mesh, spec)
    large = np.size(found) > right.size and f"its shape is {np.shape(found)}"
    yield "copies count once", large
    wrong = off(found, right)
    square = mesh[0] == mesh[1] and None not in spec
    unread = square and not off(found, _joined(pieces, mesh, (0, 1))) and wrong
    yield "spec says which mesh axis cuts which axis", unread
    turned = (
        wrong and not off(found, _joined(pieces, mesh, spec, turned=True)) and wrong
    )
    yield "devices are numbered row by row", turned
    yield "each piece is in its place", wrong


def _cubes(draw: random.Random) -> Iterator[tuple]:
    for sizes in (
        (1, 1, 1),
        (1, 1, 2),
        (1, 2, 1),
        (1, 2, 2),
        (2, 2, 1),
        (2, 2, 2),
        (2, 3, 2),
    ):
        yield [arrays(draw, 2) for _ in range(math.prod(sizes))], sizes
    sizes = tuple(draw.randint(2, 3) for _ in range(3))
    yield [arrays(draw, 2) for _ in range(math.prod(sizes))], sizes


def _summed(grads: list, sizes: tuple, axes: tuple) -> list[np.ndarray]:
    """Each rank's sum over the ranks that differ from it on these axes only."""
    cube = np.array(grads).reshape(*sizes, -1)
    whole = np.broadcast_to(cube.sum(axes, keepdims=True), cube.shape)
    return list(whole.reshape(len(grads), -1))


@exercise(
    "hybrid-meshes/sums",
    '''
def my_sums(grads, sizes):
    """Return each rank's gradient, summed over the ranks with the same slice.

    Ranks are numbered along the last axis of the mesh first, and then along
    the middle one. All arrays have the same shape, so a wrong sum raises no
    error.

    grads: for each rank, the gradient of its own slice of its own stage, an
        array.
    sizes: (stages, parts of the data, slices), the lengths of the mesh's axes.
    """
    raise NotImplementedError(
        "On which axis do ranks with the same slice differ?",
    )
''',
    _cubes,
)
def judge_hybrid_meshes_sums(found, grads, sizes):
    yield "one gradient per rank", other(len(found), len(grads))
    wrong = all_off(found, _summed(grads, sizes, (1,)), "rank")
    still = wrong and not all_off(found, grads)
    yield "all copies get the sum", still and wrong
    every = [(0, 1, 2), (1, 2), (0, 1), (0,), (2,), (0, 2)]
    others = [axes for axes in every if not all_off(found, _summed(grads, sizes, axes))]
    yield "only copies of the same parameters are added", others and wrong
    mean = [own / sizes[1] for own in _summed(grads, sizes, (1,))]
    yield "they are summed, not averaged", wrong and not all_off(found, mean) and wrong
    yield "it is the sum over the data group", wrong


def _rows(draw: random.Random) -> Iterator[tuple]:
    for data, layerwise in ((1, 1), (2, 1), (1, 2), (2, 2), (3, 2), (2, 4)):
        bias = arrays(draw, 3)
        row = [[(arrays(draw, 2, 2), True), (bias, False)] for _ in range(layerwise)]
        yield row * data, data, layerwise
    for data, layerwise in ((1, 2), (2, 2), (2, 3)):
        whole, own = (arrays(draw, 2, 2), False), (arrays(draw, 2), True)
        row = [[whole, own, (arrays(draw, 2, 2), True)] for _ in range(layerwise)]
        yield row * data, data, layerwise


def _length(row: list, cut: list) -> float:
    """Of a row's gradient, if what is cut were what these flags say."""
    return math.sqrt(
        sum(
            float((array**2).sum())
            for rank, own in enumerate(row)
            for (array, _), flag in zip(own, cut[rank])
            if flag or rank == 0
        )
    )


@exercise(
    "hybrid-meshes/norm",
    '''
def my_norm(grads, data, layerwise):
    """Return the length of the whole model's gradient.

    Rank d * layerwise + t has slice t of copy d.

    grads: for each rank, a list of (array, cut), after the sum over the data
        groups. If `cut` is true, the array is the rank's own slice. If it is
        false, all ranks of a tensor-parallel group have the same array, such
        as a last bias.
    """
    raise NotImplementedError("Which arrays are on more than one rank?")
''',
    _rows,
)
def judge_norm(found, grads, data, layerwise):
    def squares(cut: bool) -> float:
        return sum((a**2).sum() for own in grads for a, c in own if c == cut)

    slices, whole = squares(True) / data, squares(False) / data / layerwise
    right = math.sqrt(slices + whole)
    wrong = off(found, right)
    every = not off(found, math.sqrt(data * (slices + layerwise * whole)))
    copies = not off(found, math.sqrt(data * (slices + whole)))
    yield "copies along data count once", data > 1 and (every or copies) and wrong
    biases = not off(found, math.sqrt(slices + layerwise * whole)) and wrong
    yield "an array that is whole on all ranks of a row counts once", biases
    first = not off(found, math.sqrt(sum((a**2).sum() for a, _ in grads[0]))) and wrong
    yield "all slices count", first
    norms = [math.sqrt((a**2).sum()) for own in grads[:layerwise] for a, c in own if c]
    added = not off(found, sum(norms) + math.sqrt(whole)) and wrong
    yield "squares are added, not lengths", added
    different = {a.tobytes(): (a**2).sum() for own in grads for a, _ in own}
    alike = mistaken(found, right, math.sqrt(sum(different.values())))
    shapes = [[a.ndim > 1 for a, _ in own] for own in grads]
    places = [[i < len(own) - 1 for i, _ in enumerate(own)] for own in grads]
    for taken in (shapes, places):
        by = mistaken(found, right, _length(grads[:layerwise], taken))
        yield "`cut` says what is split, not a shape or a position", by
    yield "slices with equal numbers both count", alike
    yield "it is the length on one device", wrong


def _perceptrons(draw: random.Random) -> Iterator[tuple]:
    yield from (([1, 1, 1], 3, 2), ([6, 2, 1, 2, 1], 2, 2), ([2, 3, 4], 2, 3))
    for _ in range(4):
        widths = [draw.randint(1, 99) for _ in range(2 * draw.randint(1, 4) + 1)]
        yield widths, draw.randint(2, 8), draw.randint(2, 8)


@exercise(
    "hybrid-meshes/samples",
    '''
def my_samples(widths, data, layerwise):
    """Return the fewest samples for which tensor parallelism sends more bytes.

    Compare the bytes that are sent along the two axes of a mesh in one step:
    along `data` and along `layerwise`. Both have two or more ranks per group.
    All numbers have the same number of bytes. The network is a perceptron
    whose blocks are pairs of layers, each layer with a bias.

    widths: the width of the input, of a hidden layer, of a block's output, of
        a hidden layer, and so on.
    data, layerwise: how many ranks a group along each axis has.
    """
    raise NotImplementedError(
        "What does one sample send along the layerwise axis?",
    )
''',
    _perceptrons,
)
def judge_samples(found, widths, data, layerwise):
    outputs = widths[2::2]
    sample = (layerwise - 1) * (2 * sum(outputs) - outputs[-1])
    weights = sum(n * m for n, m in zip(widths, widths[1:]))
    extra = sum(widths[1:]) + (layerwise - 1) * sum(outputs)
    fixed, count = (data - 1) * (weights + extra), found
    broken = found != int(found) and f"it is {found}"
    yield "it is a number of samples", broken
    right = fixed // sample + 1
    images = (data - 1) * (weights + extra) // ((layerwise - 1) * 2 * sum(outputs)) + 1
    unasked = count == images != right and f"it is {count}"
    yield "the gradient of the images isn't computed", unasked
    once = (data - 1) * (weights + sum(widths[1:])) // sample + 1
    biases = count == once != right and f"it is {count}"
    yield "each rank of a row has the last bias of a block", biases
    bare = (data - 1) * weights // sample + 1
    forgotten = count == bare != right and f"it is {count}"
    yield "biases have gradients, too", forgotten
    less = count * sample <= fixed and f"with {count}, data sends as much"
    yield "layerwise sends more", less
    fewer = (count - 1) * sample > fixed and f"{count - 1} would be enough"
    yield "fewer samples don't suffice", fewer


def _shown(f, spec: tuple) -> str:
    """What becomes of a small matrix that is cut over 2 x 2 devices and joined."""
    whole, mesh = np.arange(4).reshape(2, 2), (2, 2)
    made = f([_piece(whole, p, mesh, spec) for p in np.ndindex(*mesh)], mesh, spec)
    return str(made.astype(int).tolist())


flaw(
    "dtensor/joined",
    """
import numpy as np


def my_joined(pieces, mesh, spec):
    height, width = pieces[0].shape
    counts = [1 if by is None else mesh[by] for by in spec]
    whole = np.zeros((height * counts[0], width * counts[1]))
    for device, piece in enumerate(pieces):
        place = device % mesh[0], device // mesh[0]
        row, column = (0 if by is None else place[by] for by in spec)
        top, left = row * height, column * width
        whole[top : top + height, left : left + width] = piece
    return whole
""",
    lambda f: (
        f"the matrix 0 1, 2 3, cut over both axes of 2 x 2 devices and joined: "
        f"{_shown(f, (0, 1))}"
    ),
    "devices are numbered row by row",
)
flaw(
    "dtensor/joined",
    """
import numpy as np


def my_joined(pieces, mesh, spec):
    rows, columns = mesh
    lines = [pieces[r * columns : (r + 1) * columns] for r in range(rows)]
    return np.block(lines)
""",
    lambda f: (
        f"a matrix of 2 x 2, whole on each of 2 x 2 devices, joined: its shape is "
        f"{f([np.eye(2)] * 4, (2, 2), (None, None)).shape}"
    ),
    "copies count once",
)
flaw(
    "dtensor/joined",
    """
import numpy as np


def my_joined(pieces, mesh, spec):
    height, width = pieces[0].shape
    counts = [1 if by is None else mesh[axis] for axis, by in enumerate(spec)]
    whole = np.zeros((height * counts[0], width * counts[1]))
    for device, piece in enumerate(pieces):
        place = divmod(device, mesh[1])
        row, column = (0 if by is None else place[i] for i, by in enumerate(spec))
        top, left = row * height, column * width
        whole[top : top + height, left : left + width] = piece
    return whole
""",
    lambda f: (
        f"the matrix 0 1, 2 3, its rows cut over the columns of 2 x 2 devices, its "
        f"columns over their rows, joined: {_shown(f, (1, 0))}"
    ),
    "spec says which mesh axis cuts which axis",
)
