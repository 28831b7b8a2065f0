"""Which axes can be used together: all pairs and triples, compared on gradients.

Each combination takes one step of a small model, with two ranks per axis, and compares
the gradient of each parameter on each rank with one device's, in float64. For the
others, the table says why there is no such step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import tensorflow as tf

from manygpu import scratch
from manygpu.prove.ranks import RankGradients
from manygpu.prove.todays_steps import answers_alone, block_alone
from manygpu.scratch import Layer
from manygpu.scratch.splitting.program_over_ranks import WHOLE_LAYER, Cut, Spread
from manygpu.scratch.splitting.transformer import (
    EMBEDDING_CUT_TOKENS,
    HEAD_CUT_TOKENS,
)
from manygpu.scratch.splitting.what_a_tensor_means import I, R, S
from manygpu.scratch.start.three_ways_to_split import Linear
from manygpu.scratch.today.experts import dropless_layer
from manygpu.scratch.today.long_sequences import long_cut, token_order
from tests.unit import compositions as of
from tests.unit.compositions import Expected, Net, Row, drawn

WITHIN = 1e-13  # of a parameter's largest gradient


# A transformer with rotary positions: its tokens stay cut in attention, too.


def long_net() -> Net:
    """Return a transformer whose attention may be split along tokens."""
    width, heads = of.WIDTH, of.WIDTH // 2  # heads of two numbers
    options = of.WORDS, of.TOKENS, width, heads, "float64"
    first, *blocks, last = scratch.gpt_layers(2, *options)
    blocks = [one._replace(apply=block_alone) for one in blocks]
    layers = [first, *blocks, last]
    X, y = np.random.default_rng(1).integers(0, of.WORDS, (2, of.SAMPLES, of.TOKENS))
    ring = long_cut("ring", token_order("contiguous", of.TOKENS, 2))
    context = [EMBEDDING_CUT_TOKENS, ring, ring, HEAD_CUT_TOKENS]
    cuts = {"whole": [WHOLE_LAYER] * 4, "context": context}
    return Net(layers, tf.constant(X), tf.constant(y), of.in_order(layers), cuts)


# Layers of experts between dense ones.

EXPERTS, K = 5, 2


def experts_layer(
    x: tf.Tensor, router: tf.Tensor, A: tf.Tensor, B: tf.Tensor
) -> tf.Tensor:  # fmt: skip
    """Return x plus the answers of each sample's experts, on one device."""
    chosen = tf.math.top_k(x @ router, K)[1]
    return answers_alone(x, chosen, router, A, B)


def experts_program(
    axis: str, apply, x: Spread, router: Spread, A: Spread, B: Spread
) -> Spread:
    """Let each rank route its own share of the samples to all ranks' experts."""
    own = x.move(axis, I, S(-2))
    return dropless_layer(axis, own, router, A, B, K).move(axis, S(-2), I)


EXPERTS_CUT = Cut((R, S(-3)), experts_program)


def experts_net() -> Net:
    """Return two layers of experts between two dense ones."""
    tanh = Linear(tf.matmul, lambda h, b: tf.tanh(h + b))
    layers = [Layer("first", tanh, (drawn(6, 4), drawn(4)))]
    for seed in (1, 2):
        own = drawn(4, EXPERTS, seed=seed), drawn(EXPERTS, 4, 3, seed=seed)
        own += (drawn(EXPERTS, 3, 4, seed=seed + 2),)
        layers.append(Layer(f"experts {seed}", experts_layer, own))
    layers.append(Layer("last", tanh, (drawn(4, 5, seed=5), drawn(5))))
    X = tf.constant(np.random.default_rng(2).normal(size=(of.SAMPLES, 6)))
    cut = [WHOLE_LAYER, EXPERTS_CUT, EXPERTS_CUT, WHOLE_LAYER]
    cuts = {"whole": [WHOLE_LAYER] * 4, "experts": cut}
    return Net(layers, X, of.labels(5), of.in_order(layers), cuts)


# What can be combined.

AXES: dict[str, tuple[str, dict[str, Any]]] = of.AXES | {
    "context": ("layerwise", {"cut": "context"}),
    "experts": ("layerwise", {"cut": "experts"}),
    "accumulation": ("", {"micro": 2}),
    "recomputation": ("", {}),
    "clipping": ("", {}),
}
IN_A_LAYER = {"slices", "tokens", "context", "experts"}
ONE_CUT = "{} both cut a layer along layerwise, and a mesh has that axis once"
NO_APPLY = "the program of a cut layer doesn't call the layer that is recomputed"
ONE_BATCH = "a ZeroState's step takes its batch in one piece"
ONE_STEP = "a ZeroState's step applies the gradients before anybody could clip them"
FEW = f"{of.SAMPLES} samples are too few for 8 parts"


def why_not(names: set[str]) -> str:
    """Return why axes can't be combined; "" if they can."""
    if len(names & IN_A_LAYER) > 1:
        return ONE_CUT.format(" and ".join(sorted(names & IN_A_LAYER)))
    if {"shards", "state"} <= names:
        return of.SHARDED
    if "state" in names and names & {"stages", *IN_A_LAYER}:
        return of.STATE_ALONE
    if {"state", "accumulation"} <= names:
        return ONE_BATCH
    if {"state", "clipping"} <= names:
        return ONE_STEP
    if "recomputation" in names and names & IN_A_LAYER:
        return NO_APPLY
    return FEW if {"copies", "shards", "accumulation"} <= names else ""


def combined(counts: tuple[int, ...] = (2, 3)) -> Iterator[tuple[str, ...]]:
    """Yield all pairs and triples of axes."""
    for count in counts:
        yield from combinations(AXES, count)


@cache
def net_of(name: str) -> Net:
    """Return the model that can be cut so."""
    made = {"context": long_net, "experts": experts_net}
    return made[name]() if name in made else of.NETS["transformer"]


def row_of(names: tuple[str, ...]) -> Row:
    """Return the step of these axes, two ranks along each."""
    sizes, options = {}, {}
    for name in names:
        axis, more = AXES[name]
        sizes |= {axis: 2} if axis else {}
        options |= more
    return Row(sizes or {"data": 1}, **options)


def worst_of(names: tuple[str, ...]) -> float:
    """Return the largest difference of a gradient from one device's."""
    row = row_of(names)
    net = of.NETS["dense chain"] if "recomputation" in names else net_of(row.cut)
    loss, whole = of.alone(net, net.X, net.y)
    if "recomputation" in names:
        wrapped = scratch.recomputed_layers(net.layers, 1)
        net = net._replace(layers=wrapped)
    limit = 0.0
    if "clipping" in names:  # to half of one device's norm
        limit = float(tf.linalg.global_norm(whole)) / 2
        whole = [g.numpy() for g in tf.clip_by_global_norm(whole, limit)[0]]
    expected = Expected(net, row)
    stateful = row.zero is not None
    ran = of.run_state(expected) if stateful else of.run(expected, limit=limit)
    grads = RankGradients(ran.ranks, whole)
    return max(abs(ran.loss / loss - 1), *ran.apart, *of.from_one_device(grads))


def main() -> None:
    """Print the table; exit with 1 if a combination differs from one device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axes", type=int, choices=(2, 3), help="only so many")
    counts = (2, 3) if (given := parser.parse_args().axes) is None else (given,)
    proved, refused, wrong, begin = {2: 0, 3: 0}, {}, [], time.process_time()
    for names in combined(counts):
        if why := why_not({*names}):
            refused.setdefault(why, []).append(names)
            continue
        start = time.process_time()
        try:
            worst = worst_of(names)
        except Exception as error:  # whatever the engine may raise
            worst = np.inf
            print(f"{' x '.join(names)}: {type(error).__name__}: {error}")
        seconds = time.process_time() - start
        print(f"{' x '.join(names):44} {worst:.0e} {seconds:5.2f} s", flush=True)
        wrong += [names] if not worst <= WITHIN else []
        proved[len(names)] += 1
    for why, which in refused.items():
        pairs = [" x ".join(names) for names in which if len(names) == 2]
        print(f"{len(which)} not combined, {why}: {'; '.join(pairs) or 'triples only'}")
    print(f"{proved[2]} pairs and {proved[3]} triples, {len(wrong)} of them wrong, in")
    print(f"  {time.process_time() - begin:.0f} CPU s")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
