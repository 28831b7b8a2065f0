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

from manygpu.choosing import advised, engines, forecast, residuals, words
from manygpu.choosing.question import OPTIMIZERS, Model, Setting, divisors
from manygpu.costs import seconds as costs
from manygpu.costs.layout import ALL, ATTENTION, NOTHING, SELECTIVE, Layout

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
    "interleaved": "splitting/smaller-bubble",
}
NEAR = 1.05  # a plan this much worse than the best one is as good, if it is simpler
DRAW = 1.01  # and so little is less than it is worth to have more room
SAME = 1.005  # so little decides nothing: what is simpler hides what is not
TIE = 1 + 1e-9  # but for rounding
SHOWN = 3
CHUNKS = 8  # of a device: more shorten a bubble hardly, and send as often again
TIGHT = 0.15  # of a device's memory: less is no room for what nobody counts


class Reason(NamedTuple):
    """A question about a setting, and its answer."""

    question: str
    answer: str


LARGE = Reason(
    "Which of them is the best?",
    f"this ranking is untested on more than {residuals.MANY} GPUs: there published "
    "steps are further from their forecasts; take a published configuration first",
)
CUT = Reason(
    "Are samples so long left whole?",
    "runs of this kind cut the sequence over devices (context parallelism), which is "
    "not counted here: see the book's page Long sequences",
)
LONG = 2**15  # tokens
NEAREST = "Which published configuration is nearest?"

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
        least, most: bytes between which measured steps of this kind would lie; `memory`
            is the formula's, or the nearer one of these.
        tight: `most` is within `TIGHT` of the device's memory, or above.
        engine, line: who has it, and what you write.
    """

    plan: Layout
    way: str
    seconds: float
    memory: float
    dollars: float
    low: float
    high: float
    least: float
    most: float
    tight: bool
    engine: str
    line: str


class Choice(NamedTuple):
    """What to take, and why.

    Attributes:
        options: the simplest of those that are `NEAR` the best (see `Scores`), then the
            best ones of other ways; none where nothing fits.
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
    wide, again = widths(model, gpus), levels(model)
    found = _layouts(counts, gpus, setting.batch, layers, wide, again)
    has = engines.has_one(setting, found, setting.engines)
    found = Layout(*(field[has] for field in found))
    fast = ~costs.queues(forecast.pieces(setting, found), found)
    return Layout(*(field[fast] for field in found))


def widths(model: Model, gpus: int) -> tuple[int, ...]:
    """How many devices of a node may share a layer: what divides heads and widths."""
    shape = model.shape
    if shape is None:
        return (1,)
    whole = math.gcd(shape.heads, shape.kv_heads or shape.heads, shape.inner)
    return tuple(t for t in divisors(gpus) if whole % t == 0)


def levels(model: Model) -> tuple[int, ...]:
    """What of a model may be computed again for the backward pass."""
    stored = model.stored
    some = [ATTENTION] * (stored.scores > 0)
    some += [SELECTIVE] * (stored.products is not None)
    return (NOTHING, *some, ALL)


@functools.lru_cache(maxsize=256)
def _layouts(
    counts: tuple[int, ...],
    gpus: int,
    batch: int,
    layers: int,
    wide: tuple[int, ...],
    again: tuple[int, ...],
) -> Layout:
    """See `layouts`."""
    rows, micro_batches = [], []
    pieces = functools.cache(lambda share, even: _pieces(share, even))
    for n, t in itertools.product(counts, wide):
        if n % t:
            continue
        for p in divisors(n // t):
            data = n // (t * p)
            even = batch % data == 0
            if p > layers or batch < data or not (even or t == p == 1):
                continue
            own = pieces(-(-batch // data), even)
            some = own[own >= p]  # else stages stand idle
            for chunks in _chunks(layers, p):
                turns = some if chunks == 1 else some[some % p == 0]
                shared = _shared(n, t, p, gpus, even)
                for (zero, copies), recompute in itertools.product(shared, again):
                    rows.append((n, t, p, zero, copies, recompute, chunks))
                    micro_batches.append(turns)
    lengths = [len(each) for each in micro_batches]
    table = np.array(rows, dtype=int).reshape(-1, 7)
    n, t, p, zero, copies, recompute, chunks = np.repeat(table, lengths, axis=0).T
    m = np.concatenate([np.array([], dtype=int), *micro_batches])
    return Layout(n, t, p, m, zero, copies, recompute, chunks)


def _chunks(layers: int, stages: int) -> list[int]:
    """Into how many runs each stage may be cut: equal ones, but for the ends.

    Megatron-LM can count embedding and loss as a layer each.
    """
    whole = next((n for n in (layers, layers + 2) if n % stages == 0), None)
    if stages == 1 or whole is None:
        return [1]
    return [v for v in divisors(whole // stages) if v <= CHUNKS]


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
    """Layouts that fit, and what they take: an array a field.

    Seconds are the formula's, times what steps of this kind usually take of it
    (`residuals.usual`).
    """

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
    taken = forecast.seconds(setting, found) * residuals.usual(setting, found)
    dollars = forecast.dollars(setting, found.devices, taken)
    return Forecasts(found, taken, memory[fits], dollars)


class Scores(NamedTuple):
    """What the goal wants least of, a number a plan: devices first, then the cost.

    Which plan is better, and by how much, is said here alone. A percentage is always
    one of seconds or of dollars, never one of devices.

    Attributes:
        devices: of each plan where the goal is "fits"; of the other goals all are 0.
        cost: seconds, or dollars where the goal is "money".
    """

    devices: np.ndarray
    cost: np.ndarray

    def best(self, among: np.ndarray | None = None) -> int:
        """The best one of these places; of all, if none are given."""
        among = np.arange(len(self.cost)) if among is None else among
        fewest = among[self.devices[among] == self.devices[among].min()]
        return int(fewest[self.cost[fewest].argmin()])

    def near(self, i: int, factor: float) -> np.ndarray:
        """Which plans are better than the one at a place, or worse by a factor at most.

        A plan on more devices is never near, whatever it costs.
        """
        as_many = self.devices == self.devices[i]
        close = as_many & (self.cost <= factor * self.cost[i])
        return (self.devices < self.devices[i]) | close

    def key(self, i: int) -> tuple[float, float]:
        """Sorts places, the best one first."""
        return float(self.devices[i]), float(self.cost[i])


def scores(setting: Setting, found: Forecasts) -> Scores:
    """What the goal wants least of: seconds, dollars, or devices and then seconds."""
    cost = found.dollars if setting.goal == "money" else found.seconds
    devices = found.layouts.devices
    return Scores(devices if setting.goal == "fits" else 0 * devices, cost)


def best(setting: Setting) -> Layout | None:
    """The plan that serves the goal best, however complicated; None if none fits."""
    found = forecasts(setting)
    score = scores(setting, found)
    return found.layouts.at(score.best()) if len(score.cost) else None


def simplicity(plans: Layout) -> tuple[int | np.ndarray, ...]:
    """How simple plans are, the smaller the simpler: compared as tuples are.

    Few `STEPS_UP` count first, then to recompute little, then to leave stages whole.
    """
    return STEPS_UP[way_of(plans)], plans.recompute, plans.chunks > 1


def ranked(setting: Setting) -> list[int]:
    """Places in `forecasts`: the simplest that is near the best, then other ways' best.

    Simple is what `simplicity` says. Of draws, the highest stage of ZeRO comes first,
    because it leaves most room.
    """
    found = forecasts(setting)
    score = scores(setting, found)
    if not len(score.cost):
        return []
    plans, keys = found.layouts, simplicity(found.layouts)
    near = np.flatnonzero(score.near(score.best(), NEAR))
    i = near[np.lexsort([score.cost[near], *(key[near] for key in reversed(keys))])[0]]
    alike = np.all([key[near] == key[i] for key in keys], axis=0)
    draws = near[alike & score.near(i, DRAW)[near]]
    most = draws[plans.zero[draws] == plans.zero[draws].max()]
    first = _fewest_pieces(found, score, score.best(most))
    ways, steps = way_of(plans), keys[0]
    ways_left = [way for way in np.unique(ways) if way != ways[first]]
    tops = [score.best(np.flatnonzero(ways == way)) for way in ways_left]
    tops = [_fewest_pieces(found, score, i) for i in tops]
    kept = [first]
    for i in sorted(tops, key=score.key):
        as_good = score.near(i, SAME)
        if not any(as_good[j] and steps[j] <= steps[i] for j in kept):
            kept.append(i)
    return kept


def _fewest_pieces(found: Forecasts, score: Scores, i: int) -> int:
    """The plan like this one, and no worse, that has the fewest micro-batches.

    Where a pass costs what its samples cost, as it does of a model that was measured,
    pieces of any size are as fast.
    """
    plans, same = found.layouts, score.near(i, TIE)
    for name in set(Layout._fields) - {"micro_batches"}:
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
    formula = float(forecast.seconds(setting, plan))
    ends = [formula * factor for factor in residuals.likely(setting, plan)]
    held = [taken[1] * factor for factor in residuals.likely_held(setting)]
    taken[1] = float(np.clip(taken[1], *held))
    tight = held[1] > (1 - TIGHT) * setting.machine.memory
    line = engines.engine_of(setting, plan, setting.engines)
    return Option(plan, way, *taken, *ends, *held, tight, *line)


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
    wanted |= {"float16": float16, "interleaved": plan.chunks > 1}
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
    found = []
    if options[0].plan.devices > residuals.MANY:
        found += [*_nearest(setting), LARGE]
    found += [fits, _how_many(setting)]
    data = options[0].plan.data
    if setting.batch % data:
        found.append(_uneven(setting.batch, data))
    if LARGE in found:
        found += _published(setting)
    else:
        found.append(_simplest(setting, options[0]))
    if _unsafe_fit(setting, options[0]):
        found.append(FLOAT16)
    found += _roomier(setting, options)
    found += _built(setting, options)
    return (*found, *cut)


def _nearest(setting: Setting) -> tuple[Reason, ...]:
    """The configuration in the table of advice that is most like this question."""
    one = advised.nearest(setting)
    if one is None:
        return ()
    c, shape = one.setting.machine.cluster, one.setting.model.shape
    batch = f"a batch of {one.setting.batch:,} x {shape.sequence:,} tokens"
    where = f"{one.name} on {c.count:,} {one.gpu}, {batch}"
    said = f"{where}: {one.said} ({one.kind}; {one.source})"
    return (Reason(NEAREST, said),)


def _roomier(setting: Setting, options: Sequence[Option]) -> tuple[Reason, ...]:
    """The best plan that isn't tight, if the first one is."""
    if not options[0].tight:
        return ()
    found = forecasts(setting)
    _, most = residuals.likely_held(setting)
    some = np.flatnonzero(most * found.memory <= (1 - TIGHT) * setting.machine.memory)
    asked = f"And if its memory's top, {words.size(options[0].most)}, is too much?"
    if not len(some):
        return (
            Reason(asked, "all plans here are tight: more devices leave more room"),
        )
    i = scores(setting, found).best(some)
    held = words.size(found.memory[i])
    said = f"{found.layouts.at(i).words}: {_taken(found, i)}, {held} a device"
    return (Reason(asked, said),)


def _built(setting: Setting, options: Sequence[Option]) -> tuple[Reason, ...]:
    """Whether a model must not be built whole on a device before it is sharded."""
    sharded = any(option.plan.zero == 3 for option in options)
    whole = 4 * setting.model.parameters  # as PyTorch builds it, in float32
    if not sharded or whole <= setting.machine.usable:
        return ()
    said = f"no: it takes {words.size(whole)} in float32, so build it on PyTorch's meta"
    asked = "Can each device build the whole model first?"
    return (Reason(asked, f"{said} device, and shard it before it is filled"),)


def _published(setting: Setting) -> tuple[Reason, ...]:
    """A step that somebody published of this model, if there is one."""
    step = residuals.published(setting)
    if step is None:
        return ()
    plan = step.layout.words.partition(": ")[2]
    batch = f"a batch of {step.setting.batch:,} x {step.setting.model.shape.sequence:,}"
    taken = words.seconds(step.seconds)
    said = f"{step.name}: {plan}; {taken} a step of {batch} tokens"
    return (Reason("What was published?", said),)


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
    said = f"{words.size(need)} at least, of {words.size(usable)} that may be filled"
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
        "not counted here: LoRA, which trains few parameters; state in the host's "
        "memory (offload); else a smaller batch, shorter samples, more devices"
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
    paid = found.dollars[i]
    said = words.seconds(found.seconds[i])
    return said + f" and {words.money(paid)}" * bool(paid)


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
    score, place = scores(setting, found), ranked(setting)[0]
    i = score.best()
    top = found.layouts.at(i)
    among = f" on {top.words.partition(':')[0]}" * (setting.goal == "fits")
    if top == first.plan:
        return Reason(question, f"no, this is the best of all{among}")
    gained = float(1 - score.cost[i] / score.cost[place])
    if gained < SAME - 1:
        return Reason(question, f"none{among} that is half a percent better")
    less_simple = simplicity(first.plan) < simplicity(top)
    but = " and less simple" if less_simple else ", but with less of ZeRO"
    said = f"{top.words}: {_taken(found, i)}, {gained:.1%} better{but}"
    return Reason(question, said)
