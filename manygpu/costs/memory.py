"""What the fullest device of a training step holds: the one home of memory's formulas.

`held` answers for any model that can say what it stores (`Stored`): a transformer by
its shape (`of_shape`), or a measured chain of equal layers. The counts are those of
engines: activations as Korthikanti et al. (arXiv:2205.05198), state as Rajbhandari et
al. (arXiv:1910.02054) and Megatron-LM's distributed optimizer. `manygpu.simulate.peak`
finds the same from what is played.

What a kernel needs while it runs, and gaps between blocks of an allocator, are not
counted: that is what the rest of `ROOM` is for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manygpu.costs.layout import ALL, ATTENTION, SELECTIVE, Layout, Number
from manygpu.costs.shape import Shape

ROOM = 0.9  # of a device's memory: the rest is scratch space, and gaps between blocks
# Sharded state: layers whose whole parameters are there at once, the one at work and
# the next one; and whole gradients, those being made and those on their way.
AHEAD = 2
# Bytes a logit: 16 bits, and float32 for a copy, the softmax and its gradient. An
# engine that fuses the loss needs 4 (Megatron-LM).
LOGIT, FUSED = 14.0, 4.0


class Bytes(NamedTuple):
    """Bytes of a parameter: as it computes, its gradient, what the optimizer keeps.

    `bucket`: of a second copy of the gradient, in which replicas sum it.
    """

    weight: float
    gradient: float
    state: float
    bucket: float = 0.0

    @property
    def total(self) -> float:
        """All but the bucket."""
        return self.weight + self.gradient + self.state


# With Adam. In mixed precision the state holds the parameters in float32 too.
FLOAT32 = Bytes(4, 4, 8)
MIXED = Bytes(2, 2, 12)
MAIN_GRADIENTS = Bytes(2, 4, 12)  # gradients are added up in float32: 18, 6 + 12 / d


class Stored(NamedTuple):
    """What a model stores: parameters, and bytes of a sample.

    Attributes:
        layers: how many, all equal.
        layer: parameters of one.
        whole, shared, scores: bytes that one keeps of a sample; see `Kept`.
        handed: bytes of a sample that enter a layer, kept where it is recomputed.
        first, last: parameters before the first layer and behind the last one.
        tied: they are the same parameters, and once there where one stage has both.
        entered: bytes that the first stage keeps of a sample beside its layers.
        logits: bytes of a sample behind the last layer, loss and all.
        cut_tokens: layerwise devices share out `whole` and `handed` as well.
        products: of `whole` and of `shared`, what is kept where only the results of
            products are; None: nobody can tell them apart.
    """

    layers: int
    layer: float
    whole: float
    shared: float
    scores: float
    handed: float
    first: float = 0.0
    last: float = 0.0
    tied: bool = False
    entered: float = 0.0
    logits: float = 0.0
    cut_tokens: bool = False
    products: tuple[float, float] | None = None


class Memory(NamedTuple):
    """Bytes of a device, by what they are for; each a number, or an array of them."""

    parameters: Number
    gradients: Number
    optimizer: Number
    gathered: Number  # parameters and gradients of the layers at work, where sharded
    buckets: Number
    activations: Number
    logits: Number

    @property
    def total(self) -> Number:
        """All of them."""
        return sum(self)


def of_shape(
    shape: Shape, cut_tokens: bool = True, flash: bool = True, logit: float = LOGIT
) -> Stored:
    """What a transformer stores; a sample is one sequence.

    Args:
        shape: its.
        cut_tokens: between the pairs of products, layerwise devices share the tokens
            (sequence parallelism).
        flash: attention writes no scores.
        logit: bytes a logit of the loss.
    """
    s, h = shape.sequence, shape.hidden
    whole, shared, scores = (s * each for each in shape.kept)
    # Outside of the layers: the last norm's input and what enters the head; and the
    # mask of dropout behind the embedding.
    logits = s * (logit * shape.vocabulary + 4 * h * bool(shape.vocabulary))
    return Stored(
        shape.layers,
        shape.layer,
        whole,
        shared,
        0.0 if flash else scores,
        2.0 * s * h,
        shape.embedding,
        shape.embedding,
        shape.tied,
        0.0 if shape.gated else s * h,
        logits,
        cut_tokens,
        (s * shape.products.whole, s * shape.products.shared),
    )


def in_float32(stored: Stored) -> Stored:
    """The same model whose activations have 32 bits; of logits, all but the first copy.

    Masks of dropout, which would not grow, are counted as if they did.
    """
    twice = ("whole", "shared", "scores", "handed", "entered")
    wider = {name: 2 * getattr(stored, name) for name in twice}
    products = stored.products and tuple(2 * size for size in stored.products)
    return stored._replace(**wider, products=products)


def in_flight(layout: Layout, stage: Number) -> Number:
    """Micro-batches of which a stage of 1F1B keeps activations at once.

    With several chunks a device, a chunk of a micro-batch counts as its share: the
    first device keeps 1 + (p - 1) / (p v) times as many as without (Korthikanti et al.,
    arXiv:2205.05198).
    """
    p, v = layout.stages, layout.chunks
    below = p - 1 - stage
    ahead = np.where(v > 1, 2 * below + (v - 1) * p, below)
    return np.minimum(layout.micro_batches, (ahead + 1) / v)


def kept(stored: Stored, layout: Layout, samples: Number) -> tuple[Number, Number]:
    """Bytes that a layer keeps of a micro-batch, and while its own turn lasts."""
    t = layout.layerwise
    tokens = t if stored.cut_tokens else 1
    some = samples * (stored.whole / tokens + stored.shared / t)
    all_ = some + samples * stored.scores / t
    attention, whole = (layout.recompute == kind for kind in (ATTENTION, ALL))
    between = np.where(whole, samples * stored.handed / tokens, all_)
    between = np.where(attention, some, between)
    again = np.where(attention, samples * stored.scores / t, np.where(whole, all_, 0.0))
    if stored.products is not None:
        part = layout.recompute == SELECTIVE
        of_whole, of_shared = stored.products
        products = samples * (of_whole / tokens + of_shared / t)
        between = np.where(part, products, between)
        again = np.where(part, all_ - products, again)
    return between, again


def held(
    stored: Stored,
    layout: Layout,
    samples: Number,
    each: Bytes = MIXED,
    dealt: tuple[Number, Number] | None = None,
) -> Memory:
    """Return what the fullest device holds at a step's fullest moment.

    That is a device of the first stage, which has the most micro-batches in flight, or
    of the last one, which has the logits. Stages have equally many layers, or one more.

    Args:
        stored: what the model stores.
        layout: how the work is shared out.
        samples: of a micro-batch, on one replica.
        each: bytes a parameter.
        dealt: layers of the first and of the last stage, if others.

    Raises:
        TypeError, ValueError: a layout in which a device would have no part.
    """
    layout.check()
    places = 0, layout.stages - 1
    layers = dealt or [np.ceil(stored.layers / layout.stages)] * 2
    ends = [
        of_stage(stored._replace(layers=count), layout, samples, each, stage)
        for stage, count in zip(places, layers, strict=True)
    ]
    fuller = ends[1].total > ends[0].total
    return Memory(*(np.where(fuller, b, a)[()] for a, b in zip(*ends, strict=True)))


def of_stage(
    stored: Stored, layout: Layout, samples: Number, each: Bytes, stage: Number
) -> Memory:
    """What a device of this stage holds, as `held` has it.

    `stored.layers` are the stage's own.
    """
    t, layers, shards = layout.layerwise, stored.layers, layout.shards
    first, last = stage == 0, stage == layout.stages - 1
    ends = [first * stored.first, last * stored.last]
    twice = np.minimum(*ends) if stored.tied else 0.0
    own = (layers * stored.layer + sum(ends) - twice) / t
    among = [np.where(layout.zero >= kind, shards, 1) for kind in (3, 2, 1)]
    state = [own * size / n for size, n in zip(each[:3], among, strict=True)]
    largest = np.maximum(stored.layer, np.maximum(*ends))
    at_work = largest + (np.minimum(layers, AHEAD) - 1) * stored.layer
    sizes = zip(each[:2], among, strict=False)
    gathered = sum(np.where(n > 1, at_work / t * size, 0.0) for size, n in sizes)
    buckets = own * each.bucket * (layout.data > 1)
    between, again = kept(stored, layout, samples)
    entered = first * samples * stored.entered / (t if stored.cut_tokens else 1)
    activations = in_flight(layout, stage) * (layers * between + entered) + again
    logits = last * samples * stored.logits / t
    return Memory(*state, gathered, buckets, activations, logits)


def fits(memory: Memory, capacity: Number) -> Number:
    """Whether so much goes into a device's memory, but for what is kept free."""
    return memory.total <= ROOM * capacity
