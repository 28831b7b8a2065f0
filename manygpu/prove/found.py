"""A rule's hyperparameters, found in the step's own run on one device.

With one device and one sample per step, no work is shared and no sample can be counted
wrongly. So if the step isn't what the rule says there, the rule has other numbers than
it was told, or it is another rule. The numbers are solved for, and must also explain a
second run, on other batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from manygpu.prove.counts import LEAST, SAFETY, TRIALS, nudged, unit, wide
from manygpu.prove.rules import (
    DEFAULT,
    FAMILIES,
    FLOAT32,
    OF_A_NORM,
    RULES,
    UNKNOWN,
    Changes,
    Plain,
    adagrad,
    adam,
    is_known,
    rmsprop,
)
from manygpu.prove.subject import Arrays, Subject
from manygpu.prove.trials import UNITS, largest, snapshot

STEPS, FEW = 4, 4  # of a run; samples, if one has no gradient
FIRST_SEED, SECOND_SEED = 7000, 9000  # of the two runs' batches
DECAYS = (0.3, 0.03, 3e-3, 3e-4)
BEST = 3  # of the places of epsilon that are looked at
MOST_NUMBERS = 400  # of a parameter, that are looked at in a search
AFAR, NEAR, TINY = 1.5, 1e-3, 1e-300  # what a search begins at, and ends at
ROUNDS, SLOW, MOST_DAMPING = 30, 0.03, 1e4  # of a search
TOLERANCES = (1e-2, 1e-4, 1e-6, 0.0)  # to a number of few digits, which is tried first
CLIPS = (1.0, 0.5, 0.1, 0.25, 2.0, 5.0)
EPSILONS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-10)
BEGIN_EPSILONS = (1e-8, 1e-5, 1e-3)
BETAS = tuple(itertools.product((0.9, 0.5, 0.0), (0.999, 0.95)))
LEAST_EPSILON, LEAST_LEFT = 1e-12, 1e-5  # below: not believed
LEAST_DECAY = 1e-9  # below: none
LEAST_CLIP, MOST_CLIP, MOST_EPSILON = 0.01, 100.0, 0.1  # beyond: not believed
Make = Callable[..., Plain]
Told = dict[str, Any]


class Rule(NamedTuple):
    """A rule and its hyperparameters, as `Subject` has them."""

    name: str
    numbers: Told

    def begun(self, lr: float) -> Plain:
        return RULES[self.name](lr, **self.numbers)


@dataclass
class Run:
    """Some steps on one device: where each went from, and by what gradient.

    Attributes:
        subject: whose steps they are.
        samples: of each batch.
        seed: of the first batch.
    """

    subject: Subject
    samples: int
    seed: int

    @cached_property
    def batches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        seeds = range(self.seed, self.seed + STEPS)
        return [self.subject.draw(self.samples, seed) for seed in seeds]

    @cached_property
    def ends(self) -> list[Arrays]:
        """The weights before the first step, and after each."""
        own = self.subject
        running = own.start([w.copy() for w in own.weights], own.least_devices)
        seen = [snapshot(running.copies())[0]]
        for X, y in self.batches:
            running.take(X, y)
            seen.append(snapshot(running.copies())[0])
        return seen

    @cached_property
    def weights(self) -> list[Changes]:
        return [[wide(w) for w in own] for own in self.ends[:-1]]

    @cached_property
    def changes(self) -> list[Changes]:
        """By how much each step made the weights smaller."""
        pairs = itertools.pairwise(self.ends)
        return [
            [wide(a) - wide(b) for a, b in zip(old, new, strict=True)]
            for old, new in pairs
        ]

    @cached_property
    def grads(self) -> list[Changes]:
        return self._grads(lambda a: a)

    @cached_property
    def near(self) -> list[list[Changes]]:
        """The gradients from weights and inputs that are off by one unit."""
        rng = np.random.default_rng(0)
        off = partial(nudged, rng=rng, coarse=self.subject.coarse)
        return [self._grads(off) for _ in range(TRIALS)]

    def _grads(self, moved: Callable[[np.ndarray], np.ndarray]) -> list[Changes]:
        grads = []
        for (X, y), own in zip(self.batches, self.ends[:-1], strict=True):
            _, sums = self.subject.gradient(moved(X), y, [moved(w) for w in own])
            grads.append([wide(g) / len(X) for g in sums])
        return grads

    @cached_property
    def some(self) -> Some:
        return Some.of(self)

    @cached_property
    def is_linear(self) -> bool:
        return is_linear(self.subject, self.samples, self.first_moved + 1)

    @property
    def first_moved(self) -> int:
        """The first step that moves any weight: a rate may rise from 0."""
        moved = [any(map(np.any, own)) for own in self.changes[:-1]]
        return moved.index(True) if True in moved else 0

    @cached_property
    def unit(self) -> float:
        return unit(self.subject.weights[0].dtype)

    @property
    def finite(self) -> bool:
        every = itertools.chain(*self.changes, *self.grads)
        return all(np.isfinite(one).all() for one in every)

    @property
    def all_have_a_gradient(self) -> bool:
        by_parameter = zip(*self.grads, strict=True)
        return all(any(np.any(g) for g in own) for own in by_parameter)


def predicted(rule: Plain, run: Run, grads: Sequence[Changes]) -> Iterator[Changes]:
    """Yield by how much a rule would change the weights in each step of a run."""
    for weights, own in zip(run.weights, grads, strict=False):
        rule.at(weights)
        yield rule.change(own)
        rule.follow(own)


def explains(rule: Rule, run: Run) -> bool:
    """Return whether a rule says all changes of a run, but for rounding."""
    own = rule.begun(run.subject.lr)
    units = min(max(run.unit * own.units_off, LEAST), 0.5)

    @cache
    def near() -> list[list[Changes]]:
        """The changes by gradients that rounding may have made."""
        made = (rule.begun(run.subject.lr) for _ in run.near)
        return [
            list(predicted(*one)) for one in zip(made, itertools.repeat(run), run.near)
        ]

    for t, due in enumerate(predicted(own, run, run.grads)):
        off = _apart(run.changes[t], due)
        for p, (o, d, w) in enumerate(zip(off, due, run.weights[t], strict=True)):
            beyond = o - run.unit * UNITS * largest(w) - units * largest(d)
            if (beyond <= 0).all():
                continue
            if not (beyond <= np.abs(d) / 2).all():
                return False
            drift = np.max([np.abs(one[t][p] - d) for one in near()], axis=0)
            if not (beyond <= SAFETY * drift).all():
                return False
    return True


def _apart(a: Changes, b: Changes) -> Changes:
    return [np.abs(x - y) for x, y in zip(a, b, strict=True)]


def with_rule(subject: Subject) -> tuple[Subject, str]:
    """Return the subject with the rule of its one device, and what is to be said.

    If the hyperparameters are told, or the step is what the rule says, nothing is
    searched for. If no rule explains the step and none was told, it is an unknown one.
    """
    if subject.gradient is None:
        return subject, ""
    if subject.rule is not None and not is_known(subject.rule):
        return replace(subject, gradient=None), ""
    if subject.hyperparameters is not None or subject.least_devices > 1:
        return subject, ""
    try:
        run = run_of(subject, FIRST_SEED)
        again = replace(run, seed=SECOND_SEED)
        finite = run.finite and again.finite
    except Exception:  # the first check stops in the same way, and says so
        return subject, ""
    if not finite or explains(Rule(subject.rule or DEFAULT, {}), run):
        return subject, ""
    if (own := rule_that_is_said(subject)) is not None:
        for rule in [own, *clipped_too(own)]:
            if explains(rule, run) and explains(rule, again):
                return as_it_says(subject, own, rule)
    for rule in candidates(run, again, subject.rule):
        if explains(rule, run) and explains(rule, again):
            told = replace(subject, rule=rule.name, hyperparameters=rule.numbers)
            said = in_words(rule, subject.lr, hides_its_clip(rule, (run, again)))
            return told, f"{FITS_BEST} {said}"
    if subject.rule is None and not subject.coarse and not run.is_linear:
        return replace(subject, rule=UNKNOWN, gradient=None), ""
    return subject, ""


FITS_BEST = "no hyperparameters were told; what fits the step on one device best is"


def rule_that_is_said(subject: Subject) -> Rule | None:
    """Return the rule that the optimizer object itself has, of the family that is told.

    None if nobody can ask it, or no rule is like it.
    """
    try:
        said = subject.optimizer_says and subject.optimizer_says()
    except Exception:  # whatever a reader's function may raise: then it says nothing
        return None
    if said is None:
        return None
    (family,) = [own for own in FAMILIES if subject.rule in own] or [sum(FAMILIES, ())]
    return Rule(*said) if said[0] in family else None


def clipped_too(rule: Rule) -> Iterator[Rule]:
    """Yield a rule with each usual threshold: a step may clip what it gives it."""
    for clip in CLIPS:
        if "clip" not in rule.numbers:
            yield rule._replace(numbers=rule.numbers | {"clip": clip})


def as_it_says(subject: Subject, said: Rule, rule: Rule) -> tuple[Subject, str]:
    """Return a subject with the rule that its optimizer has, and what is to be said.

    rule: the same, maybe with a threshold that fits.
    """
    rate, *later = said.numbers["rates"]
    constant = {name for name in ("rates",) if not later}
    numbers, own = (
        {name: x for name, x in one.numbers.items() if name not in constant}
        for one in (rule, said)
    )
    text = f"its optimizer is {in_words(said._replace(numbers=own), rate)}"
    if rule is not said:
        text += f"; gradients clipped to a norm of {numbers['clip']:g} fit best"
    if abs(rate / subject.lr - 1) > FLOAT32:
        text += f"; lr must be its learning rate, {rate:.6g}, got {subject.lr:g}: "
        text += "correct it (the optimizer's is used here)"
    return replace(subject, lr=rate, rule=rule.name, hyperparameters=numbers), text


def hides_its_clip(rule: Rule, runs: Sequence[Run]) -> bool:
    """Return whether a rule that clips explains runs as well with half the norm.

    A rule that divides by a root takes the same step of gradients half as long, if its
    epsilon is half as large. So if all gradients are clipped, their norm is unknown.
    """
    if "clip" not in rule.numbers or "epsilon" not in rule.numbers:
        return False
    half = {name: rule.numbers[name] / 2 for name in ("clip", "epsilon")}
    if rule.numbers.get("inside"):
        half["epsilon"] /= 2
    other = rule._replace(numbers=rule.numbers | half)
    return all(explains(other, run) for run in runs)


def run_of(subject: Subject, seed: int) -> Run:
    """Return a run of one sample per step; of more, if some weights had no gradient."""
    least = max(1, subject.parts(1))
    run = Run(subject, least, seed)
    return run if run.all_have_a_gradient else Run(subject, FEW * least, seed)


def is_linear(subject: Subject, samples: int, steps: int = 1) -> bool:
    """Return whether a first change by twice as many samples is the mean of halves'.

    steps: until any weight moves; a rate may rise from 0.

    So it is if plain SGD follows gradients that aren't the reference's: that is no
    matter of a rule.
    """
    (X, y), start = subject.draw(2 * samples, FIRST_SEED), subject.weights

    def change(part: slice) -> np.ndarray:
        running = subject.start([w.copy() for w in start], subject.least_devices)
        for _ in range(steps):
            running.take(X[part], y[part])
        pairs = zip(start, snapshot(running.copies())[0], strict=True)
        return np.concatenate([wide(a) - wide(b) for a, b in pairs])

    both, *each = map(change, (slice(None), slice(samples), slice(samples, None)))
    rounded = 1e3 * unit(start[0].dtype) * max(map(largest, start))
    off = largest(both - sum(each) / 2)
    return bool(off <= rounded or off <= 1e-3 * largest(both))


def candidates(run: Run, again: Run, told: str | None) -> Iterator[Rule]:
    """Yield rules that may explain a run, the simplest first, of a family if told.

    Of each kind come first those at the rate that was told, then those at others.
    """
    (family,) = [own for own in FAMILIES if told in own] or [sum(FAMILIES, ())]
    kinds = [of_sgd] if DEFAULT in family else []
    for more in MORE:
        roots = [name for name in PLACES_OF if name in family]
        kinds += [partial(of_roots, name=name, more=more) for name in roots]
    tried: dict[str, None] = {}
    for kind in kinds:
        if kind is not of_sgd and run.is_linear:
            return
        own = []
        for rule in kind(run):
            if believed(rule.numbers, run.subject.lr) and str(rule) not in tried:
                tried[str(rule)] = None
                own.append(rule)
                yield rule
        for rule in own:
            for other in scheduled(rule, (run, again)):
                if str(other) not in tried:
                    tried[str(other)] = None
                    yield other


# Numbers, and what they are if few digits are enough.


def nice(x: float, tolerance: float) -> float:
    """Return the number of the fewest digits that is as near."""
    for digits in range(1, 8):
        short = float(f"{x:.{digits - 1}e}")
        if abs(short - x) <= tolerance * abs(x):
            return short
    return float(x)


def nice_share(x: float, tolerance: float) -> float:
    """Return a share such as momentum's: what it leaves of 1 has few digits."""
    return float(np.round(1 - nice(1 - x, tolerance), 12)) if tolerance else float(x)


def solved(columns: Sequence[np.ndarray], total: np.ndarray) -> np.ndarray:
    """Return how often each column is in a total, by least squares; NaN if unknown."""
    if not np.isfinite([*columns, total]).all():
        return np.full(len(columns), np.nan)
    lengths = [np.linalg.norm(c) or 1.0 for c in columns]
    A = np.stack([c / n for c, n in zip(columns, lengths, strict=True)], axis=1)
    return np.linalg.lstsq(A, total, rcond=1e-12)[0] / lengths


def most_common(values: Sequence[float], lr: float, tolerance: float) -> float:
    """Return the value that most of these have; of two, the nearer to the rate."""
    own = [v for v in values if np.isfinite(v)]
    same = [sum(abs(v - w) <= tolerance * abs(v) for w in own) for v in own]
    return min(zip(same, own, strict=True), key=lambda p: (-p[0], abs(p[1] - lr)))[1]


# Rates and decays: what is around a rule's averages.


class First(NamedTuple):
    """What the first step says of the parameters: their rates, and their decays."""

    rate: float
    layers: tuple[float, ...]
    decays: tuple[float, ...]


def first_step(
    run: Run, t: int, directions: Changes, tolerance: float, decayed: bool = False
) -> First | None:
    """Return what multiplies the direction and the weights of each parameter.

    t: the first step that moves any weight.
    decayed: whether parameters that are too small to tell have a decay.
    """
    triples = list(zip(run.changes[t], directions, run.weights[t], strict=True))
    both = np.array([parts_of(*one) for one in triples])
    if not np.isfinite(both[:, 0]).any():
        return None
    rate = most_common(both[:, 0], run.subject.lr, tolerance)
    if rate == 0:
        return None
    decays = both[:, 1] / both[:, 0]
    known = decays[np.isfinite(decays)]
    unknown = max(known, key=abs, default=0.0) if decayed else 0.0
    decays = np.where(np.isfinite(decays), decays, unknown)
    decays[np.abs(decays) <= 100 * run.unit / abs(rate) + 1e-9] = 0.0
    layers = []
    for (change, u, w), decay in zip(triples, decays, strict=True):
        (own,) = solved([u + decay * w], change) if np.any(u) else (rate,)
        layers.append(nice(own / rate, tolerance))
    return First(rate, tuple(layers), tuple(nice(d, tolerance) for d in decays))


def decayed_alike(
    run: Run, t: int, directions: Changes, tolerance: float
) -> First | None:
    """Return what the first step says of all parameters, if their decay is one.

    Of one that begins at 0 (a bias, also a LayerNorm's), nothing else tells the decay;
    and of few numbers in float32, rounding hides it.
    """
    rows = directions, run.weights[t], run.changes[t]
    rate, decay = solved(
        [np.concatenate(own) for own in rows[:2]], np.concatenate(rows[2])
    )
    if not np.isfinite([rate, decay]).all() or rate == 0:
        return None
    same = nice(float(decay / rate), tolerance)
    layers, decays = [1.0] * len(directions), [same] * len(directions)
    return First(float(rate), tuple(layers), tuple(decays))


def parts_of(change: np.ndarray, u: np.ndarray, w: np.ndarray) -> tuple[float, float]:
    """Return how often a direction and the weights are in a change; NaN if unknown."""
    if not np.any(u):
        return np.nan, np.nan
    if len(u) > 2 and np.any(w):
        of_u, of_w = solved([u, w], change)
        return float(of_u), float(of_w)
    return float(solved([u], change)[0]), np.nan


def around(first: First) -> Told:
    """Return the hyperparameters that say this."""
    told: Told = {}
    if any(own != 1 for own in first.layers):
        told["layers"] = first.layers
    if any(first.decays):
        same = len({*first.decays}) == 1
        told["decay"] = first.decays[0] if same else first.decays
    return told


def believed(told: Told, lr: float) -> bool:
    """Return whether these numbers are an optimizer's, and not a mistake's.

    The rate was told: only a schedule, or rates of layers, may differ from it.
    """
    rates = told.get("rates", (lr,))
    if not all(np.isfinite(r) and r >= 0 for r in rates):
        return False
    constant = np.ptp(rates) <= SAFETY * FLOAT32 * max(rates)
    if constant and abs(rates[0] / lr - 1) > FLOAT32:
        return False
    layers = told.get("layers", (1.0,))
    if not all(own >= 0 for own in layers):
        return False
    decays = np.ravel(told.get("decay", 0.0))
    if not ((decays >= 0) & (decays < 1)).all():
        return False
    if not LEAST_EPSILON <= told.get("epsilon", LEAST_EPSILON) <= MOST_EPSILON:
        return False
    if 1 - told.get("betas", (0, 0))[1] < LEAST_LEFT:
        return False
    shares = [told.get("momentum", 0), told.get("dampening", 0), told.get("rho", 0)]
    shares += told.get("betas", ())
    clip = told.get("clip", 1.0)
    return LEAST_CLIP <= clip <= MOST_CLIP and all(0 <= own < 1 for own in shares)


def with_rates(name: str, told: Told, run: Run) -> list[float]:
    """Return the rate of each step that explains a run best."""
    lr, rates = run.subject.lr, []
    for t, changes in enumerate(run.changes):
        ends = []
        for own in (0.0, lr):
            rule = RULES[name](lr, **told | {"rates": [*rates, own]})
            for past in range(t):
                rule.at(run.weights[past])
                rule.follow(run.grads[past])
            rule.at(run.weights[t])
            ends.append(rule.change(run.grads[t]))
        # Each parameter by its own length, so that none drowns another.
        sizes = [np.linalg.norm(c) or 1.0 for c in changes]
        none, whole, found = (
            np.concatenate([c / n for c, n in zip(own, sizes, strict=True)])
            for own in (*ends, changes)
        )
        way = whole - none
        rates.append(lr * float(way @ (found - none)) / (float(way @ way) or 1.0))
    return rates


def scheduled(rule: Rule, runs: Sequence[Run]) -> Iterator[Rule]:
    """Yield a rule at the rates of each step that explain these runs best.

    Of two runs, the one that a step moves farther tells its rate more exactly.
    """
    lr = runs[0].subject.lr
    farther = np.argmax([[norm_of(c) for c in run.changes] for run in runs], axis=0)
    if rule.numbers.get("dampening"):  # they can't be told apart
        return
    for inside in (False, True) if rule.name == "momentum" else (False,):
        told = rule.numbers | ({"rate_inside": True} if inside else {})
        of_runs = [with_rates(rule.name, told, run) for run in runs]
        rates = [of_runs[which][t] for t, which in enumerate(farther)]
        for tolerance in TOLERANCES:
            near = [float(lr * nice(r / lr, tolerance)) for r in rates]
            own = told | {"rates": tuple(near)}
            if believed(own, lr) and any(r != lr for r in near):
                yield Rule(rule.name, own)


# Rules whose change is a sum of gradients.


def of_sgd(run: Run) -> Iterator[Rule]:
    """Yield plain SGD, and momentum, with what the first two steps say of it."""
    t = run.first_moved
    for tolerance, decayed in itertools.product(TOLERANCES[:-1], (False, True)):
        first = first_step(run, t, run.grads[t], tolerance, decayed)
        if first is not None:
            yield Rule("sgd", around(first))
            yield from of_clipped(run, first, tolerance)
            yield from of_momentum(run, first, tolerance)


def of_clipped(run: Run, first: First, tolerance: float) -> Iterator[Rule]:
    """Yield plain SGD with a threshold, and with a decay that isn't clipped."""
    lr, scales, decays = run.subject.lr, [], []
    for t in range(STEPS):
        g, w = (joined(own[t], first.layers) for own in (run.grads, run.weights))
        scale, decay = solved([g, w], np.concatenate(run.changes[t]))
        scales.append(scale / lr)
        decays.append(decay / lr)
    decay = nice(float(np.median(decays)), tolerance)
    about = around(first._replace(decays=()))
    for clip in clips_of(run, scales, tolerance):
        yield Rule("clipped", about | {"clip": clip})
        more = {"clip": clip, "decay": decay, "decoupled": True}
        yield Rule("clipped", about | more)


def clips_of(run: Run, scales: Sequence[float], tolerance: float) -> list[float]:
    """Return the threshold that the steps' scales tell, if some are below 1."""
    pairs = zip(scales, map(norm_of, run.grads), strict=True)
    found = [scale * (norm + OF_A_NORM) for scale, norm in pairs if scale < 1 - 1e-6]
    return [nice(float(np.median(found)), tolerance)] if found else []


def norm_of(grads: Changes) -> float:
    return float(np.sqrt(sum((g * g).sum() for g in grads)))


def joined(parts: Changes, layers: Sequence[float]) -> np.ndarray:
    """Return all parameters' numbers in a row, each times its layer's rate."""
    return np.concatenate([own * r for own, r in zip(parts, layers, strict=True)])


def of_momentum(run: Run, first: First, tolerance: float) -> Iterator[Rule]:
    """Yield momentum: of which size, the second step says.

    Its change is c1 g1 + c0 g0, whatever the kind; and that of the first was a0 g0.
    """
    lr, told, t = run.subject.lr, around(first), run.first_moved
    for decoupled in (False, True) if "decay" in told else (False,):
        own = told | {"decoupled": True} if decoupled else told
        c1, c0 = of_second_step(run, first, decoupled)
        if not c1 or not np.isfinite([c1, c0]).all():
            continue
        of_rate = c0 / c1  # as PyTorch has it: the rate is of the whole velocity
        share = of_rate if t else c0 / first.rate
        plain = own | {"momentum": nice_share(share, tolerance)}
        yield Rule("momentum", plain)
        yield Rule("momentum", own | {"momentum": nice_share(of_rate, tolerance)})
        damped = plain | {"dampening": nice_share(1 - c1 / lr, tolerance)}
        yield Rule("momentum", damped | {"dampens_first": True})
        yield Rule("momentum", damped)
        if believed(plain, lr):
            rates = with_rates("momentum", plain | {"rate_inside": True}, run)
            for clip in clips_of(run, [rate / lr for rate in rates], tolerance):
                yield Rule("momentum", plain | {"clip": clip})
        if of_rate > 0:
            root = (of_rate + np.sqrt(of_rate * of_rate + 4 * of_rate)) / 2
            yield Rule("nesterov", own | {"momentum": nice_share(root, tolerance)})


def of_second_step(run: Run, first: First, decoupled: bool) -> tuple[float, float]:
    """Return how often the gradients of the second and the first step are in it."""
    now, past = (joined(run.grads[t], first.layers) for t in (1, 0))
    factors = np.multiply(first.layers, first.decays)
    decay, before = (joined(run.weights[t], factors) for t in (1, 0))
    change = np.concatenate(run.changes[1])
    if decoupled and np.any(decay):
        c1, c0, _ = solved([now, past, decay], change)
    else:
        c1, c0 = solved([now + decay, past + before], change)
    return float(c1), float(c0)


# Rules that divide by a root.


class Guess(NamedTuple):
    """Numbers of a rule that divides by a root, of which a search is made.

    Attributes:
        places: of epsilon, and more that isn't searched for.
        shares: what is kept of the averages.
        others: epsilon, and maybe a threshold and a decay, by name.
    """

    places: Told
    shares: tuple[float, ...]
    others: Told

    @property
    def start(self) -> np.ndarray:
        """The numbers that the search moves, as logarithms."""
        left = [1 - s for s in self.shares if s]
        return np.log([*left, *self.others.values()])

    def moved(self, x: np.ndarray) -> Guess:
        """Return this with other numbers."""
        left = iter(np.exp(np.clip(x, -40, 5)))
        shares = tuple(1 - next(left) if s else 0.0 for s in self.shares)
        others = {name: float(next(left)) for name in self.others}
        return self._replace(shares=shares, others=others)

    def told(self, name: str, tolerance: float) -> Told:
        """Return these as hyperparameters, to so many digits."""
        shares = tuple(nice_share(s, tolerance) for s in self.shares)
        others = {n: nice(x, tolerance) for n, x in self.others.items()}
        own = {"adam": {"betas": shares}, "rmsprop": {"rho": shares[-1:]}}
        told = dict(own.get(name, {}))
        if name == "rmsprop":
            told["rho"] = shares[0]
        return self.places | told | others


EITHER = (False, True)
PLACES_OF = {
    "rmsprop": [{"inside": i} for i in (True, False)],
    "adagrad": [
        {"inside": i, "start": s} for i, s in itertools.product(EITHER, (0.1, 0.0))
    ],
    "adam": [
        *(
            {"inside": i, "before": b, "corrected": True}
            for i, b in itertools.product(EITHER, EITHER)
        ),
        *({"inside": i, "corrected": False} for i in EITHER),
    ],
}
SHARES_OF = {
    "adam": BETAS,
    "rmsprop": ((0.9,), (0.99,), (0.999,), (0.95,)),
    "adagrad": ((),),
}
MAKE_OF: dict[str, Make] = {"adam": adam, "rmsprop": rmsprop, "adagrad": adagrad}
# What else may be around them: nothing, a threshold, or a decay in the gradient.
MORE = ({}, *({"clip": c} for c in (1.0, 0.1)), *({"decay": d} for d in DECAYS))


def of_roots(run: Run, name: str, more: Told) -> Iterator[Rule]:
    """Yield rules that divide by a root, with the numbers that explain a run best.

    more: what is searched for, too, from these numbers.
    """
    best, some = [], run.some
    shares, epsilons = SHARES_OF[name], BEGIN_EPSILONS
    if more:  # a search from afar finds the rest
        shares, epsilons = shares[:2], epsilons[:2]
    for places in PLACES_OF[name]:
        every = itertools.product(shares, epsilons)
        guesses = [Guess(places, s, {"epsilon": e} | more) for s, e in every]
        guess = min(guesses, key=lambda own: some.left(name, own))
        if some.left(name, guess) < AFAR:
            guess = refined(some, name, guess)
            best.append((some.left(name, guess), len(best), guess))
    for left, _, guess in sorted(best)[:BEST]:
        if left <= max(NEAR, 1e5 * run.unit):
            yield from of_guess(run, name, guess)


def of_guess(run: Run, name: str, guess: Guess) -> Iterator[Rule]:
    """Yield the rule of a guess, with the rates and the decays of the first step."""
    guesses = [guess]
    if "clip" in guess.others:  # a gradient that is always clipped has any length
        whole = guess.others
        power = 0.5 if guess.places["inside"] else 1
        for epsilon in EPSILONS:
            clip = whole["clip"] * (epsilon / whole["epsilon"]) ** power
            other = whole | {"epsilon": epsilon, "clip": clip}
            guesses.append(guess._replace(others=other))
        guesses.sort(key=lambda own: off_a_clip(own.others["clip"]))
    t = run.first_moved
    for own, tolerance in itertools.product(guesses, TOLERANCES):
        told = own.told(name, tolerance)
        if told.get("decay", 1.0) <= LEAST_DECAY:
            del told["decay"]  # a search for one ends near 0 if there is none
        if not believed(told, run.subject.lr):
            continue
        if "decay" in told:
            yield Rule(name, told)
            continue
        rule = RULES[name](run.subject.lr, **told)
        *_, unit_change = predicted(rule, run, run.grads[: t + 1])
        directions = [change / run.subject.lr for change in unit_change]
        tolerance = max(tolerance, 1e-6)
        apart = [
            first_step(run, t, directions, tolerance, decayed) for decayed in EITHER
        ]
        for first in (*apart, decayed_alike(run, t, directions, tolerance)):
            if first is not None:
                about = around(first)
                more = {"decoupled": True} if "decay" in about else {}
                yield Rule(name, told | about | more)


def off_a_clip(clip: float) -> float:
    """Return by how much a threshold isn't one of those that are usual."""
    return min(abs(np.log(clip / usual)) for usual in CLIPS)


@dataclass
class Some:
    """Some numbers of each parameter in each step of a run: a step a row.

    Attributes:
        grads, weights, changes: (steps, numbers).
        norms: of the whole gradient, by step.
        owners: (parameters, numbers), 1 where a number is a parameter's.
    """

    grads: np.ndarray
    weights: np.ndarray
    changes: np.ndarray
    norms: list[float]
    owners: np.ndarray

    @classmethod
    def of(cls, run: Run) -> Some:
        """Return numbers that are drawn."""
        rng, chosen = np.random.default_rng(0), []
        for g in run.grads[0]:
            size = min(len(g), MOST_NUMBERS)
            chosen.append(np.sort(rng.choice(len(g), size, replace=False)))

        def some(steps: list[Changes]) -> np.ndarray:
            pick = [[p[i] for p, i in zip(own, chosen, strict=True)] for own in steps]
            return np.stack([np.concatenate(own) for own in pick])

        norms, sizes = [norm_of(own) for own in run.grads], [len(i) for i in chosen]
        owners = np.repeat(np.eye(len(sizes)), sizes, axis=1)
        return cls(*map(some, (run.grads, run.weights, run.changes)), norms, owners)

    def rest(self, name: str, guess: Guess) -> np.ndarray:
        """Return what a guess leaves of each change, at the best rates and decays.

        Each parameter has its own, in each step.
        """
        others, steps = dict(guess.others), []
        clip, decay = others.pop("clip", np.inf), others.pop("decay", 0.0)
        rule = MAKE_OF[name](1.0, **guess._replace(others=others).told(name, 0.0))
        for g, w, norm in zip(self.grads, self.weights, self.norms, strict=True):
            seen = [g * min(1.0, clip / (norm + OF_A_NORM)) + decay * w]
            steps += rule.direction(seen)
            rule.remember(seen)
        left = self.left_of(
            np.stack(steps), 0 * self.weights if decay else self.weights
        )
        sizes = np.linalg.norm(self.changes, axis=1, keepdims=True)
        return (left / np.where(sizes == 0, 1.0, sizes)).ravel()

    def left_of(self, u: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Return what u and w don't explain of the changes, in any mixture."""

        def along(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            """Return the part of b that is along a, for each parameter."""
            both, own = (a * b) @ self.owners.T, (a * a) @ self.owners.T
            return a * ((both / (own + TINY)) @ self.owners)

        left = self.changes - along(u, self.changes)
        return left - along(w - along(u, w), left)

    def left(self, name: str, guess: Guess) -> float:
        with np.errstate(all="ignore"):
            left = np.linalg.norm(self.rest(name, guess))
        return float(left) if np.isfinite(left) else np.inf


def refined(some: Some, name: str, guess: Guess) -> Guess:
    """Return the guess near this one that leaves least: Levenberg and Marquardt."""
    x, damping, step = guess.start, 1e-3, 1e-6
    rest = some.rest(name, guess)
    for _ in range(ROUNDS):
        columns = [
            (some.rest(name, guess.moved(x + step * one)) - rest) / step
            for one in np.eye(len(x))
        ]
        J = np.stack(columns, 1)
        A, b = J.T @ J, J.T @ rest
        way = solved(list((A + damping * np.diag(np.diag(A))).T), b)
        there = x - np.clip(np.nan_to_num(way), -1, 1)
        now = some.rest(name, guess.moved(there))
        before, after = np.linalg.norm(rest), np.linalg.norm(now)
        if not after < before:
            damping *= 10
            if damping > MOST_DAMPING:
                break
            continue
        x, rest, damping = there, now, damping / 10
        if before - after <= SLOW * before:
            break
    return guess.moved(x)


# What was found, in words.


def in_words(rule: Rule, lr: float, any_clip: bool = False) -> str:
    """Return a rule and its numbers as a phrase.

    any_clip: whether it clips, and neither that norm nor its epsilon can be known.
    """
    own, said = rule.numbers, []
    called = CALLED[rule.name]
    if "momentum" in own:
        kind = "Nesterov's momentum" if rule.name == "nesterov" else "momentum"
        said.append(f"{kind} {own['momentum']:.6g}")
    if own.get("dampening"):
        which = "of each gradient" if own.get("dampens_first") else "but for the first"
        said.append(f"dampening {own['dampening']:.6g} {which}")
    if "betas" in own:
        said.append("betas {:.6g} and {:.6g}".format(*own["betas"]))
    if "rho" in own:
        said.append(f"rho {own['rho']:.6g}")
    if "start" in own:
        said.append(f"squares that begin at {own['start']:g}")
    if "epsilon" in own:
        size = "an unknown epsilon" if any_clip else f"epsilon {own['epsilon']:.3g}"
        said.append(f"{size} {place_of(own)}")
    if own.get("corrected") is False:
        said.append("no correction of the bias")
    if "decay" in own:
        decays = sorted({float(d) for d in np.ravel(own["decay"])})
        sizes = " or ".join(f"{d:.6g}" for d in decays)
        coupled = "decoupled" if own.get("decoupled") else "in the gradient"
        said.append(f"weight decay {sizes} {coupled}")
    if "clip" in own:
        norm = "that can't be known" if any_clip else f"of {own['clip']:.6g}"
        said.append(f"gradients clipped to a norm {norm}")
    if "rates" in own:
        digits = 6 if any(f"{rate:.6g}" != f"{lr:.6g}" for rate in own["rates"]) else 9
        rates = ", ".join(f"{rate:.{digits}g}" for rate in own["rates"])
        said.append(f"the rates {rates} in its first steps instead of {lr:g}")
    if "layers" in own:
        layers = ", ".join(f"{factor:.6g}" for factor in own["layers"])
        said.append(f"parameters' rates times {layers}")
    *most, last = said or ["the rate it was told"]
    return f"{called} with {', '.join(most)}{' and ' * bool(most)}{last}"


CALLED = {
    "sgd": "SGD",
    "clipped": "SGD",
    "momentum": "SGD",
    "nesterov": "SGD",
    "adam": "Adam",
    "rmsprop": "RMSprop",
    "adagrad": "Adagrad",
}


def place_of(own: Mapping[str, Any]) -> str:
    """Return where epsilon is, in words."""
    where = "inside the root" if own.get("inside") else "beside the root"
    if own.get("corrected"):
        when = "before" if own.get("before") else "after"
        where += f", {when} the bias is corrected"
    return where
