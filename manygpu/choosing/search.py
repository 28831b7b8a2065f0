"""All layouts of a setting that an engine has, forecast: the best ones, and why.

A formula forecasts an array of layouts at once, so even thousands take milliseconds.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from manygpu.choosing import engines, forecast, residuals
from manygpu.choosing.question import OPTIMIZERS, Model, Setting, divisors
from manygpu.costs.layout import ALL, ATTENTION, NOTHING, Layout

# Ways to share the work out, the simplest first, and the chapters that build them.
WAYS = {
    "one device": ("start/one-device",),
    "data": ("data-parallel/many-devices", "engine/mirrored-strategy"),
    "ZeRO 1": ("splitting/sharded-state",),
    "ZeRO 2": ("splitting/sharded-state",),
    "ZeRO 3": ("splitting/sharded-state",),
    "ZeRO 3 in each node": ("splitting/sharded-state", "splitting/mesh-layout"),
    "layerwise": ("splitting/layerwise", "splitting/transformer"),
    "layerwise, ZeRO 3": ("splitting/hybrid-meshes", "splitting/sharded-state"),
    "pipeline": ("splitting/pipeline", "splitting/running-a-pipeline"),
    "layerwise and pipeline": ("splitting/hybrid-meshes",),
}
# How simple each is, in that order: a stage of ZeRO is a number in a file.
STEPS_UP = np.array([0, 1, 2, 2, 2, 3, 4, 5, 6, 7])
NONE = ("splitting/recomputation", "beyond/sixteen-thousand")  # where nothing fits
ALSO = {
    "float16": "engine/mixed-precision",
    "micro-batches": "data-parallel/gradient-accumulation",
    "recompute": "splitting/recomputation",
    "mesh": "splitting/mesh-layout",
}
NEAR = 1.05  # a plan this much worse than the best one is as good, if it is simpler
SAME = 1.005  # so little decides nothing: what is simpler hides what is not
TIE = 1 + 1e-9  # but for rounding
SHOWN = 3


class Reason(NamedTuple):
    """A question about a setting, and its answer."""

    question: str
    answer: str


LARGE = Reason(
    "Which of them is the best?",
    f"there is no ranking of plans for more than {residuals.MANY} GPUs: runs there "
    "interleave stages and cut sequences, which isn't counted here, and networks carry "
    "less than they should; take a published configuration first",
)
PARTIAL = Reason(
    "What isn't counted?",
    "engines can recompute a part of each layer, or only every second one; then ZeRO 3 "
    "may be faster than here. And layerwise was slower than forecast where both were "
    "measured",
)
CUT = Reason(
    "Are samples so long left whole?",
    "runs of this kind cut the sequence over devices (context parallelism), which is "
    "not counted here",
)
LONG = 2**15  # tokens

FLOAT16 = Reason(
    "Why not fit on several replicas?",
    "these devices have float16 only; there Keras asks replica 0 alone whether a step "
    "is skipped, so an overflow on another one reaches the weights",
)


class Option(NamedTuple):
    """A plan that may be taken.

    Attributes:
        plan: the layout.
        way: a key of `WAYS`.
        seconds, memory, dollars: forecast of a step, of the fullest device, of a step.
        low, high: seconds between which published steps of this kind would lie.
        engine, line: who has it, and what you write.
    """

    plan: Layout
    way: str
    seconds: float
    memory: float
    dollars: float
    low: float
    high: float
    engine: str
    line: str


class Choice(NamedTuple):
    """What to take, and why.

    Attributes:
        options: the simplest of those that are `NEAR` the best, then the best ones of
            other ways; none where nothing fits.
        reasons: what was compared.
        chapters: that show how to build the first option, as paths in the book.
    """

    options: tuple[Option, ...]
    reasons: tuple[Reason, ...]
    chapters: tuple[str, ...]

    @property
    def plan(self) -> Layout | None:
        """The layout of the first option."""
        return self.options[0].plan if self.options else None


# Every layout that can be.


def layouts(setting: Setting, counts: Sequence[int] | None = None) -> Layout:
    """All layouts of this setting that an engine has, an array a field.

    Args:
        setting: says what there is.
        counts: of devices; None for all that a plan may take.
    """
    counts = setting.machine.counts() if counts is None else tuple(counts)
    model, gpus = setting.model, setting.machine.cluster.gpus
    layers = model.layers if model.cut else 1
    parts = model.stored.scores > 0  # attention may be computed again alone
    found = _layouts(counts, gpus, setting.batch, layers, widths(model, gpus), parts)
    has = engines.has_one(setting, found, setting.engines)
    return Layout(*(field[has] for field in found))


def widths(model: Model, gpus: int) -> tuple[int, ...]:
    """How many devices of a node may share a layer: what divides heads and widths."""
    if model.shape is None:
        return (1,)
    whole = math.gcd(model.shape.heads, model.shape.inner)
    return tuple(t for t in divisors(gpus) if whole % t == 0)


@functools.lru_cache(maxsize=256)
def _layouts(
    counts: tuple[int, ...],
    gpus: int,
    batch: int,
    layers: int,
    wide: tuple[int, ...],
    parts: bool,
) -> Layout:
    """See `layouts`."""
    rows, micro_batches = [], []
    again = (NOTHING, ATTENTION, ALL) if parts else (NOTHING, ALL)
    pieces = functools.cache(lambda share, even: _pieces(share, even))
    for n, t in itertools.product(counts, wide):
        if n % t:
            continue
        for p in divisors(n // t):
            data = n // (t * p)
            even = batch % data == 0
            if p > layers or batch < data or not (even or t == p == 1):
                continue
            for zero, copies in _shared(n, t, p, gpus, even):
                for recompute in again:
                    own = pieces(-(-batch // data), even)
                    rows.append((n, t, p, zero, copies, recompute))
                    micro_batches.append(own[own >= p])  # else stages stand idle
    lengths = [len(each) for each in micro_batches]
    table = np.array(rows, dtype=int).reshape(-1, 6)
    n, t, p, zero, copies, recompute = np.repeat(table, lengths, axis=0).T
    m = np.concatenate([np.array([], dtype=int), *micro_batches])
    return Layout(n, t, p, m, zero, copies, recompute)


def _shared(n: int, t: int, p: int, gpus: int, even: bool) -> Iterator[tuple[int, int]]:
    """What may be shared out instead of copied, and in how many copies."""
    yield 0, 1
    if n == t * p or not even:
        return
    yield 1, 1
    if p == 1:
        yield from ((2, 1), (3, 1)) if t == 1 else ((3, 1),)
        if t == 1 and n > gpus > 1:
            yield 3, n // gpus


def _pieces(share: int, even: bool) -> np.ndarray:
    """In how many micro-batches a replica may take its samples."""
    if even:
        return np.array(divisors(share))
    sizes = [share, *(2**k for k in range((share - 1).bit_length()))]
    return np.unique([-(-share // size) for size in sizes])


def way_of(layout: Layout) -> int | np.ndarray:
    """How a layout shares the work out, as a place in `WAYS`."""
    names = list(WAYS)
    cut = np.where(layout.stages > 1, names.index("pipeline"), 0)
    both = (layout.layerwise > 1) & (layout.stages > 1)
    sharded = np.where(layout.copies > 1, 5, 1 + layout.zero)
    alone = np.where(layout.devices > 1, sharded, 0)
    layerwise = names.index("layerwise") + (layout.zero == 3)
    one = np.where(layout.layerwise > 1, layerwise, alone)
    return np.where(both, len(names) - 1, np.where(cut > 0, cut, one))[()]


# The best of them.


class Forecasts(NamedTuple):
    """Layouts that fit, and what they take: an array a field."""

    layouts: Layout
    seconds: np.ndarray
    memory: np.ndarray
    dollars: np.ndarray


def forecasts(setting: Setting) -> Forecasts:
    """What each layout takes that fits this setting's machine, whatever the goal."""
    return _forecasts(replace(setting, goal="time"))


@functools.lru_cache(maxsize=64)
def _forecasts(setting: Setting) -> Forecasts:
    """See `forecasts`; found once for all goals."""
    found = layouts(setting)
    memory = forecast.memory(setting, found)
    fits = memory <= setting.machine.usable
    found = Layout(*(field[fits] for field in found))
    taken = forecast.seconds(setting, found)
    dollars = forecast.dollars(setting, found.devices, taken)
    return Forecasts(found, taken, memory[fits], dollars)


def scores(setting: Setting, found: Forecasts) -> np.ndarray:
    """What the goal wants least of: seconds, dollars, or devices and then seconds.

    The seconds of "fits" are made a share of a device, below 1.
    """
    if setting.goal == "time":
        return found.seconds
    if setting.goal == "money":
        return found.dollars
    return found.layouts.devices + found.seconds / (1 + found.seconds)


def best(setting: Setting) -> Layout | None:
    """The plan that serves the goal best, however complicated; None if none fits."""
    found = forecasts(setting)
    score = scores(setting, found)
    return found.layouts.at(int(score.argmin())) if len(score) else None


def ranked(setting: Setting) -> list[int]:
    """Places in `forecasts`: the simplest that is near the best, then other ways' best.

    Simple is what is few `STEPS_UP`, and of that what recomputes nothing.
    """
    found = forecasts(setting)
    score = scores(setting, found)
    if not len(score):
        return []
    ways = way_of(found.layouts)
    simple = STEPS_UP[ways]
    near = np.flatnonzero(score <= NEAR * score.min())
    order = np.lexsort((score[near], found.layouts.recompute[near], simple[near]))
    first = _fewest_pieces(found, score, int(near[order[0]]))
    others = [np.flatnonzero(ways == way) for way in np.unique(ways)]
    tops = [int(each[score[each].argmin()]) for each in others]
    tops = [_fewest_pieces(found, score, i) for i in tops]
    kept = [first]
    for i in sorted(tops, key=lambda i: score[i]):
        simpler = (j for j in kept if simple[j] <= simple[i])
        if not any(score[j] <= SAME * score[i] for j in simpler):
            kept.append(i)
    return kept


def _fewest_pieces(found: Forecasts, score: np.ndarray, i: int) -> int:
    """The plan like this one, and no worse, that has the fewest micro-batches.

    Where a pass costs what its samples cost, as it does of a model that was measured,
    pieces of any size are as fast.
    """
    plans, same = found.layouts, score <= TIE * score[i]
    for name in ("devices", "layerwise", "stages", "zero", "copies", "recompute"):
        field = getattr(plans, name)
        same = same & (field == field[i])
    among = np.flatnonzero(same)
    return int(among[plans.micro_batches[among].argmin()])


def choose(setting: Setting) -> Choice:
    """Which plans serve the goal, why, what they take, and where they are built.

    A pure function: nothing is measured, nothing is looked up. What it forecasts is as
    good as `setting.machine.rate` and the links, so measure those two.
    """
    options = tuple(_option(setting, i) for i in ranked(setting)[:SHOWN])
    why = reasons(setting, options)
    return Choice(options, why, chapters_of(options, float16=FLOAT16 in why))


def _option(setting: Setting, i: int) -> Option:
    """The plan at a place of the forecasts."""
    found = forecasts(setting)
    plan = found.layouts.at(i)
    way = list(WAYS)[way_of(plan)]
    taken = [float(of[i]) for of in found[1:]]
    likely = [taken[0] * factor for factor in residuals.likely(setting, plan)]
    return Option(
        plan, way, *taken, *likely, *engines.engine_of(setting, plan, setting.engines)
    )


def chapters_of(options: Sequence[Option], float16: bool = False) -> tuple[str, ...]:
    """The chapters that build a plan's parts, its way first.

    Args:
        options: the first one is the plan.
        float16: whether replicas have to agree on the steps that are skipped.
    """
    if not options:
        return NONE
    plan = options[0].plan
    mesh = plan.data > 1 and plan.layerwise * plan.stages > 1
    many = plan.micro_batches > 1 and plan.stages == 1
    wanted = {"mesh": mesh, "micro-batches": many, "recompute": plan.recompute}
    wanted["float16"] = float16
    also = [ALSO[name] for name, needed in wanted.items() if needed]
    return tuple(dict.fromkeys((*WAYS[options[0].way], *also)))


# Why.


def reasons(setting: Setting, options: Sequence[Option]) -> tuple[Reason, ...]:
    """What was asked on the way, answered with this setting's numbers."""
    fits = _whole_replica(setting)
    shape = setting.model.shape
    cut = (CUT,) if shape is not None and shape.sequence >= LONG else ()
    if not options:
        return (fits, _nothing(setting), *cut)
    found = [fits, _how_many(setting)]
    data = options[0].plan.data
    if setting.batch % data:
        found.append(_uneven(setting.batch, data))
    if options[0].plan.devices > residuals.MANY:
        found += [LARGE, *_published(setting)]
    else:
        found.append(_simplest(setting, options[0]))
    if _unsafe_fit(setting, options[0]):
        found.append(FLOAT16)
    if shape is not None and _computes_again(options):
        found.append(PARTIAL)
    return (*found, *cut)


def _published(setting: Setting) -> tuple[Reason, ...]:
    """A step that somebody published of this model, if there is one."""
    step = residuals.published(setting)
    if step is None:
        return ()
    plan = step.layout.words.partition(": ")[2]
    batch = f"a batch of {step.setting.batch:,} x {step.setting.model.shape.sequence:,}"
    said = f"{step.name}: {plan}; {step.seconds:.3g} s a step of {batch} tokens"
    return (Reason("What was published?", said),)


def _computes_again(options: Sequence[Option]) -> bool:
    """Whether a plan recomputes all, or the first one cuts layers to need it less."""
    again = any(option.plan.recompute == ALL for option in options)
    return again or options[0].plan.layerwise > 1


def _unsafe_fit(setting: Setting, first: Option) -> bool:
    """Whether `fit` would do, or do on all devices, if it weren't for float16."""
    if not engines.in_float16(setting):
        return False
    asked = setting.engines == ("Keras",) and setting.machine.cluster.gpus > 1
    plan = first.plan
    return asked or plan.devices > 1 and bool(engines.fit_shaped(setting, plan))


def _whole_replica(setting: Setting) -> Reason:
    """Whether one device can hold the state, and one sample's activations."""
    need = forecast.memory(setting, Layout(1, 1, 1, setting.batch, recompute=ALL))
    usable = setting.machine.usable
    said = f"{need / 1e9:.3g} GB at least, of {usable / 1e9:.3g} GB that may be filled"
    word = "yes" if need <= usable else "no"
    return Reason("Does a whole replica fit on one device?", f"{word}: {said}")


def _nothing(setting: Setting) -> Reason:
    """What helps where nothing fits."""
    question = "Does it fit on all devices together?"
    if setting.engines:
        free = replace(setting, engines=())
        if found := ranked(free):
            plan = forecasts(free).layouts.at(found[0])
            name, _ = engines.engine_of(free, plan)
            said = f"not with {' and '.join(setting.engines)}; {name} has {plan.words}"
            return Reason(question, said)
    model = setting.model
    said = [f"no: not even all {setting.machine.cluster.count} hold it"]
    for name, state in sorted(OPTIMIZERS.items(), key=lambda item: -item[1]):
        if state < model.state:
            other = replace(setting, model=replace(model, state=state))
            found = ranked(other)
            plan = forecasts(other).layouts.at(found[0]).words if found else "neither"
            said.append(f"with {name}, {state:g} bytes a parameter: {plan}")
    said.append(
        "else LoRA, which trains few parameters; state in the host's memory; a smaller "
        "batch, shorter samples, more devices"
    )
    return Reason(question, "; ".join(said))


def _how_many(setting: Setting) -> Reason:
    """What the best plans of one device, half of them and all take."""
    found, counts, said = forecasts(setting), setting.machine.counts(), []
    half = max(n for n in counts if n <= max(1, counts[-1] // 2))
    for n in sorted({1, half, counts[-1]}):
        of = np.flatnonzero(found.layouts.devices == n)
        if len(of):
            i = of[found.seconds[of].argmin()]
            taken = _taken(found, i)
        elif len(layouts(setting, [n]).devices):
            taken = "doesn't fit"
        else:
            taken = f"no engine shares a batch of {setting.batch} so"
        said.append(f"{n}: {taken}")
    return Reason("How many devices?", "; ".join(said))


def _taken(found: Forecasts, i: int) -> str:
    """Seconds of a plan, and dollars if they are known, in words."""
    cents = 100 * found.dollars[i]
    return f"{found.seconds[i]:.3g} s" + f" and {cents:.3g} cents" * bool(cents)


def _uneven(batch: int, data: int) -> Reason:
    """Which batches replicas divide that don't divide this one."""
    batches = sorted({batch // data * data, -(-batch // data) * data})
    said = " or ".join(map(str, batches))
    return Reason(
        f"Do {data} replicas divide the batch?",
        f"no: {batch} leaves {batch % data}; with {said}, all are as busy",
    )


def _simplest(setting: Setting, first: Option) -> Reason:
    """How far the first option is from the best one."""
    question = "Is there a better one?"
    found = forecasts(setting)
    score = scores(setting, found)
    i = int(score.argmin())
    top = found.layouts.at(i)
    if top == first.plan:
        return Reason(question, "no, this is the best of all")
    if first.seconds <= SAME * found.seconds[i]:
        return Reason(question, "none that is half a percent better")
    gained = 1 - score[i] / score[ranked(setting)[0]]
    said = f"{top.words}: {_taken(found, i)}, {gained:.1%} better and less simple"
    return Reason(question, said)
