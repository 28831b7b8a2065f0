"""Does the closed formula rank? Each cell's fastest run among all that could be tried.

It beat what was tried beside it. So the formula should put it first, or nearly, among
the layouts of its cell (a model's size on a number of nodes) that fit, and say of its
neighbours, which differ by one switch, that they are slower. `fitted` finds the
constants; `score` says how well they rank, and how far their MFUs are off. `among_run`
has the same among those that really ran, by `experiments/ultrascale.py`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from manygpu.simulate import transformer
from manygpu.simulate.published import SERIES, Published, fitted_whole, read, runs
from manygpu.simulate.transformer import CONSTANTS, GIB, Hardware, Run

SEQUENCES = 256  # of a step: 2**20 tokens
FULL = 67.0  # GiB: of the runs that allocated more, most were late
LARGE, STAY, RANK = 0.05, 0.01, 0.5  # see `fitted`


class Field(NamedTuple):
    """A cell: its winner, and all layouts that fit, the winner first, as arrays."""

    row: Published
    runs: Run

    @property
    def winner(self) -> Field:
        """The winner alone."""
        columns = (column[:1] for column in self.runs[1:])
        return Field(self.row, Run(self.runs.shape, *columns))


def layouts(row: Published) -> list[Run]:
    """Layouts of as many GPUs that the sweep could have run, the winner first.

    Powers of two; the same tokens a step; at least as many micro-batches as stages but
    one, as its code demands; with and without ZeRO 1.
    """
    powers = [2**k for k in range(10)]
    found, shape, gpus = [row.run], row.run.shape, row.run.gpus
    for t, p, m in itertools.product(powers[:6], powers, powers):
        d = gpus // (t * p)
        if d * t * p != gpus or p > shape.layers or m < p - 1 or SEQUENCES % (d * m):
            continue
        if min(transformer.dealt_out(shape, p)) < 1:
            continue
        found += [Run(shape, d, t, p, m, SEQUENCES // (d * m), z) for z in (0, 1)[:d]]
    return list(dict.fromkeys(found))


@functools.cache
def fields() -> tuple[Field, ...]:
    """The cells; whether a layout fits is said by constants of the other sizes."""
    found = []
    for row in runs():
        rest = [other for other in runs() if other.size != row.size]
        whole = fitted_whole([r.run for r in rest], [r.memory for r in rest])
        tried = [
            run
            for run in layouts(row)
            if run == row.run or transformer.held(run, whole).total <= FULL * GIB
        ]
        columns = np.array([run[1:] for run in tried]).T
        found.append(Field(row, Run(row.run.shape, *columns)))
    return tuple(found)


def neighbours(runs: Run, won: Run) -> np.ndarray:
    """One switch away: the other ZeRO, or half or twice the micro-batches."""
    axes = "data", "layerwise", "stages"
    same = np.all([getattr(runs, axis) == getattr(won, axis) for axis in axes], axis=0)
    times = runs.accumulation / won.accumulation
    zero = runs.zero == won.zero
    return same & np.where(zero, (times == 2) | (times == 0.5), times == 1)


def seconds(hardware: Sequence[Hardware], among: Sequence[Field]) -> list[np.ndarray]:
    """What each cell's layouts take, with its own constants."""
    found: dict[int, np.ndarray] = {}
    keys = [(field.runs.shape, own) for field, own in zip(among, hardware, strict=True)]
    for shape, constants in set(keys):
        own = [i for i, key in enumerate(keys) if key == (shape, constants)]
        columns = [among[i].runs[1:] for i in own]
        joined = Run(shape, *map(np.concatenate, zip(*columns, strict=True)))
        taken = transformer.parts(joined, constants).seconds
        ends = np.cumsum([len(among[i].runs.data) for i in own])[:-1]
        found |= dict(zip(own, np.split(taken, ends), strict=True))
    return [found[i] for i in range(len(among))]


class Score(NamedTuple):
    """How well constants rank and predict; errors are shares.

    Attributes:
        ranks: of each cell's fastest run, among all layouts that fit.
        ties: the same, where only who is more than 2% faster counts.
        behind: how much faster each cell's favourite is said to be than that run.
        faster: neighbours that are said to be more than 2% faster; `of` so many.
        errors: of each cell's MFU.
    """

    ranks: list[int]
    ties: list[int]
    behind: list[float]
    faster: int
    of: int
    errors: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Of the errors, without signs."""
        return np.abs(self.errors)

    @property
    def row(self) -> tuple[int, int, int, float, float, float, float]:
        """Winners first, and among the first three; neighbours said to be faster.

        How much faster a favourite is said to be; median, mean, largest error of MFU.
        """
        sizes = (float(of(self.sizes)) for of in (np.median, np.mean, np.max))
        behind = float(np.mean(self.behind))
        return self.first(), self.first(3), self.faster, behind, *sizes

    def first(self, most: int = 1, tie: bool = False) -> int:
        """How many winners are among so many first ones."""
        return sum(rank <= most for rank in (self.ties if tie else self.ranks))


def score(hardware: Hardware | Sequence[Hardware]) -> Score:
    """How well constants, or those for each cell, rank its layouts."""
    if isinstance(hardware, Hardware):
        hardware = [hardware] * len(fields())
    taken = seconds(hardware, fields())
    ranks, ties, behind, errors, faster, of = [], [], [], [], 0, 0
    for field, own in zip(fields(), taken, strict=True):
        ranks.append(1 + int(np.sum(own < own[0] * (1 - 1e-9))))
        ties.append(1 + int(np.sum(own < own[0] / 1.02)))
        beside = own[neighbours(field.runs, field.row.run)]
        faster, of = faster + int(np.sum(beside < own[0] / 1.02)), of + len(beside)
        behind.append(float(own[0] / own.min() - 1))
        errors.append(field.row.seconds / own[0] - 1)
    return Score(ranks, ties, behind, faster, of, np.array(errors))


# What `among_run` has constants of.
PLAIN, HELD_OUT = "nothing fitted", "each size from the others"


class Ranked(NamedTuple):
    """A cell's fastest run among those that ran and should fit; seconds are a step's.

    Attributes:
        nodes, size: of the cell.
        tried, ran, ranked: how many layouts.
        second: how much longer the second fastest takes, a share.
        said: seconds of the fastest, forecast.
        rank, tie: by the forecast; the latter as in `Score`.
        lost: how much longer the forecast's favourite really takes, a share.
        neighbours, faster: that ran; that are said to be more than 2% faster.
        near: the share of all that ran whose forecast is at most a quarter off.
        late: how many of them take 1.5 times the forecast or more.
    """

    nodes: int
    size: float
    tried: int
    ran: int
    ranked: int
    second: float
    said: float
    rank: int
    tie: int
    lost: float
    neighbours: int
    faster: int
    near: float
    late: int


def among_run(constants: str = HELD_OUT) -> list[Ranked]:
    """The 26 cells among what ran: `experiments/ultrascale.py` wrote them."""
    rows = [row for row in read("cells") if row["constants"] == constants]
    return [Ranked(*(_number(row[name]) for name in Ranked._fields)) for row in rows]


class Late(NamedTuple):
    """Runs with so many stages that take 1.5 times the forecast or more.

    Attributes:
        stages, runs, late: how many.
        near: how many of the late ones are at most a quarter off, if each hand-over
            took the median of all. On one stage there is none; then this is None.
        low, middle, high: quartiles of the seconds that a hand-over must have taken.
    """

    stages: int
    runs: int
    late: int
    near: int | None
    low: float | None
    middle: float | None
    high: float | None


def late() -> list[Late]:
    """The late runs by stages: `experiments/ultrascale.py` wrote them."""
    return [Late(*map(_number, row.values())) for row in read("late")]


def _number(text: str) -> float | None:
    if not text:
        return None
    return int(text) if text.isdigit() else float(text)


def fitted(
    among: Sequence[Field],
    start: Hardware | None = None,
    names: Sequence[str] = tuple(CONSTANTS),
    rank: float = RANK,
) -> Hardware:
    """The hardware whose constants predict the winners' MFUs, and that they win.

    An error is the logarithm of a predicted MFU over the one reached; and `rank`
    times the logarithm of a winner's seconds over those of the cell's favourite. Where
    the playbook's layerwise series is of one of the sizes, its ratios are fitted too.
    Errors below `LARGE` count as squares, larger ones as they are, so that no single
    run rules. Where nothing says otherwise, constants stay near `start`: the mean
    square of how far they moved, in powers of e, costs `STAY` as much.
    """
    start = start or Hardware()
    if not rank:  # then nobody but the winners is asked
        among = [field.winner for field in among]
    sizes = {field.row.size for field in among}
    series = [each for each in SERIES if each.size in sizes]

    def at(x: np.ndarray) -> Hardware:
        found = {name: float(np.exp(v)) for name, v in zip(names, x, strict=True)}
        most = {name: CONSTANTS[name][1] or np.inf for name in names}
        return replace(start, **{name: min(found[name], most[name]) for name in names})

    def errors(x: np.ndarray) -> np.ndarray:
        hardware = at(x)
        taken = seconds([hardware] * len(among), among)
        pairs = zip(among, taken, strict=True)
        found = [_off(field, hardware, own[0]) for field, own in pairs]
        found += [rank * np.log(own[0] / own.min()) for own in taken if rank]
        return np.array(found + [e for each in series for e in each.errors(hardware)])

    origin = np.log([getattr(start, name) for name in names])
    return at(least_errors(errors, origin))


def _off(field: Field, hardware: Hardware, taken: float) -> float:
    """How far a winner's MFU is off, as a logarithm."""
    return float(np.log(field.row.seconds / taken))


# What is held out together: all cells of a size, or of a number of GPUs.
SIZE, COUNT = (lambda field: field.row.size), (lambda field: field.row.run.gpus)


@functools.cache
def from_the_others(
    key: Callable[[Field], float] = SIZE,
    rank: float = RANK,
    start: Hardware | None = None,
) -> list[Hardware]:
    """Constants for each cell that have seen none with its `key`."""
    found = {}
    for held in sorted({key(field) for field in fields()}):
        rest = [field for field in fields() if key(field) != held]
        found[held] = fitted(rest, start, rank=rank)
    return [found[key(field)] for field in fields()]


def drawn(seed: int, factor: float = 3.0) -> Hardware:
    """A start at random: each constant so many times larger or smaller, at most."""
    draw, plain = np.random.default_rng(seed), Hardware()
    moved = {n: getattr(plain, n) * factor ** draw.uniform(-1, 1) for n in CONSTANTS}
    most = {name: CONSTANTS[name][1] or np.inf for name in CONSTANTS}
    return replace(plain, **{n: float(min(moved[n], most[n])) for n in CONSTANTS})


@functools.cache
def of_all() -> Hardware:
    """Constants fitted to all cells."""
    return fitted(fields())


def least_errors(errors: Callable, origin: np.ndarray, rounds: int = 15) -> np.ndarray:
    """Where robust errors, and the way from `origin`, are least: Gauss and Newton."""
    n, k, x = len(errors(origin)), len(origin), origin
    for _ in range(rounds):
        e = errors(x)
        slope = [(errors(x + 1e-5 * unit) - e) / 1e-5 for unit in np.eye(k)]
        weights = 1 / np.sqrt(1 + (e / LARGE) ** 2) / (n * LARGE)
        pull = 2 * STAY / k
        downhill = -np.array(slope) @ (weights * e) - pull * (x - origin)
        bend = (np.array(slope) * weights) @ np.array(slope).T + pull * np.eye(k)
        way = np.clip(np.linalg.solve(bend, downhill), -0.5, 0.5)
        if np.max(np.abs(way)) < 1e-3:
            break
        here = _cost(e, x - origin)
        while _cost(errors(x + way), x + way - origin) > here:
            way = way / 2
            if np.max(np.abs(way)) < 1e-4:
                return x
        x = x + way
    return x


def _cost(errors: np.ndarray, moved: np.ndarray) -> float:
    """Small errors count as squares, large ones as they are; see `fitted`."""
    robust = LARGE * np.mean(np.sqrt(1 + (errors / LARGE) ** 2) - 1)
    return float(robust + STAY * np.mean(moved**2))
