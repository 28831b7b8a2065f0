"""What no count of samples shows: 24 wrong steps are named, 20 odd ones are right."""

from __future__ import annotations

import itertools
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from manygpu.measure import shares
from manygpu.prove import Places, Subject, judge
from manygpu.prove.judge import trial
from manygpu.prove.subject import TELLING
from tests.quick.test_prove import FEATURES, LR, draw, gradient

KEPT = 0.9  # momentum's share


class Right:
    """Data parallel SGD with momentum, by hand; each wrong step changes one method."""

    share, of = KEPT, staticmethod(gradient)

    def __init__(self, weights, devices):
        self.own = [[w.copy() for w in weights] for _ in range(devices)]
        self.velocity = [[0 * w for w in weights] for _ in range(devices)]
        self.steps = [np.array(0) for _ in range(devices)]
        self.average = [np.zeros(FEATURES) for _ in range(devices)]
        self.seeds = [np.array([r, 0]) for r in range(devices)]

    def take(self, X, y):
        self.sizes = shares(len(X), len(self.own))
        ends = np.cumsum(self.sizes)[:-1]
        parts = zip(np.split(X, ends), np.split(y, ends), self.own, strict=True)
        losses, grads = zip(*(self.of(*part) for part in parts), strict=True)
        if self.skips(grads):
            return np.nan
        for r in range(len(self.own)):
            self.move(r, [g / self.size(X, y) for g in self.total(r, grads)])
        if np.isfinite(X).all():
            self.keep(X)
        return sum(losses) / self.size(X, y)

    def size(self, X, y):
        return len(X)

    def skips(self, grads):
        return False

    def total(self, r, grads):
        return [sum(same) for same in zip(*grads, strict=True)]

    def move(self, r, mean):
        for w, v, g in zip(self.own[r], self.velocity[r], mean, strict=True):
            v *= self.share
            v += g
            w -= (LR * v).astype(w.dtype)

    def keep(self, X):
        for r in range(len(self.own)):
            self.steps[r] = self.steps[r] + 1
            self.average[r] = 0.9 * self.average[r] + 0.1 * X.mean(0)
            self.seeds[r] = self.seeds[r] + [0, 1]

    def copies(self):
        return self.own

    def state(self):
        velocity = [np.concatenate([v.ravel() for v in own]) for own in self.velocity]
        kept = {"velocity": velocity, "steps": self.steps, "average": self.average}
        return kept | {"seeds": self.seeds}

    def save(self):
        first = [self.own[0], self.velocity[0]]
        copied = [[a.copy() for a in part] for part in first]
        return [*copied, self.steps[0], self.average[0], self.seeds[0][1]]

    def resume(self, saved):
        own, velocity, steps, average, drawn = saved
        for r in range(len(self.own)):
            self.own[r] = [w.copy() for w in own]
            self.velocity[r] = [v.copy() for v in velocity]
            self.steps[r], self.average[r] = steps, average
            self.seeds[r] = np.array([r, drawn])

    def places(self):
        return Places([1] * len(self.own))


def subject(kind, **about):
    dtype, draws = about.pop("dtype", np.float64), about.pop("draw", draw)
    weights = [np.random.default_rng(0).normal(size=s) for s in ((6, 5), 5, (5, 4))]
    weights = [w.astype(dtype) for w in weights]
    about = {"apart": {"seeds": "each draws its own"}, "rule": "momentum"} | about
    known = about.pop("gradient", gradient)
    return Subject(kind, known, draws, weights, LR, name=kind.__name__, **about)


def infinite(grads):
    return not all(np.isfinite(g).all() for g in grads)


# Wrong: `said` is part of the sentence.


class ResumedWithoutMomentum(Right):
    broken, said = "resume", "velocity is back at zero"

    def resume(self, saved):
        own, velocity, *others = saved
        super().resume([own, [0 * v for v in velocity], *others])


class ResumedAtStepZero(Right):
    broken, said = "resume", "steps is back at zero"

    def resume(self, saved):
        own, velocity, _, *others = saved
        super().resume([own, velocity, np.array(0), *others])


class ResumedOnOneReplica(Right):
    broken, said = "resume", "a copy of the weights is not the saved one"

    def resume(self, saved):
        others = self.own[1:]
        super().resume(saved)
        self.own[1:] = others


class SavedByReference(Right):
    broken, said = "resume", "is not the saved one"

    def save(self):
        return [self.own[0], self.velocity[0], *super().save()[2:]]


class ResumedOnFewerDevices(Right):
    broken, said = "resume", "resumed on 1 device, of the next step"

    def save(self):
        return [super().save(), len(self.own)]

    def resume(self, saved):
        (own, velocity, *others), devices = saved
        share = len(self.own) / devices
        super().resume([own, [share * v for v in velocity], *others])


class CountedByTheFirst(Right):
    broken, said = "kept", "steps is not the same on replicas 0 and 1"

    def keep(self, X):
        before = self.steps[1:]
        super().keep(X)
        self.steps[1:] = before


class CountedByEach(Right):
    broken, said = "counter", "steps on replica 0 went from 0 to 3"

    def keep(self, X):
        super().keep(X)
        self.steps = [step + len(self.own) - 1 for step in self.steps]


class AveragedByTheFirst(Right):
    broken, said = "kept", "average is not the same on replicas 0 and 1"

    def keep(self, X):
        before = self.average[1:]
        super().keep(X)
        self.average[1:] = before


class AveragedApart(Right):
    broken, said = "kept", "average is not the same on replicas 0 and"

    def keep(self, X):
        super().keep(X)
        parts = np.split(X, np.cumsum(self.sizes)[:-1])
        self.average = [part.mean(0) for part in parts]


class AverageInShort(Right):
    broken, said = "kept", "average was float64 (6,) and is float32 (6,)"

    def keep(self, X):
        super().keep(X)
        self.average = [a.astype(np.float32) for a in self.average]


class AllOnTheFirst(Right):
    broken, said = "place", "1 of 3 devices worked; idle: 1, 2"

    def places(self):
        return Places([len(self.own), *[0] * (len(self.own) - 1)])


class LastIdles(Right):
    broken, said = "place", "2 of 3 devices worked; idle: 2"

    def places(self):
        return Places([*[1] * (len(self.own) - 1), int(len(self.own) == 1)])


class ReadsTheFirst(Right):
    broken, said = "place", "device 1 worked with variables of device 0"

    def places(self):
        strays = [f"device {r} worked with variables of device 0" for r in (1, 2)]
        return Places([1] * len(self.own), strays[: len(self.own) - 1])


class OneSkips(Right):
    broken, said = "overflow", "copy 0 stays, copy 1 becomes infinite"

    def move(self, r, mean):
        if r or not infinite(mean):
            super().move(r, mean)


class SkipsByTheFirst(Right):
    broken, said = (
        "overflow",
        "becomes infinite or NaN on 3 devices and stays on 1",
    )

    def skips(self, grads):
        return infinite(grads[0])


class TakesNoNumberForZero(Right):
    broken, said = "overflow", "which has no finite gradient, the weights move"

    def total(self, r, grads):
        own = [[np.where(np.isfinite(g), g, 0) for g in of] for of in grads]
        return super().total(r, own)


class SkipsAndKeepsTheRest(Right):
    broken, said = "overflow", "no weight moves, but velocity becomes infinite"

    def move(self, r, mean):
        if infinite(mean):
            self.velocity[r] = [
                v + g for v, g in zip(self.velocity[r], mean, strict=True)
            ]
        else:
            super().move(r, mean)


class DrawsAlike(Right):
    broken = "random"
    said = "seeds is the same on replicas 0 and 1 (each draws its own)"

    def keep(self, X):
        super().keep(X)
        self.seeds = [self.seeds[0] + 1 for _ in self.own]


class DrawsAgain(Right):
    broken, said = "random", "seeds on replica 0 didn't change"

    def keep(self, X):
        before = list(self.seeds)
        super().keep(X)
        self.seeds = before


class MeanOfNobody(Right):
    broken, said = "empty", "weights become infinite or NaN"

    def total(self, r, grads):
        sizes = np.array(self.sizes, float)
        own = [[g * (n / n) for g in of] for n, of in zip(sizes, grads, strict=True)]
        return super().total(r, own)


class RefusesTooLate(Right):
    broken, said = "empty", "the step is refused, and of the next one"

    def take(self, X, y):
        if len(X) < len(self.own):
            for own in self.velocity:
                own[0] += 1
            raise ValueError("too few samples")
        return super().take(X, y)


class StopsForTheEmpty(Right):
    broken, said = "empty", "it stops with KeyError: 'no sample'"

    def total(self, r, grads):
        if 0 in self.sizes:
            raise KeyError("no sample")
        return super().total(r, grads)


class AddsInItsOwnOrder(Right):
    broken, said = "copies", "differ between copy 1 and copy 0"

    def total(self, r, grads):
        return super().total(r, [*grads[r:], *grads[:r]])


class ForgetsItsLoss(Right):
    broken, said = "kept", "average is missing after a step"

    def state(self):
        kept = super().state()
        if self.steps[0] > 1:
            del kept["average"]
        return kept


# Wrong, and judged without any gradient.


class Wanders(Right):
    broken, said = "repeatable", "if the same step is run a second time"
    noise = np.random.default_rng(1)

    def move(self, r, mean):
        first = r == 0
        self.factor = self.noise.normal(1, 1e-3) if first else self.factor
        super().move(r, [self.factor * g for g in mean])


class Forgets(Right):
    broken, said = "optimizer", "of momentum doesn't depend on the first"
    share = 0.0


class MeansOfMeans(Right):
    broken, said = "order", "with the samples in a different order"
    first = "shares"

    def total(self, r, grads):
        n, k = sum(self.sizes), len(self.own)
        own = [
            [n / k / s * g for g in of] for s, of in zip(self.sizes, grads, strict=True)
        ]
        return super().total(r, own)


class SumsForMeans(Right):
    broken, said = (
        "mean",
        "on 2 devices, compared with 1, the weights move 2 times as far",
    )

    def total(self, r, grads):
        return [len(self.own) * g for g in super().total(r, grads)]


class DropsTheLast(Right):
    broken, said = "devices", "on 2 devices, compared with 1, parameter 0 (6 x 5)"

    def total(self, r, grads):
        return super().total(r, grads[:-1] or grads)


class SumsOverTheBatch(Right):
    broken, said = "mean", "each sample twice, the weights move 2 times as far"

    def total(self, r, grads):
        return [sum(self.sizes) * g for g in super().total(r, grads)]


class Remembers(Right):
    broken, said = "state", "in a training run that begins with the second step"


class OfOneLength(Right):
    broken, said = "gradient", "with twice the loss, compared with twice the change"
    factor = 1.0

    def total(self, r, grads):
        total = [self.factor * g for g in super().total(r, grads)]
        norm = np.sqrt(sum((g * g).sum() for g in total))
        return [sum(self.sizes) / norm * g for g in total]


def twice_as_long(weights, devices):
    run = OfOneLength(weights, devices)
    run.factor = 2.0
    return run


WITHOUT_GRADIENT = {
    Wanders: {},
    Forgets: {},
    MeansOfMeans: {},
    SumsForMeans: {},
    DropsTheLast: {},
    SumsOverTheBatch: {},
    Remembers: {"rule": "sgd"},
    OfOneLength: {"rule": "sgd", "twice": twice_as_long},
}
COUNTED = [kind for kind in Right.__subclasses__() if kind not in WITHOUT_GRADIENT]


@pytest.mark.parametrize("kind", COUNTED, ids=lambda kind: kind.__name__)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_no_count_shows_is_named(kind):
    one = subject(kind)
    assert not any(list(trial(one, case)) for case in TELLING)
    found, *_ = judge(one).findings
    assert found.broken == kind.broken
    assert kind.said in found.sentence


@pytest.mark.parametrize("kind", WITHOUT_GRADIENT, ids=lambda kind: kind.__name__)
def test_a_step_without_a_reference_is_judged(kind):
    verdict = judge(subject(kind, gradient=None, **WITHOUT_GRADIENT[kind]))
    said = {found.broken: found.sentence for found in verdict.findings}
    assert kind.said in said[kind.broken]
    assert getattr(kind, "first", kind.broken) == verdict.findings[0].broken


# Right, though it looks odd. `said` is part of the verdict.


class NoMomentum(Right):
    share, about, said = 0.0, {"rule": "sgd"}, "right in"


class NothingElse(Right):
    about, said = {}, "not seen: what is kept beside the weights, saving"
    state = save = resume = places = None


class SaysNoLoss(Right):
    about, said = {}, "right in"

    def take(self, X, y):
        super().take(X, y)


class OnTheFirstOnly(Right):
    """As a bias that is added to one of the parts of a row-parallel layer."""

    about, said = {}, "b2 is on replica 0 only: right, because its part is added once"

    def state(self):
        others = [None] * (len(self.own) - 1)
        return super().state() | {"b2": [np.ones(3), *others]}


class Sharded(Right):
    about = {"apart": {"velocity": "each has a part of it", "seeds": "each its own"}}
    said = "velocity differs between replicas, and should: each has a part of it"

    def state(self):
        kept = super().state()
        whole = kept["velocity"][0]
        return kept | {"velocity": np.array_split(whole, len(self.own))}


class Refuses(Right):
    about, said = {}, "refuses empty shards"

    def take(self, X, y):
        if len(X) < len(self.own):
            raise ValueError("too few samples")
        return super().take(X, y)


class SkipsTogether(Right):
    about, said = {}, "with an overflow"

    def skips(self, grads):
        return any(infinite(own) for own in grads)


class SaysOverflow(Right):
    about, said = {}, "with an overflow"

    def skips(self, grads):
        if any(infinite(own) for own in grads):
            raise FloatingPointError("a gradient is infinite")
        return False


class TakesEmptyShards(Right):
    about, said = {}, "in any order, with empty shards"


class EvenOnly(MeansOfMeans):
    about, said = {"even": True}, "right in"


class Alone(Right):
    about, said = {"most_devices": 1}, "on 1 to 1 devices"


class NeverAlone(Right):
    about, said = {"least_devices": 2}, "on 2 to 3 devices"


class LeavesTheThird(LastIdles):
    about = {"excused": {"place": "two take what three would"}}
    said = "2 of 3 devices worked; idle: 2: right, two take what three would"


class NobodyLooked(Right):
    about, said = {}, "its devices weren't seen"

    def places(self):
        return Places([0] * len(self.own))


class WithoutReference(Right):
    about = {"gradient": None}
    said = "the same on 1 to 3 devices (`--full`: up to 8)"


class OnAtMostThree(Right):
    about, said = {"most_devices": 3}, "the same on 1 to 3 devices, "


class EachBatchNormalized(MeansOfMeans):
    reasons = ("devices", "shares", "order", "empty")
    about = {"gradient": None, "excused": dict.fromkeys(reasons, "shares are normal")}
    said = "with the samples in a different order, parameter 0"


class InNoFixedOrder(Right):
    about, said = {}, "run twice, gives results that differ in their last digits"
    turns = itertools.count()

    def total(self, r, grads):
        self.turn = next(self.turns) if r == 0 else self.turn
        t = self.turn % len(grads)
        return super().total(r, [*grads[t:], *grads[:t]])


class LongSteps(Right):
    about, said = {}, "right in"

    def state(self):
        return super().state() | {"name": [np.array([7, 7])] * len(self.own)}


class AddsNothing(Right):
    """A slot that no step has used yet: all replicas have the same zeros."""

    about = {"apart": {"seeds": "each its own", "parts": "each has a part"}}
    said = "right in"

    def state(self):
        return super().state() | {"parts": [np.zeros(3)] * len(self.own)}


class TwiceTheLoss(NoMomentum):
    factor = 1.0

    def total(self, r, grads):
        return [self.factor * g for g in super().total(r, grads)]


def twice(weights, devices):
    run = TwiceTheLoss(weights, devices)
    run.factor = 2.0
    return run


def of_bfloat16(X, y, weights):
    """The gradient, of products of numbers of 8 digits."""
    short = [a.astype(ml_dtypes.bfloat16).astype(np.float32) for a in (X, *weights)]
    return gradient(short[0], y, short[1:])


class ProductsInSixteenBits(Right):
    of = staticmethod(of_bfloat16)
    about = {"gradient": of_bfloat16, "dtype": np.float32}
    said = "it computes in bfloat16, and its weights are float32: small differences"


def of_valid(X, y, weights):
    """The gradient of the samples whose target isn't -1."""
    return gradient(X[y >= 0], y[y >= 0], weights)


def some_ignored(samples, seed):
    X, y = draw(samples, seed)
    return X, np.where(np.arange(samples) % 3 == 1, -1, y)


class MeanOverTheValid(Right):
    of = staticmethod(of_valid)
    about = {"gradient": of_valid, "draw": some_ignored}
    said = "each sample that has a gradient counted once in a mean over these"

    def size(self, X, y):
        return (y >= 0).sum()


class OfPairs(NoMomentum):
    """A loss of each pair of the batch's samples: no mean over samples."""

    about = {"gradient": None, "rule": "sgd"}
    said = "on one device, too, so the loss is no mean over the samples"

    def take(self, X, y):
        self.keep(X)
        own, n = self.own[0][0], len(X)
        with np.errstate(invalid="ignore"):
            pairs = np.outer(X.sum(0), X.sum(0)) - X.T @ X
            loss = (own * (pairs @ own)).sum() / max(n * (n - 1), 1)
            for W, *_ in self.own:
                W -= LR * (pairs @ W) / max(n * (n - 1), 1)
        return loss


class SeedsGoOn(NoMomentum):
    """Dropout that all devices draw alike, by a seed that goes on."""

    about = {"gradient": None, "rule": "sgd"}
    said = "a step depends on seeds, steps, which goes on: right, if it may"

    def total(self, r, grads):
        drawn = np.random.default_rng(self.seeds[0][1]).random(5) > 0.5
        W, b, V = super().total(r, grads)
        return [W * drawn, b * drawn, V]

    def state(self):
        return {"seeds": self.seeds, "steps": self.steps}


class SamplesSeen(Right):
    about = {}
    said = "steps on replica 0 went from 0 to 32, on 1 device, too: right, if it counts"

    def keep(self, X):
        super().keep(X)
        self.steps = [step + 31 for step in self.steps]


TwiceTheLoss.about = {"rule": "sgd", "twice": twice}
TwiceTheLoss.said = "with twice the loss"
ODD = [*Right.__subclasses__(), EvenOnly, LeavesTheThird]
ODD += [OfPairs, SeedsGoOn]
ODD = [k for k in [*ODD, EachBatchNormalized, TwiceTheLoss] if hasattr(k, "about")]


@pytest.mark.parametrize("kind", ODD, ids=lambda kind: kind.__name__)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_looks_odd_is_right(kind):
    verdict = judge(subject(kind, **kind.about))
    assert verdict.right, str(verdict)
    assert kind.said in " ".join(str(verdict).split())


# Of another rule than it is said to be: no fault of parallelism, which still shows.


class OfOtherMomentum(Right):
    share = 0.95


class OfOtherMomentumAndMeansOfMeans(MeansOfMeans):
    share = 0.95


class MeansOfTheValidOfEach(MeanOverTheValid):
    def total(self, r, grads):
        ends = np.cumsum(shares(len(self.y), len(self.own)))[:-1]
        valid = [max((own >= 0).sum(), 1) for own in np.split(self.y, ends)]
        whole = (self.y >= 0).sum() / len(self.own)
        own = [[whole / n * g for g in of] for n, of in zip(valid, grads, strict=True)]
        return super().total(r, own)

    def take(self, X, y):
        self.y = y
        return super().take(X, y)


class OfAnotherRateByTheSecondStep(OfOtherMomentum):
    """As often as there are devices, from the second step on; it can't be saved."""

    save = resume = None

    def move(self, r, mean):
        factor = len(self.own) if self.steps[0] else 1
        super().move(r, [factor * g for g in mean])


def test_a_momentum_that_was_not_told_is_found():
    verdict = judge(subject(OfOtherMomentum))
    assert verdict.right, str(verdict)
    assert "SGD with momentum 0.95" in " ".join(verdict.remarks)


def test_another_momentum_than_was_told_is_no_fault_of_parallelism():
    verdict = judge(subject(OfOtherMomentum, hyperparameters={"momentum": 0.9}))
    assert not verdict.right
    assert "on one device" in verdict.unsure
    assert "rule='momentum'" in verdict.unsure
    assert [one.broken for one in verdict.findings] == ["state"]
    assert "the same on 1 to 3 devices" in " ".join(verdict.held)


@pytest.mark.parametrize(
    "kind, broken",
    [
        (OfOtherMomentumAndMeansOfMeans, "shares"),
        (OfAnotherRateByTheSecondStep, "schedule"),
    ],
)
def test_a_fault_of_parallelism_shows_under_another_rule(kind, broken):
    verdict = judge(subject(kind))
    assert not verdict.unsure
    assert verdict.findings[0].broken == broken


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rounding_is_no_change(dtype):
    one = subject(Right)
    weights = [w.astype(dtype) for w in one.weights]
    verdict = judge(replace(one, weights=weights))
    assert verdict.right, str(verdict)


def test_a_mean_of_each_devices_valid_samples_is_wrong():
    verdict = judge(subject(MeansOfTheValidOfEach, **MeanOverTheValid.about))
    assert verdict.findings[0].broken == "shares"
    assert not verdict.unsure


@pytest.mark.parametrize("kind", [MeansOfMeans, SumsForMeans, DropsTheLast])
def test_products_in_16_bits_hide_no_miscounted_sample(kind):
    kind = type(kind.__name__, (kind,), {"of": staticmethod(of_bfloat16)})
    verdict = judge(subject(kind, **ProductsInSixteenBits.about))
    assert not verdict.unsure
    assert verdict.findings[0].broken in ("shares", "mean", "data")
