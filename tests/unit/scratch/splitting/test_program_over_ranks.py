"""Programs over ranks: work, moves, their way back, and who sums with whom.

The reference is dense: one device in TensorFlow, or the whole tensor in NumPy.
"""

import itertools
from collections import Counter
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from manygpu.checks import short_device_name
from manygpu.scratch.data_parallel.collectives import MessageLog, dealt
from manygpu.scratch.splitting.program_over_ranks import (
    WHOLE_LAYER,
    Backward,
    Mesh,
    Spread,
    groups_along,
    joined,
    place_of,
    size_of,
    spread_out,
    submesh,
    summed,
)
from manygpu.scratch.splitting.what_a_tensor_means import (
    MOVES,
    I,
    P,
    R,
    S,
    V,
    back,
    of_gradient,
)
from tests.unit.helpers import EIGHT, in_graph, places

COUNTS = [1, 2, 3, 4, 8]
KINDS = (R, I, P, S(-1), S(-2))
ENDS = [
    (source, target)
    for source, target in itertools.permutations(KINDS, 2)
    if target.letter in MOVES[source.letter]
]
BOUND = 1e-12


def drawn(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=shape))


def close(found, right) -> bool:
    return np.allclose(found, right, rtol=BOUND, atol=BOUND)


def where(parts) -> list[str]:
    return [short_device_name(part.device) for part in parts]


def sent(source, target, whole, n) -> int:
    """Bytes that a move sends in one group, by hand: chunks as `tf.split` cuts them."""
    size = whole.numpy().nbytes
    multiples = {"all-reduce": 2, "reduce-scatter": 1, "all-gather": 1}
    collective = MOVES[source.letter][target.letter]
    if collective != "all-to-all":
        return multiples.get(collective, 0) * (n - 1) * size
    pieces = np.array_split(whole.numpy(), n, source.dim)
    own = [np.array_split(one, n, target.dim)[i].nbytes for i, one in enumerate(pieces)]
    return size - sum(own)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("source", "target"), ENDS)
def test_a_move_keeps_the_tensor_and_its_way_back_the_gradient(source, target, count):
    """Of 7 rows and 5 columns: shares are uneven, and some are empty."""
    whole, gradient = drawn(7, 5), drawn(7, 5, seed=1)
    mesh, log = Mesh(EIGHT, axis=count), MessageLog()
    start = spread_out(whole, {"axis": source}, mesh, log)
    moved = start.move("axis", source, target)
    assert sum(size for _, size in log.messages) == sent(source, target, whole, count)
    assert close(joined(moved, {"axis": target}), whole)
    assert where(moved.parts) == EIGHT[:count]
    log.messages.clear()
    upstream = spread_out(gradient, {"axis": of_gradient(target)}, mesh)
    (found,) = Backward(moved, upstream.parts).to([start])
    assert close(joined(found, {"axis": of_gradient(source)}), gradient)
    assert where(found.parts) == EIGHT[:count]
    ends = back(source, target)
    assert sum(size for _, size in log.messages) == sent(*ends, gradient, count)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_move_along_one_axis_leaves_the_other_as_it_is(compiled):
    whole, mesh = drawn(7, 5), Mesh(EIGHT, data=2, layerwise=3)
    for source, target in ENDS:
        other = S(-2) if S(-2) not in (source, target) else S(-1)
        if other in (source, target):
            continue

        def moved(source=source, target=target, other=other):
            meaning = {"data": other, "layerwise": source}
            return spread_out(whole, meaning, mesh).move("layerwise", source, target)

        run = in_graph(lambda moved=moved: moved().parts)  # noqa: B023
        parts = run() if compiled else moved().parts
        spread = Spread(mesh, dealt(EIGHT, parts))
        meaning = {"data": other, "layerwise": target}
        assert close(joined(spread, meaning), whole), (source, target)


def test_what_varies_becomes_summands_and_copies_begin_to_vary():
    mesh, whole = Mesh(EIGHT, axis=3), drawn(3, 4)
    own = spread_out(whole, {"axis": V}, mesh)
    total = own.move("axis", V, P).move("axis", P, R)
    assert close(joined(total, {"axis": R}), whole.numpy().sum(0))
    copies = spread_out(whole, {"axis": R}, mesh)
    assert joined(copies.move("axis", R, V), {"axis": V}).shape == (3, 3, 4)


@pytest.mark.parametrize("compiled", [False, True])
def test_each_rank_works_on_its_device_forward_and_back(compiled):
    mesh = Mesh(EIGHT, data=2, layerwise=2)
    x, A = drawn(5, 4), drawn(4, 6)

    def run():
        held = spread_out(x, {"data": S(-2)}, mesh), spread_out(A, {}, mesh)
        out = held[0] @ held[1]
        grads = Backward(out, out.parts).to(held)
        return [one.parts for one in (out, *grads)]

    function = in_graph(run)
    for parts in run():
        assert where(parts) == EIGHT[:4]
    if compiled:
        graph = function.get_concrete_function().graph
        assert places(graph, "MatMul") == dict.fromkeys(EIGHT[:4], 3)
        for found, right in zip(function(), run(), strict=True):
            assert all(map(close, found, right))


def test_a_list_of_works_gives_each_rank_its_own():
    mesh = Mesh(EIGHT, axis=3)
    ones = spread_out(tf.ones(2), {}, mesh)
    found = ones.each([lambda part, i=i: part * i for i in range(3)])
    assert [part.numpy().tolist() for part in found.parts] == [[0, 0], [1, 1], [2, 2]]


def chain(mesh, log):
    """Two layers with one parameter, used in both, and a move between."""
    x = spread_out(drawn(5, 4), {"axis": I}, mesh, log)
    w = spread_out(drawn(4, 4, seed=1), {"axis": S(-1)}, mesh, log)
    v = spread_out(drawn(4, 4, seed=2), {"axis": S(-2)}, mesh, log)
    h = (x.move("axis", I, R) @ w).apply(tf.tanh) @ v
    h = h.move("axis", P, I)
    out = (h.move("axis", I, R) @ w).apply(tf.tanh) @ v
    return x, w, v, out.move("axis", P, I)


def test_a_backward_pass_in_two_halves_takes_no_step_twice():
    mesh, counted = Mesh(EIGHT, axis=3), []
    for halves in (1, 2):
        log = MessageLog()
        x, w, v, out = chain(mesh, log)
        taken, wants = Counter(), [[x, w, v]] if halves == 1 else [[x], [w, v], [w]]
        for one in {id(o): o for o in Backward(out, out.parts).order}.values():
            if one.backward:
                one.backward = counting(one, taken)
        backward = Backward(out, out.parts)
        found = {}
        for wanted in wants:
            grads = backward.to(wanted)
            found |= {id(one): grad for one, grad in zip(wanted, grads, strict=True)}
        assert set(taken.values()) == {1}
        counted.append([found[id(one)].parts for one in (x, w, v)])
        counted[-1].append(len(log.messages))
    assert counted[0][-1] == counted[1][-1] > 0
    for one, other in zip(counted[0][:3], counted[1][:3], strict=True):
        assert all(map(close, one, other))


def counting(one, taken):
    """Its backward, with a note of each input that it went back to."""
    inner = one.backward

    def backward(upstreams, wanted):
        taken.update((id(one), n) for n in wanted)
        return inner(upstreams, wanted)

    return backward


def test_the_chain_has_one_devices_gradients():
    x, w, v = drawn(5, 4), drawn(4, 4, seed=1), drawn(4, 4, seed=2)
    with tf.GradientTape() as tape:
        tape.watch([x, w, v])
        h = tf.tanh(x @ w) @ v
        right = tf.tanh(h @ w) @ v
    grads = tape.gradient(right, [x, w, v], right)
    for count in COUNTS:
        *held, out = chain(Mesh(EIGHT, axis=count), MessageLog())
        assert close(joined(out, {"axis": I}), right)
        found = Backward(out, out.parts).to(held)
        for grad, kind, whole in zip(found, (I, S(-1), S(-2)), grads, strict=True):
            assert close(joined(grad, {"axis": kind}, BOUND), whole)


def test_a_tensor_that_is_used_twice_in_one_line_counts_twice_and_no_more():
    mesh, whole = Mesh(EIGHT, axis=2), drawn(3)
    x = spread_out(whole, {"axis": I}, mesh)
    ones = [tf.ones_like(part) for part in x.parts]
    (found,) = Backward(x * x, ones).to([x])
    assert close(joined(found, {"axis": I}), 2 * whole)
    moved = x.move("axis", I, R)  # nothing is sent: it has the very same arrays
    out = moved.each(lambda a, b, c: a * b + 0 * c, moved, x)
    (found,) = Backward(out, ones).to([moved])
    assert close(found.parts[0], 2 * whole)


def test_what_was_not_used_has_no_gradient_and_whole_numbers_have_zeros():
    mesh = Mesh(EIGHT, axis=2)
    x, other = (spread_out(drawn(3), {}, mesh) for _ in range(2))
    tokens = spread_out(tf.constant([2, 0, 1]), {}, mesh)
    out = x.each(tf.gather, tokens)
    of_x, of_other, of_tokens = Backward(out, out.parts).to([x, other, tokens])
    assert of_other is None
    assert close(of_x.parts[0], x.parts[0])
    assert not np.any(of_tokens.parts[1])


def test_a_gradient_is_summed_where_the_parameter_is_replicated_and_only_there():
    mesh, log = Mesh(EIGHT, data=2, layerwise=2), MessageLog()
    for meaning, groups in (
        ({"data": R, "layerwise": S(-1)}, [[0, 2], [1, 3]]),
        ({"data": I, "layerwise": I}, []),
        ({"layerwise": I}, [[0, 2], [1, 3]]),
        ({}, [[0, 1, 2, 3]]),
    ):
        log.messages.clear()
        ones = [tf.constant([10.0**rank, 0.0]) for rank in range(4)]
        found = summed(Spread(mesh, dealt(EIGHT, ones), log), meaning)
        right = [10.0**rank for rank in range(4)]
        for group in groups:
            for rank in group:
                right[rank] = sum(10.0**one for one in group)
        assert [part.numpy()[0] for part in found.parts] == right
        hops = {(hop.source, hop.target) for hop, _ in log.messages}
        assert bool(hops) == bool(groups)


def test_a_program_runs_on_a_mesh_without_its_axis():
    mesh, log = Mesh(EIGHT, data=2), MessageLog()
    x = spread_out(drawn(3), {}, mesh, log)
    moved = x.move("layerwise", I, R).move("layerwise", P, I)
    assert log.messages == []
    assert all(map(close, moved.parts, x.parts))
    assert size_of(mesh, "layerwise") == 1


def test_a_mesh_numbers_its_ranks_and_cuts_out_a_part():
    mesh = Mesh(EIGHT, data=2, pipeline=2, layerwise=2)
    assert place_of(mesh, 5) == {"data": 1, "pipeline": 0, "layerwise": 1}
    assert groups_along(mesh, "pipeline") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    part, ranks = submesh(mesh, pipeline=1, other=3)
    assert ranks == [2, 3, 6, 7]
    assert part.sizes == {"data": 2, "layerwise": 2}
    assert [part.device(r) for r in range(4)] == [EIGHT[r] for r in ranks]
    x = spread_out(drawn(4, 2), {"data": S(-2)}, part)
    assert where(x.parts) == [EIGHT[r] for r in ranks]
    assert close(joined(x.move("data", S(-2), R), {}), drawn(4, 2))


@pytest.mark.parametrize("kind", [*KINDS, V])
@pytest.mark.parametrize("axes", [{"a": 3}, {"a": 2, "b": 3}, {"b": 2, "a": 4}])
def test_what_is_spread_out_is_joined_again(kind, axes):
    mesh = Mesh(EIGHT, **axes)
    whole = drawn(axes["a"], 5) if kind == V else drawn(7, 5)
    spread = spread_out(whole, {"a": kind}, mesh)
    assert where(spread.parts) == EIGHT[: mesh.count]
    assert close(joined(spread, {"a": kind}), whole)


def test_copies_that_differ_or_are_no_numbers_are_not_joined():
    mesh = Mesh(EIGHT, axis=2)
    for last in (1.001, float("nan")):
        copies = Spread(mesh, dealt(EIGHT, [[1.0], [last]]))
        with pytest.raises(ValueError, match="must be alike, got some that differ"):
            joined(copies, {"axis": I})
    assert joined(Spread(mesh, dealt(EIGHT, [[1.0], [1.001]])), {}, 0.1) == 1.0


def test_a_layer_that_is_not_cut_is_the_same_on_all_ranks():
    mesh = Mesh(EIGHT, axis=2)
    x, w = (spread_out(drawn(3, 3, seed=i), {"axis": I}, mesh) for i in (0, 1))
    out = WHOLE_LAYER.program("axis", tf.matmul, x, w)
    right = tf.matmul(drawn(3, 3), drawn(3, 3, seed=1))
    assert close(joined(out, {"axis": WHOLE_LAYER.gives}), right)


TWO = Mesh(EIGHT, axis=2)
HELD = spread_out(tf.ones(2), {}, TWO)
WRONG = [
    (partial(Spread, TWO, tf.ones(2)), TypeError, "parts must be a list"),
    (partial(Spread, TWO, [np.ones(2)] * 2), TypeError, r"parts\[0\] must be a tensor"),
    (partial(Spread, TWO, dealt(EIGHT, [1.0])), ValueError, "must have 2 entries"),
    (
        partial(Spread, TWO, dealt(EIGHT[::-1], [1.0, 1.0])),
        ValueError,
        r"parts\[0\] must lie on /device:CPU:0, got /device:CPU:7: copy it there",
    ),
    (
        lambda: HELD.each([tf.tanh]),
        ValueError,
        r"work must have 2 entries, one per rank of Mesh\(axis=2\), got 1",
    ),
    (
        lambda: HELD + spread_out(tf.ones(2), {}, Mesh(EIGHT, other=2)),
        ValueError,
        r"others must be on Mesh\(axis=2\), got Mesh\(other=2\): use one mesh",
    ),
    (lambda: HELD.move("axis", P, V), ValueError, "target must be R or I or S for"),
    (lambda: HELD.move("axis", R, R), ValueError, "and not R itself, got R"),
    (lambda: Backward(HELD, [tf.ones(2)]), ValueError, "upstreams must have 2 entries"),
    (lambda: groups_along(TWO, "axes"), ValueError, "axis must be one of"),
]


@pytest.mark.parametrize(("wrong", "error", "said"), WRONG)
def test_bad_input_is_named(wrong, error, said):
    with pytest.raises(error, match=said):
        wrong()


def test_a_part_without_a_device_is_named_in_a_graph():
    """An argument of a graph lies nowhere, and all of it would run on one device."""

    @in_graph
    def run(one, other):
        return Spread(TWO, [one, other]).parts

    with pytest.raises(ValueError, match="got no device: copy it there"):
        run(tf.ones(2), tf.ones(2))
