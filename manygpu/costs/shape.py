"""A transformer's shape: its parameters, its FLOPs, and what a layer keeps."""

from __future__ import annotations

from typing import NamedTuple

from manygpu.checks import check_count


class Kept(NamedTuple):
    """Bytes that a layer keeps of a token for its backward pass, by who shares them.

    Attributes:
        whole: norms' inputs, what enters a pair of products, masks of dropout: each
            layerwise device has them of all tokens, unless tokens are cut too.
        shared: what has heads or inner numbers; layerwise devices share it out.
        scores: attention's, also shared out by heads. They are gone where attention is
            computed again, or never writes them (FlashAttention).
    """

    whole: float
    shared: float
    scores: float


class Products(NamedTuple):
    """The same, where only results of matrix products and of attention are kept."""

    whole: float
    shared: float


class Shape(NamedTuple):
    """A transformer, without biases and norms: Llama's kind, or GPT's.

    Attributes:
        layers, hidden, inner: how many, and how wide.
        tied: one matrix embeds and, turned round, gives the logits.
        vocabulary, sequence: words that are known; tokens of a sample.
        heads: of attention.
        kv_heads: heads that keys and values have; None: as many as queries.
        head: numbers in each; None: they share `hidden`.
        gated: SwiGLU, whose inner numbers are made twice, and no dropout (Llama); else
            GELU and dropout (GPT).
    """

    layers: int
    hidden: int
    inner: int
    tied: bool
    vocabulary: int = 131_072
    sequence: int = 4096
    heads: int = 32
    kv_heads: int | None = None
    gated: bool = True
    head: int | None = None

    @property
    def attended(self) -> int:
        """Numbers of a token's queries, and of attention's result."""
        return self.heads * self.head if self.head else self.hidden

    @property
    def grouped(self) -> float:
        """The share of queries' heads that keys and values have.

        Raises TypeError or ValueError unless `kv_heads` divide `heads`.
        """
        own = self.heads if self.kv_heads is None else self.kv_heads
        if check_count("heads", self.heads) % check_count("kv_heads", own):
            raise ValueError(f"kv_heads must divide the {self.heads} heads, got {own}")
        return own / self.heads

    @property
    def layer(self) -> int:
        """Parameters of a layer's matrices."""
        attention = 2 * self.hidden * self.attended * (1 + self.grouped)
        return round(attention) + (2 + self.gated) * self.hidden * self.inner

    @property
    def embedding(self) -> int:
        """Parameters of a matrix of the vocabulary."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """Parameters of all matrices."""
        return self.layers * self.layer + (2 - self.tied) * self.embedding

    def flops(self, tokens: int) -> float:
        """FLOPs of a step, as MFU counts them: all of the attention, no recomputing."""
        matrices = 6 * (self.layers * self.layer + self.embedding)
        return tokens * (matrices + 12 * self.layers * self.hidden * self.sequence)

    @property
    def attention(self) -> float:
        """The share of a layer's forward FLOPs that its scores take, all of them."""
        scores = 4 * self.sequence * self.hidden
        return scores / (scores + 2 * self.layer)

    @property
    def kept(self) -> Kept:
        """What a layer keeps of a token, in numbers of 16 bits, masks of 8.

        The count of Korthikanti et al. (arXiv:2205.05198, section 4.1), taken apart by
        tensors, so that other kinds of layers can be counted too: for GPT's it gives
        their 10 and 24 bytes a hidden number. Two norms' inputs; what enters both
        pairs; queries, keys, values and attention's result; GELU's input and result,
        or SwiGLU's two inputs, what the gate lets pass, and the product.
        """
        h, masks = self.hidden, 0 if self.gated else 2
        whole = (4 + 4 + masks) * h
        shared = (4 + 4 * self.grouped) * self.attended + (
            8 if self.gated else 4
        ) * self.inner
        # Softmax's result, its mask, and what dropout leaves; without it the first one.
        scores = (2 if self.gated else 5) * self.heads * self.sequence
        return Kept(whole, shared, scores)

    @property
    def products(self) -> Products:
        """What a layer keeps of a token where all else is computed again.

        The layer's input, and the product behind attention; queries, keys, values and
        attention's result; what the MLP's first products give. PyTorch's selective
        checkpointing can keep this, and JAX's `dots_with_no_batch_dims_saveable` keeps
        all of it but attention's result.
        """
        shared = (4 + 4 * self.grouped) * self.attended
        return Products(4 * self.hidden, shared + (2 + 2 * self.gated) * self.inner)
