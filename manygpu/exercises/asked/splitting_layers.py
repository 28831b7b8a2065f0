"""Exercises of part 4: cuts through layers, and what tensors mean then."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import all_off, off, other


def _logits(draw: random.Random) -> Iterator[tuple]:
    for tops, sums, chosen in (
        ([[1]], [[2]], [[1]]),
        ([[3], [1]], [[1], [2]], [[0], [1]]),
        ([[2000, -10], [-10, 2000]], [[1, 1], [1, 1]], [[2000, -10], [0, 0]]),
        ([[900, 0], [899, 1]], [[1, 1], [1, 1]], [[0, 0], [899, 1]]),
    ):
        yield np.array(tops, float), np.array(sums, float), np.array(chosen, float)
    for classes, high in (([2, 1], 0), ([1, 3, 2], 2000), ([5, 4], -1500)):
        pieces = [arrays(draw, 3, n) * 3 + high + 4 * d for d, n in enumerate(classes)]
        owner = np.array([draw.randrange(len(classes)) for _ in range(3)])
        tops = np.array([piece.max(1) for piece in pieces])
        sums = [np.exp(p - top[:, None]).sum(1) for p, top in zip(pieces, tops)]
        chosen = [np.where(owner == d, p[:, 0], 0.0) for d, p in enumerate(pieces)]
        yield tops, np.array(sums), np.array(chosen)


@exercise(
    "layerwise/losses",
    '''
def my_losses(tops, sums, chosen):
    """Return each sample's loss, log(sum of exp(z)) minus the z of its class.

    The classes are split over the devices. Each device computed three numbers
    per sample, and all of them were gathered at once into arrays (devices,
    samples). The logits z may be 2000 and larger.

    tops: the largest of the device's own logits.
    sums: the sum of exp(z - the device's own top) over the device's classes.
    chosen: the logit of the sample's class, if the device has this class, and
        otherwise 0.
    """
    raise NotImplementedError(
        "Each device's sum has a different factor. Which one?",
    )
''',
    _logits,
)
def judge_losses(found, tops, sums, chosen):
    gone = np.isneginf(found).any() and "a loss is -inf"
    yield "not all of a sample's exponentials become 0", gone
    broken = not np.isfinite(found).all() and "a loss isn't finite"
    yield "no exponential overflows", broken
    top = tops.max(0)
    total = np.log((sums * np.exp(tops - top)).sum(0))
    own = chosen.sum(0)
    right = total + top - own
    wrong = off(found, right)
    plain = np.log(sums.sum(0)) + top - own
    yield "sums with different factors don't add up", not off(found, plain) and wrong
    yield "the subtracted number is added again", not off(found, total - own) and wrong
    yield "one device has the class", not off(found, total + top - chosen[0]) and wrong
    yield "it is the loss of uncut classes", wrong


def _images(draw: random.Random) -> Iterator[tuple]:
    yield from ((1, 2, 1), (1, 2, 2), (2, 2, 2), (3, 4, 2))
    for _ in range(3):
        k = draw.randint(2, 4)
        yield draw.randint(2, 6), k * draw.randint(1, 3), k


@exercise(
    "layerwise/rows",
    '''
def my_rows(places, channels, k):
    """Return, for each device, the rows of a dense layer's kernel it has.

    The layer reads a flattened image. Row p * channels + c of its kernel
    belongs to channel c at place p. The layer before it is split by channels.
    Device d has the d-th of k equal runs of channels, and k divides channels.

    places: the number of places in an image.

    The result is one list of row numbers per device, in rising order.
    """
    raise NotImplementedError("A device has its own channels at every place.")
''',
    _images,
)
def judge_rows(found, places, channels, k):
    yield "one list per device", other(len(found), k)
    every = sorted(row for own in found for row in own)
    count = places * channels
    yield "each row is on one device, once", every != list(range(count)) and f"{every}"
    run = channels // k
    right = [
        [p * channels + d * run + i for p in range(places) for i in range(run)]
        for d in range(k)
    ]
    foreign = [d for d in range(k) if set(found[d]) != set(right[d])]
    said = foreign and f"device {foreign[0]} has {list(found[foreign[0]])}"
    yield "a device's rows are those of its channels", said
    yield "they are in rising order", other([list(own) for own in found], right)


def _groups_of_heads(draw: random.Random) -> Iterator[tuple]:
    yield from ((2, 2, 1), (2, 2, 2), (4, 2, 2), (2, 1, 2), (6, 2, 3), (8, 2, 4))
    for _ in range(3):
        group, key_heads, k = draw.choice((1, 2, 4)), draw.randint(1, 4), 4
        yield 4 * group * key_heads, 4 * key_heads // draw.choice((1, 2, 4)), k


@exercise(
    "transformer/key-heads",
    '''
def my_key_heads(heads, key_heads, k):
    """Return, for each device, the key heads that its query heads need.

    There are fewer key heads than query heads: heads / key_heads neighbouring
    query heads share one key head. Device d has the d-th of k equal runs of
    query heads. Both k and key_heads divide heads.

    The result is one list per device, in rising order.
    """
    raise NotImplementedError("Which key head does query head q use?")
''',
    _groups_of_heads,
)
def judge_key_heads(found, heads, key_heads, k):
    yield "one list per device", other(len(found), k)
    group, run = heads // key_heads, heads // k
    for d, own in enumerate(found):
        needs = sorted({q // group for q in range(d * run, (d + 1) * run)})
        less, more = set(needs) - set(own), set(own) - set(needs)
        lacks = less and f"device {d} lacks {min(less)}"
        yield "a device has the keys of all its queries", lacks
        has = more and f"device {d} has {min(more)}, of which it has no query"
        yield "it has no other key heads", has
        yield (
            "each is present once, in rising order",
            list(own) != needs and f"they are {own}",
        )


def _tokens(draw: random.Random) -> Iterator[tuple]:
    one = np.array([[3.0, 1.0]]), np.array([[1.0, 4.0]])
    two = np.array([[1.0, 2.0], [2.0, 0.0]]), np.array([[2.0, 1.0], [1.0, 3.0]])
    yield [one[0]], [one[1]]
    yield [two[0], one[0]], [two[1], one[1]]
    for counts in ([3, 2], [2, 4, 1]):
        yield tuple([arrays(draw, n, 3) for n in counts] for _ in range(2))


@exercise(
    "transformer/gains",
    '''
def my_gains(units, upstreams):
    """Return each device's gradient for the gain of a norm, as a list.

    The tokens are split over the devices. All devices have a copy of the gain,
    and these copies must stay equal. The norm's output is units * gain.

    units: for each device, the normalized numbers of its own tokens, an array
        (tokens, width).
    upstreams: for each device, the gradient of the norm's output for the same
        tokens, an array of the same shape.

    The result is a list of arrays (width,).
    """
    raise NotImplementedError(
        "Which tokens did each device use to compute its own part?"
    )
''',
    _tokens,
)
def judge_gains(found, units, upstreams):
    yield "one gradient per device", other(len(found), len(units))
    apart = all_off(found, [found[0]] * len(found))
    yield "the copies stay equal", apart and f"{apart}, compared with device 0"
    parts = [(u * g).sum(0) for u, g in zip(units, upstreams)]
    wrong = off(found[0], sum(parts))
    mean = wrong and not off(found[0], sum(parts) / len(parts)) and wrong
    yield "parts are summed, not averaged", mean
    tokens = sum(map(len, units))
    by_token = wrong and not off(found[0], sum(parts) / tokens) and wrong
    yield "it is a sum over tokens", by_token
    yield "it is the gradient of units * gain", wrong


WAYS_BACK = {
    "PI": "nothing",
    "IR": "all-reduce",
    "PR": "all-reduce",
    "PS": "all-gather",
    "SR": "reduce-scatter",
    "SI": "cut",
    "IS": "all-gather",
    "SP": "cut",
    "IP": "nothing",
}
FORWARD = {"PI": "all-reduce", "PR": "all-reduce", "PS": "reduce-scatter"}
FORWARD |= {"SR": "all-gather", "SI": "all-gather", "IR": "nothing", "IS": "cut"}
COPIES_BACK = {"IR": "nothing", "PR": "nothing", "SR": "cut"}  # if R's were an I


def _backward_moves(draw: random.Random) -> Iterator[tuple]:
    yield from map(tuple, WAYS_BACK)


@exercise(
    "what-a-tensor-means/way-back",
    '''
def my_way_back(source, target):
    """Return the move that the gradient makes when a tensor has been moved.

    The tensor moves from the meaning `source` to the meaning `target`.

    source: "P", "S" or "I".
    target: a different one of these, or "R".

    The result is "nothing", "cut", "all-gather", "all-reduce" or
    "reduce-scatter".
    """
    raise NotImplementedError(
        "What does each gradient mean, and in which direction does it move?"
    )
''',
    _backward_moves,
)
def judge_way_back(found, source, target):
    pair = source + target
    wrong = other(found, WAYS_BACK[pair])
    copies = found == COPIES_BACK.get(pair) and wrong
    yield "the gradient of an R is a P", copies
    forward = found == FORWARD.get(pair) and wrong
    yield "the backward move isn't the forward move", forward
    yield "the answer is one of the five", found not in WAYS_BACK.values() and wrong
    yield "it is the move between the meanings of the gradients", wrong


def _kinds(draw: random.Random) -> Iterator[tuple]:
    yield from itertools.product(("R", "I", "V", "S(-1)", "S(-2)", "P"), (-1, -2))


@exercise(
    "what-a-tensor-means/largest",
    '''
def my_largest(kind, dim):
    """Return the meaning of the largest numbers along a dimension, or None.

    Each device takes the largest numbers of the piece that it has, and nothing
    is sent. The dimension stays, with length 1. If the result has no meaning,
    return None, because the operation must be refused.

    kind: the meaning of the tensor, "R", "I", "V", "P", "S(-1)" or "S(-2)".
    dim: the dimension along which the largest numbers are taken, -1 or -2.
    """
    raise NotImplementedError(
        "What does each device find in the part that it has?",
    )
''',
    _kinds,
)
def judge_largest(found, kind, dim):
    summands = kind == "P" and found is not None and f"it is {found!r}"
    yield "the largest numbers of partial sums say nothing about the sum", summands
    cut = kind == f"S({dim})"
    added = cut and found == "P" and "it is 'P'"
    yield "the largest numbers of pieces aren't parts of a sum", added
    whole = cut and found != "V" and f"it is {found!r}"
    yield "a piece's largest isn't the whole's", whole
    kept = not cut and kind != "P" and found != kind and f"it is {found!r}"
    yield "a dimension that isn't joined keeps its meaning", kept


def _cut_norms(draw: random.Random) -> Iterator[tuple]:
    for widths in ([3], [2, 2], [3, 1], [2, 4, 1]):
        parts = [arrays(draw, 2, n) * (1 + d) for d, n in enumerate(widths)]
        yield parts, [arrays(draw, n) for n in widths]


@exercise(
    "what-a-tensor-means/norm",
    '''
def my_norm(parts, gains):
    """Return each device's columns of x / sqrt(mean of x * x) * gain.

    The mean is over all columns of x, for each token separately.

    parts: for each device, its own columns of x, an array (tokens, columns).
        The numbers of columns may differ.
    gains: for each device, its own part of the gain.
    """
    raise NotImplementedError(
        "What is the partial sum here, and when are the partial sums added up?"
    )
''',
    _cut_norms,
    hunted=True,
)
def judge_norm(found, parts, gains):
    squares = [(x * x).sum(-1, keepdims=True) for x in parts]
    widths, k = [x.shape[-1] for x in parts], len(parts)

    def by(*roots: np.ndarray) -> list[np.ndarray]:
        each = roots * k if len(roots) == 1 else roots
        return [x / root * gain for x, root, gain in zip(parts, each, gains)]

    wrong = all_off(found, by(np.sqrt(sum(squares) / sum(widths))))
    own = by(*(np.sqrt(s / n) for s, n in zip(squares, widths)))
    yield "the mean is over all columns", not all_off(found, own) and wrong
    means = by(np.sqrt(sum(s / n for s, n in zip(squares, widths)) / k))
    yield "each column weighs the same", not all_off(found, means) and wrong
    roots = by(sum(np.sqrt(s / sum(widths)) for s in squares))
    yield "a sum of roots isn't the root of a sum", not all_off(found, roots) and wrong
    yield "it is the norm of uncut tokens", wrong


def _long_and_short(widths: tuple[int, int], share: float) -> tuple[list, list]:
    """Tokens of sixteen numbers whose first device has most of the length."""
    first, rest = widths
    parts = [np.full((1, first), 1.0), np.full((1, rest), share)]
    return parts, [np.ones(n) for n in widths]


def _length(f, widths: tuple[int, int] = (8, 8)) -> str:
    """How large a normalized token's numbers are, by their root mean square."""
    made = np.concatenate(f(*_long_and_short(widths, 0.2)), -1)
    return f"{np.sqrt((made**2).mean()):.2f}"


flaw(
    "what-a-tensor-means/norm",
    """
import numpy as np


def my_norm(parts, gains):
    found = []
    for x, gain in zip(parts, gains):
        mean = (x * x).mean(-1, keepdims=True)
        found.append(x / np.sqrt(mean) * gain)
    return found
""",
    lambda f: (
        "x has 1.0 on one device and 0.2 on the other. Normalized, the second is "
        f"{f(*_long_and_short((8, 8), 0.2))[1][0, 0]:.1f}"
    ),
    "the mean is over all columns",
)
flaw(
    "what-a-tensor-means/norm",
    """
import numpy as np


def my_norm(parts, gains):
    means = [(x * x).mean(-1, keepdims=True) for x in parts]
    root = np.sqrt(sum(means) / len(means))
    return [x / root * gain for x, gain in zip(parts, gains)]
""",
    lambda f: (
        f"normalized tokens have a root mean square of {_length(f)} where each device "
        f"has 8 columns, and of {_length(f, (12, 4))} where they have 12 and 4"
    ),
    "each column weighs the same",
)
flaw(
    "what-a-tensor-means/norm",
    """
import numpy as np


def my_norm(parts, gains):
    width = sum(x.shape[-1] for x in parts)
    squares = [(x * x).sum(-1, keepdims=True) for x in parts]
    root = sum(np.sqrt(s / width) for s in squares)
    return [x / root * gain for x, gain in zip(parts, gains)]
""",
    lambda f: f"normalized tokens have a root mean square of {_length(f)}, not of 1",
    "a sum of roots isn't the root of a sum",
)
