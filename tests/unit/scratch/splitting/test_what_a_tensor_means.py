"""Types of tensors on a mesh: what they accept is right, what they refuse is wrong.

The reference is plain NumPy on whole tensors; gradients are complex steps of it.
"""

import itertools
import operator
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from manygpu.scratch.data_parallel.collectives import dealt
from manygpu.scratch.splitting.program_over_ranks import (
    Backward,
    Mesh,
    Spread,
    joined,
    spread_out,
)
from manygpu.scratch.splitting.what_a_tensor_means import (
    MOVES,
    I,
    Kind,
    MeaningError,
    P,
    R,
    S,
    Typed,
    V,
    ask,
    back,
    of_gradient,
    typed,
)
from tests.unit.helpers import EIGHT

KINDS = (R, I, P, S(-1), S(-2))
BOUND = 1e-9
MESHES = [(2,), (3,), (4,), (1, 2), (2, 2), (3, 2), (2, 3), (4, 2)]  # of 6 x 6: uneven
BINARY = {"add": operator.add, "mul": operator.mul, "matmul": operator.matmul}


class Instruction(NamedTuple):
    """One operation on values that a program has so far: numbers of two of them."""

    name: str
    first: int
    second: int
    dim: int
    axis: int
    target: Kind


instructions = st.builds(
    Instruction,
    st.sampled_from(["add", "mul", "matmul", "tanh", "sum", "mean", "T", "move"]),
    st.integers(0, 30),
    st.integers(0, 30),
    st.sampled_from([-1, -2]),
    st.integers(0, 1),
    st.sampled_from([*KINDS, V]),
)


def applied(one: Instruction, values: list, types: list[Typed], mesh: dict):
    """What an instruction makes, of types or of numbers on a mesh."""
    a, b = one.first % len(values), one.second % len(values)
    if one.name in BINARY:
        return BINARY[one.name](values[a], values[b])
    if one.name == "tanh":
        return values[a].apply(tf.tanh)
    if one.name == "sum":
        return values[a].sum_along(one.dim)
    if one.name == "mean":
        return values[a].mean_along(one.dim)
    if one.name == "T":
        return values[a].transposed()
    axis = list(mesh)[one.axis % len(mesh)]
    return values[a].move(axis, types[a].meaning[axis], one.target)


def on_whole(one: Instruction, values: list[np.ndarray]) -> np.ndarray:
    """The same on one device, in NumPy: moves do nothing."""
    a, b = one.first % len(values), one.second % len(values)
    if one.name in BINARY:
        return BINARY[one.name](values[a], values[b])
    whole = values[a]
    work = {
        "tanh": lambda: np.tanh(whole),
        "sum": lambda: whole.sum(one.dim, keepdims=True),
        "mean": lambda: whole.mean(one.dim, keepdims=True),
        "T": lambda: np.swapaxes(whole, -1, -2),
        "move": lambda: whole,
    }
    return work[one.name]()


def is_tried(one: Instruction, types: list[Typed]) -> bool:
    """Leave out what has no whole to be compared with: new V, matrices of one row."""
    kinds = types[one.first % len(types)].meaning.values()
    if one.name == "mean" and S(one.dim) in kinds:
        return False
    if one.name == "move" and V in kinds:
        return False
    ranks = [len(types[n % len(types)].shape) for n in (one.first, one.second)]
    return one.name in ("add", "mul", "tanh", "move") or min(ranks) == 2


def accepted(drawn: list[Instruction], types: list[Typed], mesh: dict) -> list:
    """The instructions that the types accept; `types` grows by what they make."""
    kept = []
    for one in drawn:
        if not is_tried(one, types):
            continue
        try:
            types.append(applied(one, types, types, mesh))
        except (MeaningError, ValueError):  # refused, or the whole shapes don't fit
            continue
        kept.append(one)
    return kept


@st.composite
def inputs(draw, mesh):
    """Types of a few inputs, 6 x 6 or a row of 6, at most one axis on a dimension."""
    types = []
    for _ in range(draw(st.integers(2, 3))):
        shape = draw(st.sampled_from([(6, 6), (6, 6), (6,)]))
        dims = [S(-1), S(-2)][: len(shape)]
        kinds = [draw(st.sampled_from([R, R, I, P, V, *dims, *dims])) for _ in mesh]
        assume(len(kinds) < 2 or kinds[0] != kinds[1] or kinds[0].letter != "S")
        types.append(Typed(shape, dict(zip(mesh, kinds, strict=True))))
    return types


def with_varying(shape, meaning, mesh) -> tuple[int, ...]:
    """The shape with a dimension in front for each axis on which a tensor varies."""
    return (*(n for axis, n in mesh.items() if meaning[axis] == V), *shape)


def entry(whole: np.ndarray, meaning, place: dict) -> np.ndarray:
    """What is there at one place of the axes on which a tensor varies."""
    return whole[tuple(place[a] for a, kind in meaning.items() if kind == V)]


def total(wholes, types, program, out: Typed, mesh, upstream):
    """The sum of upstream times output, over all places where the output varies."""
    varies = [axis for axis in mesh if out.meaning[axis] == V]
    found = 0
    for at in itertools.product(*(range(mesh[axis]) for axis in varies)):
        place = dict.fromkeys(mesh, 0) | dict(zip(varies, at, strict=True))
        values = [
            entry(w, t.meaning, place) for w, t in zip(wholes, types, strict=True)
        ]
        for one in program:
            values.append(on_whole(one, values))
        found += (entry(upstream, out.meaning, place) * values[-1]).sum()
    return found


def close(found, right, size) -> bool:
    return abs(found - right) <= BOUND * (1 + size)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_whatever_the_types_accept_is_one_devices_result_forward_and_back(data):
    sizes = data.draw(st.sampled_from(MESHES))
    mesh = dict(zip(("data", "layerwise"), sizes, strict=False))
    types = data.draw(inputs(mesh))
    count = len(types)
    drawn = data.draw(st.lists(instructions, min_size=4, max_size=12))
    program = accepted(drawn, types, mesh)
    assume(len(program) >= 2)
    out, rng = types[-1], np.random.default_rng(len(drawn))
    wholes = [
        rng.normal(size=with_varying(t.shape, t.meaning, mesh)) / 2
        for t in types[:count]
    ]
    upstream = rng.normal(size=with_varying(out.shape, out.meaning, mesh))
    ranks = Mesh(EIGHT, **mesh)
    held = [
        spread_out(tf.constant(w), t.meaning, ranks)
        for w, t in zip(wholes, types[:count], strict=True)
    ]
    values = list(held)
    for one in program:
        values.append(applied(one, values, types, mesh))
    found = joined(values[-1], out.meaning)
    assert found.shape == upstream.shape
    for _ in range(2):  # two weights: the value itself, not only one sum of it
        weight = rng.normal(size=upstream.shape)
        right = total(wholes, types[:count], program, out, mesh, weight)
        assert close((weight * found).sum(), right, np.abs(weight * found).sum())
    seed = spread_out(tf.constant(upstream), out.gradient().meaning, ranks)
    backs = Backward(values[-1], seed.parts).to(held)
    for i, (gradient, kind) in enumerate(zip(backs, types[:count], strict=True)):
        unused = np.zeros_like(wholes[i])
        whole = joined(gradient, kind.gradient().meaning) if gradient else unused
        step = rng.normal(size=whole.shape)
        moved = list(wholes)
        moved[i] = wholes[i] + 1e-30j * step
        slope = total(moved, types[:count], program, out, mesh, upstream)
        size = np.abs(whole * step).sum()
        assert close((whole * step).sum(), np.imag(slope) / 1e-30, size)


def numbers_say(work, whole_work, shapes, kinds, n, outs=KINDS) -> list[Kind]:
    """Those of `outs` with which a result, and all gradients, are one device's."""
    rng, mesh = np.random.default_rng(1), Mesh(EIGHT, axis=n)
    wholes = [rng.normal(size=shape) for shape in shapes]
    right = whole_work(*wholes)
    upstream, fitting = rng.normal(size=right.shape), []
    for out_kind in outs:
        try:
            held = [
                spread_out(tf.constant(w), {"axis": kind}, mesh)
                for w, kind in zip(wholes, kinds, strict=True)
            ]
            out = work(*held)
            found = joined(out, {"axis": out_kind})
            up = {"axis": of_gradient(out_kind)}
            seed = spread_out(tf.constant(upstream), up, mesh)
            backs = Backward(out, seed.parts).to(held)
            grads = [
                joined(g, {"axis": of_gradient(kind)}) if g else np.zeros(shape)
                for g, kind, shape in zip(backs, kinds, shapes, strict=True)
            ]
        except (ValueError, tf.errors.InvalidArgumentError):
            continue
        is_right = found.shape == right.shape and np.allclose(found, right, atol=BOUND)
        for i, grad in enumerate(grads):
            step = rng.normal(size=shapes[i])
            moved = list(wholes)
            moved[i] = wholes[i] + 1e-30j * step
            slope = np.imag((upstream * whole_work(*moved)).sum()) / 1e-30
            is_right = is_right and grad.shape == step.shape
            is_right = is_right and np.isclose((grad * step).sum(), slope, atol=BOUND)
        fitting += [out_kind] if is_right else []
    return fitting


def types_say(work, shapes, kinds) -> list[Kind]:
    """The kind that the rules give; [] where they refuse."""
    try:
        out = work(*(typed(s, axis=k) for s, k in zip(shapes, kinds, strict=True)))
    except MeaningError:
        return []
    return [out.meaning["axis"]]


SQUARE, ROW = (6, 6), (1, 6)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("shapes", [(SQUARE, SQUARE), (SQUARE, ROW), (ROW, SQUARE)])
@pytest.mark.parametrize("name", BINARY)
def test_the_rules_of_two_tensors_accept_what_numbers_accept_and_no_more(
    name, shapes, n
):
    if name == "matmul" and shapes == (SQUARE, ROW):
        shapes = (SQUARE, (6, 1))
    work = BINARY[name]
    for kinds in itertools.product(KINDS, KINDS):
        cut = [k.dim for k in kinds if k.letter == "S"]
        lengths = [s[k.dim] for s, k in zip(shapes, kinds, strict=True) if k.dim]
        if cut and min(lengths) < n:
            continue  # a row can't be cut along its length of 1
        said = types_say(work, shapes, kinds)
        assert said == numbers_say(work, work, shapes, kinds, n), (name, *kinds)


CUBES = [
    ((6, 6, 6), (6, 6, 6)),  # the first dimension: of the batch, or of the heads
    ((6, 6), (6, 6, 6)),
    ((6, 6, 6), (6, 6)),
    ((1, 6, 6), (6, 6, 6)),
]


@pytest.mark.parametrize("shapes", CUBES)
def test_products_of_three_dimensions_accept_what_numbers_accept_and_no_more(shapes):
    kinds_of = [
        [*KINDS, S(-3)] if len(shape) == 3 and shape[-3] > 1 else KINDS
        for shape in shapes
    ]
    for kinds in itertools.product(*kinds_of):
        said = types_say(operator.matmul, shapes, kinds)
        found = numbers_say(
            operator.matmul, operator.matmul, shapes, kinds, 3, [*KINDS, S(-3)]
        )
        assert said == found, kinds


def test_a_whole_batch_beside_a_cut_one_is_refused_for_any_number_of_devices():
    """Of 8 devices, each has one head, which would go with all 8 of the other."""
    cut, whole = typed((8, 5, 4), heads=S(-3)), typed((8, 4, 5), heads=R)
    assert "move the R to S(-3) first" in ask(operator.matmul, cut, whole)
    moved = whole.move("heads", R, S(-3))
    assert ask(operator.matmul, cut, moved) == "(8, 5, 5): S(-3) on heads"
    with pytest.raises(ValueError, match="broadcast"):
        _ = cut @ typed((3, 4, 5), heads=S(-3))


@pytest.mark.parametrize("kind", KINDS)
def test_the_rules_of_one_tensor_accept_what_numbers_accept_and_no_more(kind):
    pairs = {
        "tanh": (lambda x: x.apply(tf.tanh), np.tanh),
        "sum": (lambda x: x.sum_along(-1), lambda x: x.sum(-1, keepdims=True)),
        "mean": (lambda x: x.mean_along(-1), lambda x: x.mean(-1, keepdims=True)),
        "T": (lambda x: x.transposed(), lambda x: x.T),
        "times": (lambda x: x * 0.5, lambda x: x * 0.5),
        "plus": (lambda x: x + 0.5, lambda x: x + 0.5),
    }
    for name, (work, whole_work) in pairs.items():
        said = types_say(work, [SQUARE], [kind])
        said = [] if said == [V] else said  # a V is nothing that has a whole
        assert said == numbers_say(work, whole_work, [SQUARE], [kind], 3), name


ENDS = [
    (source, target)
    for source, target in itertools.product(KINDS, KINDS)
    if target.letter in MOVES[source.letter] and source != target
]


@pytest.mark.parametrize(("source", "target"), ENDS)
def test_a_move_is_right_from_what_a_tensor_is_and_from_nothing_else(source, target):
    for kind in KINDS:

        def work(x, kind=kind):
            return x.move("axis", source, target)

        said = types_say(work, [SQUARE], [kind])
        assert said == ([target] if kind == source else [])
        assert said == numbers_say(work, lambda x: x, [SQUARE], [kind], 3), kind


def test_the_way_back_of_the_way_back_is_the_way():
    assert len(ENDS) == 20
    for source, target in ENDS:
        first, last = back(source, target)
        assert last.letter in MOVES[first.letter]
        assert back(first, last) == (source, target)


def test_a_varying_tensor_may_be_declared_a_sum_and_goes_with_copies():
    own, copy = typed((4,), data=V), typed((4,), data=R)
    assert ask(lambda: (own * copy).move("data", V, P)) == "(4,): P on data"
    assert ask(lambda: own.move("data", V, R)).startswith("refused, move from V to R")
    assert "on axis 'data'" in ask(lambda: own + typed((4,), data=S(-1)))
    mesh, whole = Mesh(EIGHT, data=3), tf.random.normal((3, 4), dtype=tf.float64)
    held = spread_out(whole, {"data": V}, mesh)
    found = joined(held.move("data", V, P), {"data": P})
    np.testing.assert_allclose(found, whole.numpy().sum(0))


@pytest.mark.parametrize("n", [2, 3, 4])
def test_each_shipped_mistake_is_refused_and_its_numbers_are_wrong(n):
    """A bias k times, a gate of two sums, a gain under cut tokens, a sum twice."""
    wide = 12

    def bias(x, W, b):
        return (x @ W + b).move("axis", P, R)

    def gate(x, W, b):
        return ((x @ W) * (x @ W)).move("axis", P, R)

    def activation(x, W, b):
        return (x @ W).apply(tf.tanh).move("axis", P, R)

    def twice(x, W, b):
        return (x @ W).move("axis", P, R).move("axis", P, R)

    rights = {
        bias: lambda x, W, b: x @ W + b,
        gate: lambda x, W, b: (x @ W) ** 2,
        activation: lambda x, W, b: np.tanh(x @ W),
        twice: lambda x, W, b: x @ W,
    }
    shapes, kinds = [(wide, wide), (wide, wide), (wide,)], [S(-1), S(-2), R]
    for work, right in rights.items():
        assert types_say(work, shapes, kinds) == []
        assert numbers_say(work, right, shapes, kinds, n) == [], work.__name__


def test_refusals_name_the_operation_the_axis_the_kinds_and_a_way_out():
    x, copy = typed((4, 6), data=S(-2), layerwise=P), typed((6,), data=R, layerwise=R)
    said = ask(lambda: x + copy)
    assert said == (
        "refused, + of P and R on axis 'layerwise':\n    "
        "each device would add it to its partial sum: move the P first"
    )
    assert "tanh of P on axis 'layerwise'" in ask(lambda: x.apply(tf.tanh))
    assert "from R to S(-1)" in ask(lambda: x.move("layerwise", R, S(-1)))
    cut = typed((4, 6), data=S(-1), layerwise=R)
    assert "is cut already" in ask(lambda: cut.move("layerwise", R, S(-1)))
    assert "move the R to S(-1) first" in ask(lambda: cut + copy)


def test_bad_input_is_named():
    x = typed((4, 6), data=R)
    with pytest.raises(ValueError, match=r"dim must be negative, got 1: S\(-1\) is"):
        S(1)
    with pytest.raises(ValueError, match="don't fit"):
        _ = x @ x
    with pytest.raises(ValueError, match="a meaning on the same axes"):
        _ = x + typed((4, 6), layerwise=R)
    with pytest.raises(ValueError, match=r"axis must be one of \['data'\], got 'dat'"):
        x.move("dat", R, P)
    copies = Spread(Mesh(EIGHT, data=2), dealt(EIGHT, [[1.0, 1.0], [0.0, 0.0]]))
    with pytest.raises(ValueError, match="is R must be alike, got some that differ"):
        joined(copies, {"data": R})
