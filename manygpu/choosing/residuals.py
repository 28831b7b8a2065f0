"""How far `choose`'s forecasts are from steps that others measured and published.

No formula is fitted to them: each step is asked as a reader would ask it, with the
GPU's rate of the table, and what was measured is divided by what is forecast. Those
ratios give a forecast its range (`likely`), and a factor for each way to share the work
out (`usual`). `own` has steps that this book measured on one GPU. Their seconds are
apart: a forecast's range is of the published ones, so the own ones can say whether it
holds. (From them is only how much faster an H200 is than an H100.)
"""

from __future__ import annotations

import csv
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from manygpu import records
from manygpu._files import data_folder
from manygpu.choosing import asking, forecast, presets, tables
from manygpu.choosing.question import OPTIMIZERS, Setting
from manygpu.costs.layout import ALL, NOTHING, SELECTIVE, Layout, Number
from manygpu.costs.shape import Shape
from manygpu.tables import spread

DATA = data_folder(
    "choosing/data",
    "dataparallel.csv",
    "fms.csv",
    "kempner.csv",
    "korthikanti.csv",
    "llama3.csv",
    "megatron*.csv",
    "mosaicml.csv",
    "nemo.csv",
    "one_gpu.csv",
    "torchtitan.csv",
)
AGAIN = {"none": NOTHING, "selective": SELECTIVE, "full": ALL}
AGAIN |= {"selective op": SELECTIVE, "": NOTHING}
# Between machines, where a table doesn't say; and GPUs of one.
NETWORK = {"v100": "InfiniBand HDR", "a100": "InfiniBand HDR"}
NETWORK |= {"h100": "InfiniBand NDR", "h200": "InfiniBand NDR", "rtx": "Ethernet 100G"}
# The cards of our own rows, as they call themselves.
CARDS = {"NVIDIA H100 80GB HBM3": "h100", "NVIDIA H200": "h200"}
KINDS = ("transformers", "images", "measured")
# How rows of `manygpu bench` share the work out; pieces are of a batch.
PIECES = 8
ROWS: dict[str, Callable[[int], Layout]] = {
    "engine": Layout,
    "fit": Layout,
    "accumulation": lambda k: Layout(k, micro_batches=PIECES),
    "recomputation": lambda k: Layout(k, recompute=ALL),
    "network": lambda k: Layout(k, stages=k),
    "pipeline": lambda k: Layout(k, stages=k, micro_batches=PIECES),
}
FEW, ENOUGH = 5, 8
# GPUs: up to so many, forecasts are about as good as on one machine (`by_size`).
MANY = 64
# And up to so many, ways are compared: above, ZeRO 3 takes ever longer (`ways`).
COMPARED = 256
SIZES = (8, 64, 256, 1024, 10**6)
NEAR = 0.25
MIDDLE = (10, 90)  # percent: a range that four of five steps lie in
Row = dict[str, str]
Spread = tuple[float, float, float]


class PublishedStep(NamedTuple):
    """A published step.

    Attributes:
        table: who published it.
        name: the model, and on what.
        setting, layout: how it ran.
        seconds: measured.
        held: bytes at its fullest moment, measured; None where nobody says it.
        compiled: where the table says it.
    """

    table: str
    name: str
    setting: Setting
    layout: Layout
    seconds: float
    held: float | None = None
    compiled: bool | None = None

    @property
    def ratio(self) -> float:
        """Measured over forecast."""
        return self.seconds / float(forecast.seconds(self.setting, self.layout))

    @property
    def held_ratio(self) -> float | None:
        """The same of its memory."""
        said = float(forecast.memory(self.setting, self.layout))
        return None if self.held is None else self.held / said

    @property
    def corrected(self) -> float:
        """Measured over what `choose` prints: the forecast times the usual factor."""
        return self.ratio / float(usual(self.setting, self.layout))

    @property
    def expected(self) -> bool:
        """Whether its seconds lie in the range that `choose` prints."""
        low, high = likely(self.setting, self.layout)
        return low <= self.ratio <= high


@functools.cache
def steps() -> tuple[PublishedStep, ...]:
    """All published steps that a setting and a layout can say."""
    return tuple(
        step
        for name, read in TABLES.items()
        for row in _rows(name)
        for step in read(name, row)
    )


@functools.cache
def large() -> tuple[PublishedStep, ...]:
    """Those on more than `MANY` GPUs."""
    return tuple(step for step in steps() if step.layout.devices > MANY)


def published(setting: Setting) -> PublishedStep | None:
    """The step of `large` of this model, or one of its shape, that is nearest.

    On the most similar number of devices, and of those the shortest; None if there is
    no such step.
    """
    shape, devices = setting.model.shape, setting.machine.cluster.count

    def apart(step: PublishedStep) -> tuple[float, float]:
        n = step.layout.devices
        return max(n / devices, devices / n), step.seconds

    near = [step for step in large() if _alike(step.setting.model.shape, shape)]
    return min(near, key=apart, default=None)


def _alike(a: Shape | None, b: Shape | None) -> bool:
    return bool(a and b) and (a.layers, a.hidden) == (b.layers, b.hidden)


def kind(setting: Setting) -> str:
    """What a setting's numbers are from: one of `KINDS`."""
    if setting.model.shape is not None:
        return "transformers"
    named = tables.named(setting.model.name, tables.models())
    return "images" if named else "measured"


@functools.cache
def ratios(kind_of: str) -> np.ndarray:
    """Measured over forecast, of all steps of a kind."""
    return np.array([step.ratio for step in _of_kind(kind_of)])


@functools.cache
def _of_kind(kind_of: str) -> tuple[PublishedStep, ...]:
    found = kept() if kind_of == "measured" else steps()
    return tuple(step for step in found if kind(step.setting) == kind_of)


@functools.cache
def _sorts(kind_of: str) -> list[tuple[tuple, int]]:
    """Way and size of each step of a kind."""
    return [_sort(step.setting, step.layout) for step in _of_kind(kind_of)]


def by_table() -> list[tuple[str, int, float, float, float, float]]:
    """Of each table: steps, median ratio, and those that a tenth lies below and above.

    At last the median error if the table's rate were known: its ratios over the median.
    """
    rows = []
    for table in TABLES:
        own = np.array([step.ratio for step in steps() if step.table == table])
        low, middle, high = np.percentile(own, (MIDDLE[0], 50, MIDDLE[1]))
        apart = float(np.median(np.abs(own / middle - 1)))
        rows.append((table, len(own), float(middle), float(low), float(high), apart))
    return rows


def by_size() -> list[tuple[str, int, float, float, float, float]]:
    """By the number of GPUs: steps, share that is `NEAR` what is printed, three ratios.

    The ratios are measured over printed seconds: the median, and those that a tenth
    lies below and above.
    """
    rows, least = [], 1
    for most in SIZES:
        found = [s for s in steps() if least <= s.layout.devices <= most]
        own = np.array([step.corrected for step in found])
        near = float(np.mean(np.abs(own - 1) <= NEAR))
        low, middle, high = np.percentile(own, (MIDDLE[0], 50, MIDDLE[1]))
        name = f"{least:,} to {most:,}" if most < SIZES[-1] else f"{least:,} and more"
        rows.append((name, len(own), near, float(middle), float(low), float(high)))
        least = most + 1
    return rows


def likely(setting: Setting, layout: Layout) -> tuple[float, float]:
    """Factors of a forecast between which four of five measured steps lie.

    They are steps of this kind of model, and as long as there are `ENOUGH`, that share
    the work out in this way, on as many devices: in one machine, in several, or more
    than `MANY`.
    """
    return _likely(kind(setting), *_sort(setting, layout))


def usual(setting: Setting, layout: Layout) -> Number:
    """The factor from a forecast to what steps of this kind and way usually take.

    It lies between those of `likely`, so what is forecast lies in its own range: the
    median of the kind, times what the way is worth (`ways`). Way and size may be
    arrays, for many layouts at once.
    """
    way, size = _sort(setting, layout)
    parts = np.broadcast_arrays(*way, size)
    code = sum(np.asarray(part, int) << i for i, part in enumerate(parts))
    counts, where = np.unique(code, return_inverse=True)
    found = [_usual(kind(setting), *_decoded(int(one))) for one in counts]
    return np.array(found)[where].reshape(np.shape(code))[()]


def _decoded(code: int) -> tuple[tuple, int]:
    """Way and size of a number that has three bits for the way."""
    return tuple(bool(code >> i & 1) for i in range(3)), code >> 3


@functools.cache
def _usual(kind_of: str, way: tuple, size: int) -> float:
    low, high = _likely(kind_of, way, size)
    middle = float(np.median(ratios(kind_of)))
    return float(np.clip(middle * ways(kind_of).get(way, 1.0), low, high))


@functools.cache
def ways(kind_of: str) -> dict[tuple, float]:
    """How much longer steps of each way take than others, beside their forecasts.

    Tables are of other engines, years and models, so two ways are compared only inside
    of a table: the logarithm of a table's median for a way is the table's own number,
    plus the way's; least squares finds both. The median way is worth 1, and so is each
    of which there are fewer than `FEW` steps, on up to `COMPARED` GPUs.
    """
    few = [step for step in _of_kind(kind_of) if step.layout.devices <= COMPARED]
    sorts = [_sort(step.setting, step.layout)[0] for step in few]
    cells: dict[tuple, list[float]] = {}
    for step, way in zip(few, sorts, strict=True):
        if sorts.count(way) >= FEW:
            cells.setdefault((step.table, way), []).append(step.ratio)
    tables_, found = ([*dict.fromkeys(c[i] for c in cells)] for i in (0, 1))
    if len(found) < 2 or len(tables_) < 2:
        return dict.fromkeys(found, 1.0)
    matrix = np.array([
        [*(table == t for t in tables_), *(way == w for w in found)]
        for table, way in cells
    ], dtype=float)  # fmt: skip
    medians = [np.log(np.median(own)) for own in cells.values()]
    numbers = np.linalg.lstsq(matrix, medians, rcond=None)[0][len(tables_) :]
    worth = np.exp(numbers - np.median(numbers))
    return dict(zip(found, worth.tolist(), strict=True))


def likely_held(setting: Setting) -> tuple[float, float]:
    """Factors of forecast bytes between which four of five measured steps lie.

    Few tables say bytes, so the steps of this book count as well.
    """
    return _likely_held(kind(setting))


@functools.cache
def _likely_held(kind_of: str) -> tuple[float, float]:
    measured = [s for s in (*steps(), *own()) if s.held is not None]
    of_kind = [s for s in measured if kind(s.setting) == kind_of]
    found = of_kind if len(of_kind) >= ENOUGH else measured
    low, high = np.percentile([step.held_ratio for step in found], MIDDLE)
    return float(low), float(high)


@functools.cache
def _likely(kind_of: str, way: tuple, size: int) -> tuple[float, float]:
    found, sorts = ratios(kind_of), _sorts(kind_of)
    asked = [sort[0] == way for sort in sorts], [sort == (way, size) for sort in sorts]
    for own in asked:
        found = ratios(kind_of)[own] if sum(own) >= ENOUGH else found
    low, high = np.percentile(found, MIDDLE)
    return float(low), float(high)


def _sort(setting: Setting, layout: Layout) -> tuple[tuple, int]:
    """What is cut and shared out, and how large the cluster is."""
    way = layout.zero == 3, layout.layerwise > 1, layout.stages > 1
    n = layout.devices
    size = np.add(n > setting.machine.cluster.gpus, n > MANY, dtype=int)
    return way, size[()]


@functools.cache
def own() -> tuple[PublishedStep, ...]:
    """Steps that `experiments/one_gpu.py` measured: one GPU, PyTorch, 16 bits."""
    return tuple(_own(row) for row in _rows("one_gpu") if not row["cannot"])


def by_card() -> list[tuple[str, int, int, Spread, Spread]]:
    """Of `own`: card and kind, steps, how many lie in the range, seconds and memory.

    Those two are measured over forecast: median, least and most.
    """
    rows, own_steps = [], own()
    for card, kind_of in itertools.product(CARDS.values(), KINDS[:2]):
        some = [
            step
            for step in own_steps
            if step.name.endswith(card) and kind(step.setting) == kind_of
        ]
        seconds = spread([step.ratio for step in some])
        held = spread([step.held_ratio for step in some])
        inside = sum(step.expected for step in some)
        rows.append((f"{card}, {kind_of}", len(some), inside, seconds, held))
    return rows


@functools.cache
def kept() -> tuple[PublishedStep, ...]:
    """Steps that `manygpu bench` measured, on machines whose records are kept.

    A record says its model's rate and link, by one device and by data parallel steps by
    hand; those aren't asked again.
    """
    return tuple(of_bench(records.measured()))


def of_bench(measured: Iterable[records.Measured]) -> Iterator[PublishedStep]:
    """Rows of `manygpu bench`, as far as a setting and a layout can say them."""
    for one in measured:
        layout = ROWS.get(one.row)
        if layout:
            setting = asking.setting_of(one.asked)
            name, cut = f"{setting.model.name}, {one.row}", layout(one.devices)
            yield PublishedStep(one.record, name, setting, cut, one.seconds)


def _rows(name: str) -> list[Row]:
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _setting(
    row: Row, model: dict, gpu: str, batch: int, each: int = 8, **given: float
) -> Setting:
    """A setting from a row's GPUs, `each` in a machine."""
    gpus = int(row["gpus"])
    nodes = int(row.get("nodes") or max(1, -(-gpus // each)))
    machine = asking.of_gpu(tables.gpu(gpu), model, gpus // nodes, nodes)
    machine |= {"gpus": gpus // nodes, "nodes": nodes, "batch": batch} | given
    if nodes > 1:
        machine["across"] = NETWORK[gpu.partition("-")[0]]
    return asking.setting_of(model | machine)


def _shape(row: Row, **more: int) -> dict:
    """A model from a row with a shape; GPT's kind, if it doesn't say."""
    hidden = int(row["hidden"])
    size = {"layers": int(row["layers"]), "hidden": hidden, "inner": 4 * hidden}
    size |= {name: int(row[name]) for name in ("heads", "vocabulary", "sequence")}
    size |= {"tied": True, "gated": False} | more
    return asking.values_of(presets.of_shape(row.get("model", "GPT"), Shape(**size)))


def _data_parallel(table: str, row: Row) -> Iterator[PublishedStep]:
    """Plain copies of models that the table of models has, in one machine."""
    known = tables.named(row["model"], tables.models())
    if known is None or row["nodes"] != "1" or not row["batch_per_gpu"]:
        return
    tokens = int(row["sequence"]) if row["sequence"] else None
    model = asking.values_of(presets.known_model(known, tokens))
    m = int(row["accumulation"] or 1)
    batch = int(row["gpus"]) * int(row["batch_per_gpu"]) * m
    setting = _setting(row, model, row["gpu"], batch, launch=0.0)
    layout = Layout(int(row["gpus"]), micro_batches=m)
    name = f"{row['model']}, {row['gpus']} {row['gpu']}, {row['engine']}"
    yield PublishedStep(table, name, setting, layout, batch / float(row["per_second"]))


def _mosaicml(table: str, row: Row) -> Iterator[PublishedStep]:
    """FSDP, all sizes, 16 bits."""
    if row["precision"] != "amp_bf16":
        return
    batch, gpus = int(row["batch"]), int(row["gpus"])
    m = int(row["accumulation"])
    setting = _setting(row, _shape(row), row["gpu"], batch)
    layout = Layout(gpus, micro_batches=m, zero=3, recompute=AGAIN[row["recompute"]])
    taken = batch * int(row["sequence"]) / gpus / float(row["tokens_per_second_gpu"])
    yield PublishedStep(
        table, f"{row['model']}, {gpus} {row['gpu']}", setting, layout, taken
    )


def _torchtitan(table: str, row: Row) -> Iterator[PublishedStep]:
    """FSDP with layerwise and stages, compiled, 16 bits, the sequence whole."""
    if row["precision"] != "bf16" or row["cp"] != "1" or row["compiled"] != "1":
        return
    gpus, batch, sequence = (int(row[n]) for n in ("gpus", "batch", "sequence"))
    model, gpu = asking.of_model(row["model"], sequence), row["gpu"].partition("-")[0]
    setting = _setting(row, model, gpu, batch)
    t, p = int(row["tp"]), int(row["pp"])
    m = int(row["local_batch"]) if p > 1 else 1
    again = AGAIN[row["recompute"]]
    layout = Layout(gpus, t, p, m, 3 * (p == 1), recompute=again)
    taken = batch * sequence / gpus / float(row["tokens_per_second_gpu"])
    held = float(row["memory_gib"]) * 2**30 if row["memory_gib"] else None
    name = f"{row['model']}, {gpus} {row['gpu']}"
    yield PublishedStep(table, name, setting, layout, taken, held)


def _kempner(table: str, row: Row) -> Iterator[PublishedStep]:
    """FSDP against layerwise, on few H200."""
    if row["compiled"] != "1":
        return
    gpus, t = int(row["gpus"]), int(row["tp"])
    more = {"inner": int(row["inner"]), "kv_heads": int(row["kv_heads"])}
    model = _shape(row, **more, gated=True, tied=False)
    setting = _setting(row, model, "h200", int(row["batch"]))
    m, again = int(row["accumulation"] or 1), AGAIN[row["recompute"]]
    zero = 3 * (gpus > t)
    layout = Layout(gpus, t, int(row["pp"]), m, zero, recompute=again)
    taken = float(row["batch"]) * int(row["sequence"]) / float(row["tokens_per_second"])
    held = float(row["memory_gb"]) * 1e9 if row["memory_gb"] else None
    name = f"{row['model']}, {gpus} h200, tp {t}"
    yield PublishedStep(table, name, setting, layout, taken, held)


def _megatron(table: str, row: Row) -> Iterator[PublishedStep]:
    """Layerwise, stages and data; of Narayanan's second table ZeRO 3 as well."""
    gpus, batch, t, p = (int(row[name]) for name in ("gpus", "batch", "tp", "pp"))
    old = table == "megatron"
    gpu = "a100-80" if old else "h100"
    setting = _setting(row, _shape(row), gpu, batch)
    pieces = batch // int(row["dp"]) // int(row.get("micro_batch") or 1)
    zero = 3 if row.get("scheme") == "zero3" else 0 if old else 1
    again, chunks = ALL if old else NOTHING, int(row.get("pieces") or 1)
    layout = Layout(gpus, t, p, pieces, zero, recompute=again, chunks=chunks)
    model = setting.model
    # As they count FLOPs: a forward pass again, where all is recomputed.
    flops = (4 if old else 3) * model.flops * batch
    taken = flops / gpus / (float(row["tflops"]) * 1e12)
    name = f"{row['params_billion']} B, {gpus} {gpu}"
    yield PublishedStep(table, name, setting, layout, taken)


def _llama3(table: str, row: Row) -> Iterator[PublishedStep]:
    """Llama 3's largest, as far as no sequence was cut: each sample is a micro-batch.

    Its replicas share out the optimizer's state and gradients, and its stages are
    interleaved: the first chunk has the embedding alone, the last one the logits, so a
    chunk is one layer (arXiv:2407.21783, 3.3.2). Its time is from its FLOP/s, by this
    book's count of FLOPs.
    """
    if row["cp"] != "1":
        return
    gpus, batch = int(row["gpus"]), int(row["batch"])
    model = asking.of_model(f"llama-3-{row['model']}", int(row["sequence"]))
    setting = _setting(row, model, "h100", batch)
    pieces = batch // int(row["dp"])
    t, p = int(row["tp"]), int(row["pp"])
    chunks = (int(row["layers"]) + 2) // p
    layout = Layout(gpus, t, p, pieces, 2, chunks=chunks)
    taken = 3 * setting.model.flops * batch / gpus / (float(row["tflops"]) * 1e12)
    name = f"{setting.model.name}, {gpus} h100"
    yield PublishedStep(table, name, setting, layout, taken)


def _own(row: Row) -> PublishedStep:
    """A model of a shape, or one of the table of models, on one GPU of ours."""
    known = tables.named(row["model"], tables.models())
    model = asking.values_of(presets.known_model(known)) if known else None
    if model is None:
        size = {"inner": int(row["inner"]), "gated": row["gated"] == "1"}
        model = _shape(row, **size)
    else:
        model["state"] = OPTIMIZERS["momentum"]
    gpu, m = CARDS[row["card"]], int(row["accumulation"])
    setting = _setting(row | {"gpus": "1"}, model, gpu, int(row["micro_batch"]) * m)
    layout = Layout(1, micro_batches=m, recompute=AGAIN[row["recompute"]])
    held, compiled = float(row["peak_gb"]) * 1e9, row["compiled"] == "1"
    name = f"{row['model']} {row['hidden']}".strip() + f", 1 {gpu}"
    seconds = float(row["seconds"])
    return PublishedStep("one_gpu", name, setting, layout, seconds, held, compiled)


TABLES: dict[str, Callable[[str, Row], Iterator[PublishedStep]]] = {
    "dataparallel": _data_parallel,
    "mosaicml": _mosaicml,
    "torchtitan": _torchtitan,
    "kempner": _kempner,
    "megatron": _megatron,
    "megatron_h100": _megatron,
    "llama3": _llama3,
}
