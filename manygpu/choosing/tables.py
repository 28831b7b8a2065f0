"""Models, GPUs and links that people ask for by name: dated tables, each with sources.

The tables are in `data/`, and that of links, which the simulator reads too, is in
`manygpu/simulate/data/`. Nothing is looked up when they are read: each row names the
day on which somebody read its source. What a row doesn't know is None, never a guess.
`prices.csv` is read by `manygpu.choosing.prices`; a GPU finds its rows there by the
name in its column `priced`.
"""

from __future__ import annotations

import csv
import datetime
import difflib
import functools
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from manygpu._files import data_folder
from manygpu.choosing.prices import Price, prices
from manygpu.simulate.cluster import TABLE, Link

DATA = data_folder("choosing/data", "models.csv", "gpus.csv")
RESNET_FLOPS = 8.178e9  # of an image: version 1.5, which was measured
APART = 1.1  # two rates of one chip: such a difference is that of the runs
KINDS = ("convolutional", "encoder", "decoder", "vision")
# How models of experts are called: none of them is in the table.
EXPERTS = re.compile(
    r"moe|mixtral|dbrx|gpt-?oss|deepseek-?v\d|kimi-?k\d|\dx\d+b|-a\d+b", re.IGNORECASE
)


class Known(NamedTuple):
    """A model: a transformer's shape, or what was counted of another one.

    Attributes:
        name: as it is asked for.
        kind: one of `KINDS`.
        layers: equal blocks; of the others, blocks of about the same work.
        hidden, inner: numbers a token between blocks, and inside an MLP.
        heads, kv_heads, head: attention heads, those for keys and values, numbers in
            each. A head needn't be `hidden / heads` wide.
        vocabulary: rows of the embedding; 0 for images.
        positions: rows of a learned table of positions; 0 without one.
        sequence: tokens of a sample in the usual training.
        tied: the head is the embedding's table.
        gated: an MLP has three matrices (SwiGLU), not two.
        beside: parameters in none of these: of a patch embedding, of a pooler.
        counted: parameters of a model that is no transformer.
        flops: of its forward pass, a sample.
        kept: bytes of float32 that it keeps for the backward pass, a sample.
        handed: bytes of float32 that a block hands on, a sample, on average.
        published: its parameters as others state them, perhaps rounded.
        published_source: where they do.
        source: of the shape; `"counted: ..."` says which Keras model was counted.
        date: the day it was read.
    """

    name: str
    kind: str
    layers: int
    hidden: int | None
    inner: int | None
    heads: int | None
    kv_heads: int | None
    head: int | None
    vocabulary: int | None
    positions: int | None
    sequence: int | None
    tied: bool | None
    gated: bool | None
    beside: int | None
    counted: int | None
    flops: int | None
    kept: int | None
    handed: int | None
    published: int
    published_source: str
    source: str
    date: datetime.date

    @property
    def transformer(self) -> bool:
        """It has a shape, and no counted numbers."""
        return self.hidden is not None

    @property
    def block(self) -> int:
        """Parameters of one block, without biases and norms: below 0.2% of it."""
        attention = 2 * self.head * (self.heads + self.kv_heads) * self.hidden
        return attention + (3 if self.gated else 2) * self.hidden * self.inner

    @property
    def parameters(self) -> int:
        """All of them: counted, or by the shape."""
        if not self.transformer:
            return self.counted
        tables = (1 if self.tied else 2) * self.vocabulary + self.positions
        return self.layers * self.block + tables * self.hidden + self.beside


class Gpu(NamedTuple):
    """A device.

    Attributes:
        name: as it is asked for.
        title: its maker's name for it.
        memory: bytes.
        peak: FLOP/s of 16-bit products with 32-bit sums, without sparsity; that of
            `single` where a GPU has no units for them.
        single: the same in float32, by TF32 where it has that.
        bandwidth: bytes a second of its memory.
        inside: the link to the others in its machine, a name of `links`.
        board: how many share one board, all joined by `inside`; None for a card.
        watts: at most; None where none was found.
        conv: FLOP/s that it reached in training a convolutional network.
        matmul: FLOP/s that it reached in training a transformer.
        product: FLOP/s of one large product alone: no training comes near it.
        conv_source, matmul_source: where these two were measured, and on what.
        priced: its name in `prices.csv`; None without a price.
        source: of what the data sheet says.
        date: the day it was read.
    """

    name: str
    title: str
    memory: float
    peak: float
    single: float
    bandwidth: float
    inside: str
    board: int | None
    watts: float | None
    conv: float | None
    conv_source: str
    matmul: float | None
    matmul_source: str
    product: float | None
    priced: str | None
    source: str
    date: datetime.date

    @property
    def sixteen(self) -> str:
        """The 16-bit numbers that its units know: bfloat16 came with TF32.

        Both came with the A100 (NVIDIA, Accelerating AI Training with TF32 Tensor
        Cores). With TF32 `single` is about half of `peak`, else about an eighth.
        """
        return "bfloat16" if self.halves and 4 * self.single > self.peak else "float16"

    @property
    def halves(self) -> bool:
        """Whether it has units that are faster with 16-bit numbers."""
        return self.peak > self.single

    @property
    def twins(self) -> tuple[Gpu, ...]:
        """Others with the same peak and links, and another rate: `APART` or more."""
        measured = [gpu for gpu in gpus() if gpu.matmul and self.matmul]
        own = self.peak, self.inside
        same = [gpu for gpu in measured if (gpu.peak, gpu.inside) == own]
        apart = [max(g.matmul, self.matmul) / min(g.matmul, self.matmul) for g in same]
        pairs = zip(same, apart, strict=True)
        return tuple(gpu for gpu, factor in pairs if factor >= APART)

    @property
    def prices(self) -> tuple[Price, ...]:
        """Its rows in the price table; `Price.devices` says how many come at once."""
        return tuple(price for price in prices() if price.device == self.priced)

    def rate(self, transformer: bool) -> tuple[float, str]:
        """FLOP/s that it reaches in training, and who says so.

        Where nobody has published it: the share of the peak that other GPUs reach, in
        the median.
        """
        kind = "matmul" if transformer else "conv"
        reached = getattr(self, kind)
        if reached:
            return reached, f"reached in training: {getattr(self, kind + '_source')}"
        others = [(getattr(gpu, kind), gpu.peak) for gpu in gpus()]
        share = statistics.median(rate / peak for rate, peak in others if rate)
        what = "transformers" if transformer else "convolutional networks"
        said = f"{share:.0%} of its data sheet's, as others reach with {what}"
        return share * self.peak, said

    @property
    def moved(self) -> float:
        """Bytes that training ResNet-50 moves here, for each that it keeps.

        A convolutional network's speed is that of the memory: this number is nearly the
        same on all GPUs, 14 to 19. Where nobody measured it, the median of the others.
        """
        net = model("resnet-50")
        if self.conv is None:
            known = [gpu.moved for gpu in gpus() if gpu.conv]
            return statistics.median(known)
        images = self.conv / (3 * RESNET_FLOPS)
        return self.bandwidth / images / (net.kept / 2)

    def image_rate(self, flops: float, kept: float) -> tuple[float, str]:
        """FLOP/s that it reaches with a convolutional network in 16 bits, and why.

        Args:
            flops, kept: of a sample's forward pass; bytes that it keeps.
        """
        products = 3 * flops / self.rate(transformer=True)[0]
        moving = self.moved * kept / self.bandwidth
        if products > moving:
            return 3 * flops / products, "its products take longer than its memory"
        said = "bound by memory: bytes are moved as for ResNet-50"
        return 3 * flops / moving, f"{said}, {self.rate(transformer=False)[1]}"

    def price(
        self, devices: int, terms: str = "on demand", together: int = 1
    ) -> Price | None:
        """The product that costs least for so many devices, rented whole.

        One can't rent three of a product of eight: all eight are paid. A product has
        `together` devices in a machine, if one has so many. None where no price is
        known.
        """
        asked = [price for price in self.prices if price.terms == terms]
        asked = [price for price in asked if price.devices >= together] or asked

        def cost(price: Price) -> float:
            return -(-devices // price.devices) * price.dollars_an_hour

        return min(asked, key=cost, default=None)


class Wire(NamedTuple):
    """A link; `manygpu.simulate.cluster.LINKS` has its latency and bandwidth.

    Attributes:
        name: as it is asked for.
        place: "inside" a machine or "across" machines.
        bandwidth: bytes a second in one direction, by the data sheet.
        latency: seconds; an order of magnitude, see its source.
        cards: of a usual machine; None inside.
        reached: bytes a second that collectives or copies reached.
        reached_source, source, latency_source: where each was read.
        date: the day it was read.
    """

    name: str
    place: str
    bandwidth: float
    latency: float
    cards: int | None
    reached: float | None
    reached_source: str
    source: str
    latency_source: str
    date: datetime.date

    @property
    def link(self) -> Link:
        """What messages reach; where nobody says it, as large a share as of others."""
        shares = [of.reached / of.bandwidth for of in links() if of.reached]
        share = statistics.median(shares)
        return Link(self.latency, self.reached or share * self.bandwidth)


def _whole(said: str) -> int:
    if not 0 <= (value := int(said)) < 1e15:
        raise ValueError("a whole number from 0")
    return value


def _number(said: str) -> float:
    if not 0 < (value := float(said)) < 1e30:
        raise ValueError("a number above 0")
    return value


def _flag(said: str) -> bool:
    return {"0": False, "1": True}[said]


def _one_of(*names: str) -> Callable[[str], str]:
    def read(said: str) -> str:
        if said not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return said

    return read


def _text(said: str) -> str:
    if not said:
        raise ValueError("some text")
    return said


NUMBERS = ("memory", "peak", "single", "bandwidth", "watts", "conv", "matmul")
NUMBERS += ("product", "latency", "reached")
TEXTS = ("name", "title", "priced", "source", "published_source", "latency_source")
TEXTS += ("inside",)
MAYBE = ("conv_source", "matmul_source", "reached_source")  # may be empty
# How each column is read; all others are whole numbers.
READERS: dict[str, Callable[[str], Any]] = dict.fromkeys(NUMBERS, _number)
READERS |= dict.fromkeys(TEXTS, _text) | dict.fromkeys(MAYBE, str)
READERS |= {"kind": _one_of(*KINDS), "place": _one_of("inside", "across")}
READERS |= {"tied": _flag, "gated": _flag, "date": datetime.date.fromisoformat}
# What a row may leave out; the rest is there in each.
SHAPE = ("hidden", "inner", "heads", "kv_heads", "head", "vocabulary", "positions")
SHAPE += ("sequence", "tied", "gated", "beside")
COUNTED = ("counted", "flops", "kept", "handed")
OPTIONAL = {*SHAPE, *COUNTED, "watts", "conv", "matmul", "product", "priced"}
OPTIONAL |= {"board", "cards", "reached"}


def read(file: Path, row_type: type) -> tuple[Any, ...]:
    """Return the rows of a table.

    Raises ValueError naming file, row and column: columns that aren't those of the
    type, a value that can't be, a name that stands twice.
    """
    with file.open(encoding="utf-8", newline="") as opened:
        lines = list(csv.reader(opened))
    if tuple(lines[0]) != row_type._fields:
        raise ValueError(
            f"{file.name} must have the columns {', '.join(row_type._fields)}, "
            f"got {', '.join(lines[0])}"
        )
    rows, seen = [], set()
    for number, line in enumerate(lines[1:], start=2):
        where = f"{file.name}, row {number} ({line[0] if line else 'empty'})"
        if len(line) != len(row_type._fields):
            count = len(row_type._fields)
            raise ValueError(f"{where} must have {count} values, got {len(line)}")
        values = zip(row_type._fields, line, strict=True)
        rows.append(row_type(*(_value(where, name, said) for name, said in values)))
        if rows[-1].name in seen:
            raise ValueError(f"{where}: this name stands twice")
        seen.add(rows[-1].name)
    return tuple(rows)


def _value(where: str, name: str, said: str) -> Any:
    if not said and name in OPTIONAL:
        return None
    try:
        return READERS.get(name, _whole)(said)
    except (ValueError, KeyError) as wrong:
        raise ValueError(f"{where}: {name} can't be {said!r} ({wrong})") from wrong


@functools.cache
def models(file: Path = DATA / "models.csv") -> tuple[Known, ...]:
    """All models; ValueError for one with half a shape, or a shape and counts."""
    rows = read(file, Known)
    for row in rows:
        parts = [[getattr(row, n) is None for n in names] for names in (SHAPE, COUNTED)]
        if any(parts[0]) != all(parts[0]) or any(parts[1]) != all(parts[1]):
            raise ValueError(f"{file.name} ({row.name}): something is left out")
        if all(parts[0]) == all(parts[1]):
            raise ValueError(f"{file.name} ({row.name}): give a shape or counts")
    return rows


@functools.cache
def gpus(file: Path = DATA / "gpus.csv") -> tuple[Gpu, ...]:
    """All GPUs; ValueError for a link or a price that isn't in its table."""
    rows = read(file, Gpu)
    names = {wire.name for wire in links()}
    priced = {price.device for price in prices()}
    for row in rows:
        if row.inside not in names:
            raise ValueError(f"{file.name} ({row.name}): no link {row.inside!r}")
        if row.priced and row.priced not in priced:
            raise ValueError(f"{file.name} ({row.name}): no price of {row.priced!r}")
        for what in ("conv", "matmul"):
            if (getattr(row, what) is None) == bool(getattr(row, f"{what}_source")):
                raise ValueError(f"{file.name} ({row.name}): {what} needs its source")
    return rows


@functools.cache
def links(file: Path = TABLE) -> tuple[Wire, ...]:
    """All links."""
    return read(file, Wire)


def model(name: str) -> Known:
    """The model of this name; ValueError names the nearest ones."""
    if EXPERTS.search(str(name)):
        raise ValueError(
            f"model must be one without experts, got {name!r}: sending tokens to "
            "experts isn't counted here; take a published configuration, and see the "
            "book's page Experts for the bytes"
        )
    more = "--layers, --hidden and --heads describe a transformer without a name"
    return _named("model", name, models(), more)


def gpu(name: str) -> Gpu:
    """The GPU of this name; ValueError names the nearest ones."""
    return _named("GPU", name, gpus())


def wire(name: str) -> Wire:
    """The link of this name; ValueError names the nearest ones."""
    return _named("link", name, links())


def named(name: str, rows: Iterable[Any]) -> Any | None:
    """A row by its name, however its letters and gaps are written; None if none."""
    return {_plain(row.name): row for row in rows}.get(_plain(name))


def _named(what: str, name: str, rows: Sequence[Any], more: str = "") -> Any:
    """A row by its name; ValueError names the nearest ones, and says `more`."""
    found = named(name, rows)
    if found:
        return found
    known = {_plain(row.name): row.name for row in rows}
    near = [key for key in known if _plain(name) and _plain(name) in key][:5]
    near = near or difflib.get_close_matches(_plain(name), known, n=3, cutoff=0.5)
    said = ", ".join(known[key] for key in near) or "nothing near it"
    raise ValueError(
        f"no {what} {name!r} is in the table; there is {said}; manygpu choose --list "
        "shows all" + f"; {more}" * bool(more)
    )


def _plain(name: str) -> str:
    return "".join(letter for letter in str(name).lower() if letter.isalnum())


def listed() -> list[str]:
    """The lines of `manygpu choose --list`: names, sizes, and the day of each table."""
    lines = [f"Models: parameters, blocks or layers (read {_days(models())})"]
    for row in models():
        said = f"{row.layers} blocks"
        if row.transformer:
            said = f"{row.layers} layers of {row.hidden}, {row.sequence} tokens"
        lines.append(f"  {row.name:<16} {_short(row.parameters, 'B'):>7}  {said}")
    lines += ["None is a mixture of experts: what goes to experts isn't counted here."]
    lines += ["", "GPUs: memory, 16-bit FLOP/s at most, reached in training conv nets"]
    lines += [f"and transformers where that was published (read {_days(gpus())})"]
    for row in gpus():
        rates = (row.peak, row.conv, row.matmul)
        said = "".join(f"{_short(rate) if rate else '-':>8}" for rate in rates)
        memory = _short(row.memory)
        lines.append(f"  {row.name:<16} {memory:>6}B{said}  {row.inside}")
    lines += ["", f"Links: bytes a second in one direction (read {_days(links())})"]
    lines += [
        f"  {row.name:<16} {_short(row.bandwidth):>7}B/s  {row.place}"
        for row in links()
    ]
    lines += ["", f"Prices: dollars an hour for one device (of {_days(prices())})"]
    for price in prices():
        whole = f", {price.devices} at once" * (price.devices > 1)
        said = f"{price.each:>7.2f}  {price.provider}, {price.terms}{whole}"
        lines.append(f"  {price.device:<16} {said}")
    return lines


def _days(rows: Iterable[Any]) -> str:
    days = sorted({row.date for row in rows})
    return str(days[0]) if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _short(value: float, billion: str = "G") -> str:
    """Three digits and a letter, as a data sheet writes it."""
    sizes = {"T": 1e12, billion: 1e9, "M": 1e6}
    letter = next((name for name, size in sizes.items() if value >= size), "M")
    value /= sizes[letter]
    return f"{value:.0f} {letter}" if value >= 100 else f"{value:.3g} {letter}"
