"""Steps of today's models: tokens split along `context`, and experts along `expert`.

A sample is a token that the loss asks for. Its row has the whole text, because other
tokens change its loss, and its place in the text. So the judge counts tokens, and any
batch has its tokens' gradients as a sum, whatever the ranks share. A token that no row
asks for is looked at, but isn't in the loss, as a prompt's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from manygpu.prove.adapters import Variables, of_variables
from manygpu.prove.small import LR
from manygpu.prove.subject import Case, Subject
from manygpu.scratch.data_parallel.many_devices import take_step
from manygpu.scratch.splitting.program_over_ranks import (
    Backward,
    Mesh,
    Spread,
    groups_along,
    part_of,
    place_of,
    size_of,
    spread_out,
    summed,
)
from manygpu.scratch.splitting.transformer import BlockParams, head
from manygpu.scratch.splitting.what_a_tensor_means import I, Kind, R, S
from manygpu.scratch.start.one_device import cross_entropy
from manygpu.scratch.today import long_sequences
from manygpu.scratch.today.experts import (
    balance_loss,
    choose_experts,
    dropless_layer,
    expert_layer,
    expert_load,
    pushed_bias,
)
from manygpu.scratch.today.long_sequences import (
    arranged,
    long_cut,
    mean_loss,
    next_tokens,
    restored,
    token_order,
)
from manygpu.trainings.contract import Ranks, Training

WAYS = long_sequences.WAYS  # what travels, and in which order the tokens are
# How many ranks each axis has: both axes are cut where the devices are 4, 6 or 8.
SHAPES = {1: (1, 1), 4: (2, 2), 6: (2, 3), 8: (2, 4)}
Text = tuple[np.ndarray, np.ndarray, np.ndarray]  # its tokens, places, which rows ask
Meaning = Mapping[str, Kind]  # a letter per axis


def mesh_of(devices: list[str], axis: str) -> Mesh:
    """Return the devices as a mesh of `data` and one more axis."""
    data, size = SHAPES.get(len(devices), (1, len(devices)))
    return Mesh(devices, **{"data": data, axis: size})


def by_text(X: tf.Tensor) -> Iterator[Text]:
    """Yield each text of a batch, the places that are asked for, and their rows."""
    rows = np.asarray(X)
    texts, owner = np.unique(rows[:, :-1], axis=0, return_inverse=True)
    for i, text in enumerate(texts):
        own = np.flatnonzero(owner.ravel() == i)
        yield text, rows[own, -1], own


class Held(NamedTuple):
    """What each rank of a mesh holds of some parameters.

    Attributes:
        mesh: the ranks.
        letters: the meaning of each parameter.
        parts: the variables of each rank.
    """

    mesh: Mesh
    letters: Sequence[Meaning]
    parts: list[Variables]

    def spreads(self) -> list[Spread]:
        """Return the parameters as Spreads."""
        return [Spread(self.mesh, own) for own in zip(*self.parts, strict=True)]

    def whole(self, rank: int) -> list[tf.Tensor]:
        """Return the whole parameters, with all that a rank has a part of."""
        found = list(self.parts[rank])
        for n, meaning in enumerate(self.letters):
            for axis, kind in meaning.items():
                if kind.letter == "S" and size_of(self.mesh, axis) > 1:
                    groups = groups_along(self.mesh, axis)
                    (own,) = (group for group in groups if rank in group)
                    found[n] = tf.concat([self.parts[r][n] for r in own], kind.dim)
        return found

    def ranks(self, samples: list, before: list, own: list, divisor: float) -> Ranks:
        """Return who was moved by which gradient.

        samples: which of them each rank has. before: what it held before the step.
        own: its gradients before they were summed. divisor: of the sums in a step.
        """
        moved = []
        for old, new in zip(before, self.parts, strict=True):
            pairs = enumerate(zip(old, new, strict=True))
            moved.append({(n,): (a - b.numpy()) * divisor for n, (a, b) in pairs})
        letters = {
            (n,): {a: meaning.get(a, R).letter for a in self.mesh.sizes}
            for n, meaning in enumerate(self.letters)
        }

        def part(key: tuple[int, ...], whole: Sequence, rank: int) -> Any:
            return part_of(
                tf.constant(whole[key[0]]), self.letters[key[0]], self.mesh, rank
            )

        return Ranks(self.mesh.sizes, samples, letters, part, moved, own)


def held_on(mesh: Mesh, params: Variables, letters: Sequence[Meaning]) -> Held:
    """Give each rank its part of each parameter."""
    spreads = [spread_out(p, m, mesh) for p, m in zip(params, letters, strict=True)]
    parts = []
    for rank in range(mesh.count):
        with tf.device(mesh.device(rank)):
            parts.append([tf.Variable(one.parts[rank]) for one in spreads])
    return Held(mesh, letters, parts)


class Found(NamedTuple):
    """What the ranks find in a batch, before any sum over ranks.

    Attributes:
        loss: the loss summed over the rows, on each rank; P on all axes that split it.
        grads: of each parameter, as Spreads.
    """

    loss: Spread
    grads: list[Spread]


Losses = Callable[[list[Spread], tf.Tensor, tf.Tensor], Iterator[Spread]]


def gradients_by(losses: Losses, held: Held, X: tf.Tensor, y: tf.Tensor) -> list[Found]:
    """Return the loss of each text of a batch, and its gradients on each rank."""
    params, found = held.spreads(), []
    for loss in losses(params, X, y):
        ones = [tf.ones_like(part) for part in loss.parts]
        grads = Backward(loss, ones).to(params)
        pairs = zip(params, grads, strict=True)
        grads = [g or p.each(tf.zeros_like) for p, g in pairs]
        found.append(Found(loss, grads))
    return found


def summed_grads(held: Held, found: Sequence[Found]) -> list[list[tf.Tensor]]:
    """Return the gradients that each rank follows, of all texts."""
    total = found[0].grads
    for more in found[1:]:
        total = [a + b for a, b in zip(total, more.grads, strict=True)]
    pairs = zip(total, held.letters, strict=True)
    sums = [summed(grad, meaning).parts for grad, meaning in pairs]
    return [list(own) for own in zip(*sums, strict=True)]


def reported(mesh: Mesh, found: Sequence[Found], copies: str) -> tf.Tensor:
    """Return the summed loss; along an axis, `copies`, ranks have the same one."""
    first = [r for r in range(mesh.count) if place_of(mesh, r).get(copies, 0) == 0]
    return tf.add_n([one.loss.parts[r] for one in found for r in first])


def training_of(
    held: Held,
    losses: Losses,
    copies: str,
    rows_of: Callable[[tf.Tensor], list[list[int]]],
    after: Callable[[], None] = lambda: None,
) -> Training:
    """Return the training whose step follows these losses.

    copies: see `reported`. rows_of: the rows of a batch that each rank computes with.
    after: what a step does at its end.
    """

    def take(X: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        found = gradients_by(losses, held, X, y)
        take_step(held.parts, summed_grads(held, found), LR, len(y))
        after()
        return reported(held.mesh, found, copies) / len(y)

    def ranks(X: tf.Tensor, y: tf.Tensor) -> Ranks:
        before = [[p.numpy() for p in own] for own in held.parts]
        (found,) = gradients_by(losses, held, X, y)
        own = [
            {(n,): grad.parts[rank].numpy() for n, grad in enumerate(found.grads)}
            for rank in range(held.mesh.count)
        ]
        take(X, y)
        return held.ranks(rows_of(X), before, own, len(y) / LR)

    def whole() -> list[list[tf.Tensor]]:
        return [held.whole(rank) for rank in range(held.mesh.count)]

    return Training(take, whole, ranks=ranks)


# Long sequences: a block with rotary positions, whose tokens ranks share.

WORDS, WIDTH, SEQUENCES = 7, 4, 2
PER_HEAD = (WIDTH, 2, 2)
LONG_SHAPES = {"E": (WORDS, WIDTH)} | BlockParams(
    *[(WIDTH,)] * 2,
    *[PER_HEAD] * 3,
    (2, 2, WIDTH),
    *[(WIDTH,)] * 2,
    (WIDTH, 6),
    (6, WIDTH),
)._asdict()  # fmt: skip
LONG_SHAPES |= {"last gain": (WIDTH,), "last shift": (WIDTH,)}


def documents_of(tokens: int, packed: bool) -> list[int] | None:
    """Return the lengths of the documents in a sequence of so many tokens."""
    first = 2 if tokens > 3 else 1
    return [first, tokens - first] if packed else None


def text_of(text: np.ndarray) -> np.ndarray:
    """Return the sequences of a row: (sequences, tokens)."""
    return text.reshape(SEQUENCES, -1)


def looked_up(E: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """Return a row of E per token: (tokens, sequences, width)."""
    return tf.gather(E, tf.transpose(tokens))


class Long(NamedTuple):
    """How ranks share the tokens of a text.

    Attributes:
        mesh: with the axes `data` and `context`.
        way: a key of `WAYS`.
        packed: whether a sequence has two documents.
        gathered: whether the logits are put in order again before the loss.
    """

    mesh: Mesh
    way: str
    packed: bool
    gathered: bool = False

    def where(self, tokens: int) -> list[np.ndarray]:
        """Return the positions of the tokens that each rank has."""
        return token_order(WAYS[self.way][1], tokens, size_of(self.mesh, "context"))

    def rows_of(self, X: tf.Tensor) -> list[list[int]]:
        """Return the rows of a batch of one text that each rank computes with."""
        ((text, places, _),) = by_text(X)
        tokens, own = len(text) // SEQUENCES, []
        halves = np.array_split(np.arange(SEQUENCES), size_of(self.mesh, "data"))
        for rank in range(self.mesh.count):
            at = place_of(self.mesh, rank)
            mine = self.where(tokens)[at["context"]]
            there = [s in halves[at["data"]] and t in mine
                     for s, t in zip(*divmod(places, tokens), strict=True)]  # fmt: skip
            own.append(np.flatnonzero(there).tolist())
        return own

    def losses(
        self, params: list[Spread], X: tf.Tensor, y: tf.Tensor
    ) -> Iterator[Spread]:
        """Yield each text's summed loss: a P along `data`, an I along `context`."""
        for text, places, _ in by_text(X):
            asked = np.bincount(places, minlength=len(text))
            yield self.loss(params, text_of(text), text_of(asked))

    def logits(self, params: list[Spread], text: Spread, where: list) -> Spread:
        """Return the logits of the ranks' tokens."""
        E, *block, gain, shift = params
        travels, tokens = WAYS[self.way][0], sum(map(len, where))
        cut = long_cut(travels, where, documents_of(tokens, self.packed))
        x = E.each([partial(looked_up, tokens=own) for own in text.parts])
        x = cut.program("context", None, x, *block)
        return x.each(head, gain, shift, E)

    def loss(self, params: list[Spread], text: np.ndarray, asked: np.ndarray) -> Spread:
        """Return the loss of a text, summed over the tokens that are asked for."""
        mesh, tokens, cut = self.mesh, text.shape[-1], {"data": S(-2), "context": S(-1)}
        where = self.where(tokens)
        labels, counts = next_tokens(text, documents_of(tokens, self.packed))
        ordered = [arranged(tf.constant(one), where, -1) for one in (text, labels)]
        counts = arranged(tf.constant(counts * asked), where, -1)
        if self.gathered:
            counts, ordered[1] = tf.constant(asked), tf.constant(labels)
        text, labels = (spread_out(one, cut, mesh) for one in ordered)
        counts = spread_out(tf.cast(counts, params[0].parts[0].dtype), cut, mesh)
        logits = self.logits(params, text, where)
        if self.gathered:
            logits = logits.move("context", S(-2), R)
            logits = logits.each(partial(restored, where=where, dim=-2))
            logits = logits.move("context", R, S(-2))
        losses = logits.each([partial(cross_entropy, y=own) for own in labels.parts])
        mean = mean_loss("context", losses, counts)
        of_data = asked.reshape(size_of(mesh, "data"), -1).sum(1)
        times = [of_data[place_of(mesh, rank)["data"]] for rank in range(mesh.count)]
        return mean.each([partial(multiplied, by=int(n)) for n in times])


def multiplied(x: tf.Tensor, by: float) -> tf.Tensor:
    """Return x times a number."""
    return x * tf.cast(by, x.dtype)


def with_context(params: Variables, devices: list[str], **how: Any) -> Training:
    """Start a training of a block whose tokens the devices share."""
    mesh = mesh_of(devices, "context")
    long, held = Long(mesh, **how), held_on(mesh, params, [{}] * len(params))
    return training_of(held, long.losses, "context", long.rows_of)


def turned_alone(x: tf.Tensor) -> tf.Tensor:
    """Turn (tokens, sequences, heads, 2) by the tokens' positions: one pair a head."""
    angles = tf.range(x.shape[0], dtype=tf.float64)[:, None, None]
    cos, sin = (tf.cast(f(angles), x.dtype) for f in (tf.cos, tf.sin))
    a, b = x[..., 0], x[..., 1]
    return tf.stack([a * cos - b * sin, a * sin + b * cos], -1)


def normed_alone(x: tf.Tensor, gain: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
    """Normalize the last axis."""
    off = x - tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(off * off, -1, keepdims=True)
    return off / tf.sqrt(variance + 1e-5) * gain + shift


def seen_alone(tokens: int, packed: bool) -> np.ndarray:
    """Return which tokens each token looks at, from the documents' lengths."""
    seen = np.tril(np.ones((tokens, tokens), bool))
    if packed:
        first = documents_of(tokens, True)[0]
        seen[first:, :first] = False
    return seen


def block_alone(x: tf.Tensor, *params: tf.Tensor, packed: bool = False) -> tf.Tensor:
    """Return a block's output on one device; its heads have two numbers."""
    gain, shift, Q, K, V, out, gain2, shift2, A, B = params
    h = normed_alone(x, gain, shift)
    q, k, v = (tf.einsum("tnd,dhs->tnhs", h, W) for W in (Q, K, V))
    scores = tf.einsum("tnhs,unhs->nhtu", turned_alone(q), turned_alone(k))
    scores /= 2**0.5
    seen = tf.constant(seen_alone(x.shape[0], packed))
    weights = tf.nn.softmax(tf.where(seen, scores, scores.dtype.min))
    x += tf.einsum("nhtu,unhs,hsd->tnd", weights, v, out)
    hidden = tf.nn.gelu(tf.einsum("tnd,dh->tnh", normed_alone(x, gain2, shift2), A))
    return x + tf.einsum("tnh,hd->tnd", hidden, B)


def logits_alone(text: tf.Tensor, packed: bool, params: Sequence) -> tf.Tensor:
    """Return the logits (sequences, tokens, words) on one device."""
    E, *block, last, to = params
    x = block_alone(tf.gather(E, tf.transpose(text)), *block, packed=packed)
    return tf.einsum("tnd,vd->ntv", normed_alone(x, last, to), E)


def text_alone(
    text: tf.Tensor, asked: tf.Tensor, packed: bool, params: Sequence
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Return the summed loss of a text on one device, and its gradients."""
    with tf.GradientTape() as tape:
        tape.watch(params)
        logits, labels = logits_alone(text, packed, params), tf.roll(text, -1, -1)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.reduce_sum(each * tf.cast(asked, each.dtype))
    return loss, [*map(tf.convert_to_tensor, tape.gradient(loss, params))]


text_in_graph = tf.function(text_alone, autograph=False)  # a graph for each length


def long_reference(
    X: tf.Tensor, y: tf.Tensor, params: Variables, packed: bool
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Return the summed loss of the tokens that are asked for, and its gradients."""
    loss, sums = 0.0, [0.0] * len(params)
    held = [p.value() for p in params]
    for text, places, _ in by_text(X):
        asked = text_of(np.bincount(places, minlength=len(text)))
        own = tf.constant(text_of(text)), tf.constant(asked)
        more, grads = text_in_graph(*own, packed, held)
        loss, sums = loss + more, [a + b for a, b in zip(sums, grads, strict=True)]
    return loss, sums


def long_drawn(samples: int, seed: int, packed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return rows that ask for so many tokens of one text, and their labels."""
    rng, ends = np.random.default_rng(seed), 1 + packed
    tokens = -(-samples // SEQUENCES) + ends
    text = rng.integers(0, WORDS, (SEQUENCES, tokens))
    labels, counts = next_tokens(text, documents_of(tokens, packed))
    places = np.flatnonzero(counts.ravel())[:samples]
    whole = np.broadcast_to(text.ravel(), (samples, text.size))
    return np.column_stack([whole, places]), labels.ravel()[places]


LONG_CASES = (Case(2, 12), Case(3, 7, 2), Case(4, 9), Case(1, 3, 2))


def long_subject(
    name: str, way: str = "zigzag", packed: bool = True, gathered: bool = False
) -> Subject:
    """Return the subject of a block whose tokens ranks share."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) / 2 for shape in LONG_SHAPES.values()]
    start = partial(with_context, way=way, packed=packed, gathered=gathered)
    reference = partial(long_reference, packed=packed)
    drawn = partial(long_drawn, packed=packed)
    about = {"name": name, "names": [*LONG_SHAPES], "cases": LONG_CASES}
    about |= {"rule": "sgd", "hyperparameters": {}}
    return of_variables(start, reference, weights, drawn, LR, **about)


def in_zigzag(name: str) -> Subject:
    """Return the subject of a ring in zigzag order, with packed documents."""
    return long_subject(name, "zigzag")


def by_all_gather(name: str) -> Subject:
    """Return that of an all-gather, whose logits are put in order again."""
    return long_subject(name, "all-gather", packed=False, gathered=True)


def by_all_to_all(name: str) -> Subject:
    """Return that of an all-to-all, with packed documents."""
    return long_subject(name, "all-to-all")


# Experts: a layer between the rows of a table and a linear layer.

IDS, DIM, HIDDEN, CLASSES, PADDING = 40, 3, 4, 5, 0
RATE, STRENGTH = 0.2, 0.5
ON_BOTH = {"data": S(-2), "expert": S(-2)}
FLAGS = {"data": S(-1), "expert": S(-1)}


class Experts(NamedTuple):
    """How ranks share experts and tokens.

    Attributes:
        mesh: with the axes `data` and `expert`.
        k: the experts of each token.
        capacity: seats per expert and rank; 0: nothing is dropped.
        balance: "bias", "loss" or "".
    """

    mesh: Mesh
    k: int
    capacity: int
    balance: str

    def places(self, tokens: int) -> list[np.ndarray]:
        """Return the places of each rank's tokens."""
        cut = np.array_split(np.arange(tokens), size_of(self.mesh, "data"))
        ranks = [np.array_split(own, size_of(self.mesh, "expert")) for own in cut]
        return sum(ranks, [])

    def rows_of(self, X: tf.Tensor) -> list[list[int]]:
        """Return the rows of a batch of one text that each rank computes with."""
        ((text, places, _),) = by_text(X)
        own = self.places(len(text))
        return [np.flatnonzero(np.isin(places, mine)).tolist() for mine in own]

    def losses(
        self, params: list[Spread], X: tf.Tensor, y: tf.Tensor, loads: list
    ) -> Iterator[Spread]:
        """Yield the summed loss of each text; note how many tokens each expert got."""
        for text, places, rows in by_text(X):
            labels = np.zeros(len(text), int)
            labels[places] = np.asarray(y)[rows]
            asked = np.bincount(places, minlength=len(text))
            yield self.loss(params, text, labels, asked, loads)

    def loss(self, params: list[Spread], text, labels, asked, loads: list) -> Spread:
        """Return the loss of a text, summed over the tokens that are asked for."""
        E, router, A, B, W, bias = params
        mesh, dtype = self.mesh, E.parts[0].dtype
        ids, labels = (spread_out(tf.constant(t), FLAGS, mesh) for t in (text, labels))
        weights = spread_out(tf.cast(asked, dtype), FLAGS, mesh)
        real = spread_out(tf.constant(text != PADDING), FLAGS, mesh)
        x = E.each([partial(tf.gather, indices=own) for own in ids.parts])
        pushed = fixed(bias) if self.balance == "bias" else None
        layer = partial(expert_layer, capacity=self.capacity)
        layer = layer if self.capacity else dropless_layer
        h = layer("expert", x, router, A, B, k=self.k, real=real, bias=pushed)
        own = zip(labels.parts, weights.parts, strict=True)
        loss = (h @ W).each([partial(loss_of, labels=y, weights=w) for y, w in own])
        chosen = fixed(
            x.each(partial(choose_experts, k=self.k), router, *given(pushed))
        )
        if self.balance == "loss":
            aux = balance_loss(x, router, chosen, ["data", "expert"], real)
            loss = loss + aux * (STRENGTH * int(asked.sum()))
        elif self.balance == "bias":
            loads.append(loads_of(chosen, real, bias.parts[0].shape[0], dtype))
        return loss


def fixed(one: Spread) -> Spread:
    """Return a Spread without its backward pass."""
    return Spread(one.mesh, one.parts, one.send)


def given(*optional: Spread | None) -> list[Spread]:
    """Return those that aren't None."""
    return [one for one in optional if one is not None]


def loss_of(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Return the weighted sum of the tokens' losses."""
    return tf.reduce_sum(cross_entropy(logits, labels) * weights)


def loads_of(chosen: Spread, real: Spread, experts: int, dtype) -> Spread:
    """Return how many real tokens of all ranks chose each expert."""
    count = partial(expert_load, experts=experts, dtype=dtype)
    return summed(chosen.each(count, real), {})


def with_experts(
    params: Variables, devices: list[str], k: int, capacity: int, balance: str
) -> Training:
    """Start a training of a layer of experts, which the devices share."""
    mesh = mesh_of(devices, "expert")
    letters = [{}, {}, {"expert": S(-3)}, {"expert": S(-3)}, {}]
    letters.append({"data": I, "expert": I})  # all ranks push the bias alike
    held, experts = held_on(mesh, params, letters), Experts(mesh, k, capacity, balance)
    loads: list[Spread] = []

    def losses(params: list[Spread], X: tf.Tensor, y: tf.Tensor) -> Iterator[Spread]:
        loads.clear()
        return experts.losses(params, X, y, loads)

    def push() -> None:
        for rank, own in enumerate(held.parts):
            if loads:
                counts = tf.add_n([one.parts[rank][0] for one in loads])
                with tf.device(mesh.device(rank)):
                    own[-1].assign(pushed_bias(own[-1].value(), counts, RATE))

    return training_of(held, losses, "", experts.rows_of, push)


def kept_alone(chosen: np.ndarray, real: np.ndarray, shape: tuple, capacity: int):
    """Return which choices find a seat, where ranks of this shape share the tokens."""
    kept = np.repeat(real[:, np.newaxis], chosen.shape[1], 1)
    ends = np.array_split(np.arange(len(chosen)), shape[0])
    for own in (one for half in ends for one in np.array_split(half, shape[1])):
        seats = dict.fromkeys(range(chosen.max(initial=0) + 1), capacity or len(chosen))
        for t in own[real[own]]:
            for i, expert in enumerate(chosen[t]):
                kept[t, i] = seats[expert] > 0
                seats[expert] -= 1
    return kept


def answers_alone(
    x: tf.Tensor, chosen: tf.Tensor, router: tf.Tensor, A: tf.Tensor, B: tf.Tensor,
    kept: tf.Tensor | None = None,
) -> tf.Tensor:  # fmt: skip
    """Return x plus the answers of the chosen experts, on one device.

    kept: which choices are answered; None for all.
    """
    gates = tf.nn.softmax(tf.gather(x @ router, chosen, batch_dims=1))
    if kept is not None:
        gates *= tf.cast(kept, x.dtype)
    answers = tf.nn.gelu(tf.einsum("td,edh->teh", x, A))
    answers = tf.gather(tf.einsum("teh,ehd->ted", answers, B), chosen, batch_dims=1)
    return x + tf.reduce_sum(answers * gates[..., tf.newaxis], 1)


def experts_alone(
    text: tf.Tensor,
    labels: tf.Tensor,
    asked: tf.Tensor,
    chosen: tf.Tensor,
    kept: tf.Tensor,
    strength: float,
    params: Sequence,
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Return the summed loss of a text on one device, and its gradients.

    chosen: each token's experts. kept: which choices are answered.
    """
    with tf.GradientTape() as tape:
        tape.watch(params)
        E, router, A, B, W = params
        x, real = tf.gather(E, text), text != PADDING
        logits = answers_alone(x, chosen, router, A, B, kept) @ W
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        if strength:  # each token's part of the auxiliary loss
            experts, dtype = router.shape[-1], x.dtype
            load = tf.reduce_sum(tf.one_hot(chosen[real], experts, dtype=dtype), [0, 1])
            load /= tf.cast(tf.size(chosen[real]), dtype)
            likely = tf.nn.softmax(x @ router)
            each += strength * experts * tf.reduce_sum(load * likely, 1)
        loss = tf.reduce_sum(each * tf.cast(asked, x.dtype))
    return loss, [*map(tf.convert_to_tensor, tape.gradient(loss, params))]


experts_in_graph = tf.function(experts_alone, autograph=False)


def push_alone(chosen: np.ndarray, experts: int) -> np.ndarray:
    """Return by how much a bias moves, from the choices of real tokens."""
    load = np.bincount(chosen.ravel(), minlength=experts)
    sign = np.sign(load.mean() - load)
    return RATE * (sign - sign.mean())


def experts_reference(
    X: tf.Tensor,
    y: tf.Tensor,
    params: Variables,
    k: int,
    capacity: int,
    balance: str,
    shape: tuple[int, int],
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Return the summed loss, and its gradients.

    That of the bias is no gradient, but moves it as its rule does.
    """
    *held, bias = (p.value() for p in params)
    loss, sums, push = 0.0, [0.0] * len(held), np.zeros(bias.shape)
    for text, places, rows in by_text(X):
        scores = (tf.gather(held[0], text) @ held[1]).numpy()
        by = scores + bias.numpy() if balance == "bias" else scores
        chosen = np.argsort(-by, axis=1, kind="stable")[:, :k]
        real, labels = text != PADDING, np.zeros(len(text), int)
        labels[places] = np.asarray(y)[rows]
        asked = np.bincount(places, minlength=len(text))
        kept = kept_alone(chosen, real, shape, capacity)
        own = map(tf.constant, (text, labels, asked, chosen, kept))
        strength = STRENGTH if balance == "loss" else 0.0
        more, grads = experts_in_graph(*own, strength, held)
        loss, sums = loss + more, [a + b for a, b in zip(sums, grads, strict=True)]
        if balance == "bias":
            push -= push_alone(chosen[real], bias.shape[0]) / LR * len(rows)
    return loss, [*sums, tf.cast(push, bias.dtype)]


def experts_drawn(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows that ask for all real tokens of one text, and a class for each."""
    rng = np.random.default_rng(seed)
    tokens = samples + (samples + 1) // 2
    text = rng.permutation(np.arange(1, IDS))[:tokens]
    text[: 3 * (tokens - samples) : 3] = PADDING
    places = np.flatnonzero(text != PADDING)
    whole = np.broadcast_to(text, (samples, tokens))
    return np.column_stack([whole, places]), rng.integers(0, CLASSES, samples)


EXPERT_CASES = (Case(2, 6), Case(4, 8), Case(3, 7, 2), Case(1, 3, 2))
EXPERT_NAMES = ("E", "router", "A", "B", "W", "bias")


def experts_subject(
    name: str, k: int = 2, capacity: int = 0, balance: str = "bias", experts: int = 5
) -> Subject:
    """Return the subject of a layer of experts.

    Where choices are dropped, it depends on the number of ranks which: so there are
    four.
    """
    rng, devices = np.random.default_rng(0), 4 if capacity else 1
    shapes = [
        (IDS, DIM),
        (DIM, experts),
        (experts, DIM, HIDDEN),
        (experts, HIDDEN, DIM),
    ]
    weights = [rng.normal(size=shape) for shape in [*shapes, (DIM, CLASSES)]]
    bias = rng.normal(size=experts)
    weights.append(bias - bias.mean())
    how = {"k": k, "capacity": capacity, "balance": balance}
    start = partial(with_experts, **how)
    reference = partial(experts_reference, **how, shape=SHAPES[devices])
    about = {"name": name, "names": EXPERT_NAMES, "rule": "sgd", "hyperparameters": {}}
    about["cases"] = [c for c in EXPERT_CASES if not capacity or c.devices == devices]
    if capacity:
        about |= {"least_devices": devices, "most_devices": devices}
    return of_variables(start, reference, weights, experts_drawn, LR, **about)


def without_drops(name: str) -> Subject:
    """Return the subject of a dropless layer that a bias balances."""
    return experts_subject(name)


def with_drops(name: str) -> Subject:
    """Return that of a layer with one seat per expert and rank, and a balance loss."""
    return experts_subject(name, capacity=1, balance="loss")
