"""Hyperparameters that nobody told are found, and rules that nobody knows are no fault.

Each optimizer is written out here, as its framework has it: the judge's own rules are
no part of it. Each is right on any number of devices, until a mistake is planted that
only shows on several.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from manygpu.measure import shares
from manygpu.prove import Subject, judge
from tests.quick.test_prove import draw, gradient

LR = 0.25
SHAPES = ((6, 5), (5,), (5, 4))
FACTORS = (1.0, 2.0, 1.0)  # of the rates of layers


def norm(arrays):
    return np.sqrt(sum((a * a).sum() for a in arrays))


class Optimizer:
    """Keeps what a rule keeps; `change(weights, grads)` says what a step takes away."""

    told, said = None, ()  # the rule that is told; what the note says
    begun = (1, 1, 1)  # times the weights: where a training begins

    def __init__(self, weights):
        self.t = 0
        self.m = [0 * w for w in weights]
        self.v = [0 * w for w in weights]

    def change(self, weights, grads):
        self.t += 1
        own = zip(weights, grads, range(len(grads)), strict=True)
        return [self.of(w, g, p) for w, g, p in own]

    def of(self, w, g, p):
        return LR * g


class AdamOfKeras(Optimizer):
    betas, epsilon, lr = (0.9, 0.999), 1e-7, LR
    told = "adam"

    def of(self, w, g, p):
        (a, b), t = self.betas, self.t
        self.m[p] = a * self.m[p] + (1 - a) * g
        self.v[p] = b * self.v[p] + (1 - b) * g * g
        return self.lr * self.divided(self.m[p], self.v[p], a, b, t)

    def divided(self, m, v, a, b, t):
        rate = np.sqrt(1 - b**t) / (1 - a**t)
        return rate * m / (np.sqrt(v) + self.epsilon)


class AdamOfKerasWithOtherBetas(AdamOfKeras):
    betas, said = (0.8, 0.95), ("betas 0.8 and 0.95", "1e-07", "before the bias")


class AdamOfPyTorch(AdamOfKeras):
    epsilon = 1e-8
    said = ("betas 0.9 and 0.999", "epsilon 1e-08 beside the root, after the bias")

    def divided(self, m, v, a, b, t):
        return m / (1 - a**t) / (np.sqrt(v / (1 - b**t)) + self.epsilon)


class AdamUntold(AdamOfPyTorch):
    told, betas = None, (0.9, 0.95)
    said = ("Adam with betas 0.9 and 0.95",)


class AdamOfOptaxInsideTheRoot(AdamOfKeras):
    epsilon, said = 1e-4, ("epsilon 0.0001 inside the root, after the bias",)

    def divided(self, m, v, a, b, t):
        return m / (1 - a**t) / np.sqrt(v / (1 - b**t) + self.epsilon)


class AdamUncorrected(AdamOfKeras):
    said = ("no correction of the bias",)

    def divided(self, m, v, a, b, t):
        return m / (np.sqrt(v) + self.epsilon)


class AdamW(AdamOfPyTorch):
    told, said = None, ("weight decay 0.05 decoupled", "epsilon 1e-08")

    def of(self, w, g, p):
        return super().of(w, g, p) + LR * 0.05 * w


class AdamWOfMatrices(AdamOfPyTorch):
    betas, said = (0.9, 0.95), ("weight decay 0 or 0.1 decoupled",)

    def of(self, w, g, p):
        return super().of(w, g, p) + LR * 0.1 * w * (w.ndim > 1)


class AdamWOfAnyBias(AdamW):
    """Of a bias that begins at 0, as a LayerNorm's, the first step tells nothing."""

    begun = (1, 0, 1)


class AdamWithDecayInside(AdamOfPyTorch):
    said = ("weight decay 0.02 in the gradient",)

    def of(self, w, g, p):
        return super().of(w, g + 0.02 * w, p)


class AdamWWithWarmUp(AdamW):
    said = ("the rates 0.0625, 0.125, 0.1875, 0.25", "weight decay 0.05 decoupled")

    def of(self, w, g, p):
        return super().of(w, g, p) * min(1, self.t / 4)


class AdamClippedAtTimes(AdamOfPyTorch):
    """Of the gradients that are drawn, the first is shorter than 1."""

    most, told = 1.0, None
    said = ("epsilon 1e-08 beside the root", "gradients clipped to a norm of 1")

    def change(self, weights, grads):
        short = min(1, self.most / (norm(grads) + 1e-6))
        return super().change(weights, [short * g for g in grads])


class AdamAlwaysClipped(AdamClippedAtTimes):
    most = 0.3
    said = ("an unknown epsilon", "gradients clipped to a norm that can't be known")


class RMSpropOfPyTorch(Optimizer):
    told, said = "rmsprop", ("RMSprop with rho 0.99", "epsilon 1e-08 beside the root")

    def of(self, w, g, p):
        self.v[p] = 0.99 * self.v[p] + 0.01 * g * g
        return LR * g / (np.sqrt(self.v[p]) + 1e-8)


class AdagradOfPyTorch(Optimizer):
    said = ("Adagrad", "squares that begin at 0", "epsilon 1e-10 beside the root")

    def of(self, w, g, p):
        self.v[p] = self.v[p] + g * g
        return LR * g / (np.sqrt(self.v[p]) + 1e-10)


class Momentum(Optimizer):
    told, share, dampening, said = "momentum", 0.95, 0.0, ("momentum 0.95",)

    def of(self, w, g, p):
        first = self.t == 1 and not self.dampens_first
        new = 1 if first else 1 - self.dampening
        self.m[p] = self.share * self.m[p] + new * g
        return LR * self.m[p]

    dampens_first = False


class MomentumUntold(Momentum):
    told = None


class MomentumDampened(Momentum):
    share, dampening = 0.9, 0.9
    said = ("momentum 0.9 and dampening 0.9 but for the first",)


class MomentumDampenedFromTheFirst(MomentumDampened):
    dampens_first, said = True, ("dampening 0.9 of each gradient",)


class MomentumWithDecay(Momentum):
    said = ("momentum 0.95 and weight decay 0.01 in the gradient",)

    def of(self, w, g, p):
        return super().of(w, g + 0.01 * w, p)


class MomentumWithDecoupledDecay(Momentum):
    said = ("momentum 0.95 and weight decay 0.01 decoupled",)

    def of(self, w, g, p):
        return super().of(w, g, p) + LR * 0.01 * w


class MomentumWithCosine(Momentum):
    said = ("momentum 0.95 and the rates 0.25,",)

    def of(self, w, g, p):
        return super().of(w, g, p) * (1 + np.cos(np.pi * (self.t - 1) / 9)) / 2


class MomentumOfKerasWithWarmUp(Optimizer):
    said = ("momentum 0.9 and the rates 0.0833333, 0.166667, 0.25, 0.25",)

    def of(self, w, g, p):
        self.m[p] = 0.9 * self.m[p] + LR * min(1, self.t / 3) * g
        return self.m[p]


class MomentumClipped(Momentum):
    told, said = None, ("momentum 0.95 and gradients clipped to a norm of 0.5",)

    def change(self, weights, grads):
        short = min(1, 0.5 / (norm(grads) + 1e-6))
        return super().change(weights, [short * g for g in grads])


class Nesterov(Optimizer):
    told, said = "nesterov", ("Nesterov's momentum 0.8",)

    def of(self, w, g, p):
        self.m[p] = 0.8 * self.m[p] + g
        return LR * (g + 0.8 * self.m[p])


class NesterovUntold(Nesterov):
    told = None


class DecoupledDecay(Optimizer):
    said = ("SGD with weight decay 0.05",)

    def of(self, w, g, p):
        return LR * (g + 0.05 * w)


class Cosine(Optimizer):
    said = ("the rates 0.25, 0.213388, 0.125, 0.0366117",)

    def of(self, w, g, p):
        return LR * g * (1 + np.cos(np.pi * (self.t - 1) / 4)) / 2


class WarmUpFromNothing(Optimizer):
    said = ("the rates 0, 0.0625, 0.125, 0.1875",)

    def of(self, w, g, p):
        return LR * g * (self.t - 1) / 4


class RatesOfLayers(Optimizer):
    said = ("parameters' rates times 1, 2, 1",)

    def of(self, w, g, p):
        return LR * g * FACTORS[p]


class AdamWithRatesOfLayers(AdamOfPyTorch):
    told, said = None, ("parameters' rates times 1, 2, 1",)

    def of(self, w, g, p):
        return super().of(w, g, p) * FACTORS[p]


class ClippedToAHalf(Optimizer):
    told, said = "clipped", ("gradients clipped to a norm of 0.5",)

    def change(self, weights, grads):
        short = min(1, 0.5 / (norm(grads) + 1e-6))
        return [LR * short * g for g in grads]


class RateInFloat32(Optimizer):
    said = ("SGD with the rates",)
    lr = float(np.float32(0.3)) / 0.3 * LR

    def of(self, w, g, p):
        return self.lr * g


FOUND = [
    kind
    for parent in (Optimizer, AdamOfKeras, AdamOfPyTorch, AdamW, Momentum, Nesterov)
    for kind in parent.__subclasses__()
    if kind.__dict__.get("said")
]
FOUND += [MomentumDampenedFromTheFirst, AdamAlwaysClipped, AdamWOfAnyBias]


# Rules that can't be replayed.


class Lion(Optimizer):
    def of(self, w, g, p):
        moved = np.sign(0.9 * self.m[p] + 0.1 * g)
        self.m[p] = 0.99 * self.m[p] + 0.01 * g
        return 0.02 * LR * (moved + 0.1 * w)


class LAMB(AdamOfPyTorch):
    told, betas = "lamb", (0.9, 0.999)

    def of(self, w, g, p):
        u = super().of(w, g, p) / LR + 0.01 * w
        return LR * norm([w]) / norm([u]) * u


class LAMBUntold(LAMB):
    told = None


class LARS(Optimizer):
    def of(self, w, g, p):
        if w.ndim > 1:
            g = 0.1 * norm([w]) / (norm([g]) + 1e-9) * g
        self.m[p] = 0.9 * self.m[p] + g
        return LR * self.m[p]


class Muon(Optimizer):
    def of(self, w, g, p):
        self.m[p] = 0.95 * self.m[p] + g
        if w.ndim < 2:
            return LR * self.m[p]
        m = self.m[p] / norm([self.m[p]])
        for _ in range(5):  # of Newton and Schulz
            s = m @ m.T
            m = 3.4445 * m + (-4.775 * s + 2.0315 * s @ s) @ m
        return 0.1 * LR * m


class Adafactor(Optimizer):
    def of(self, w, g, p):
        square = g * g + 1e-30
        if w.ndim > 1:
            rows, columns = square.mean(1, keepdims=True), square.mean(0, keepdims=True)
            square = rows * columns / rows.mean()
        kept = 1 - self.t**-0.8
        self.v[p] = kept * self.v[p] + (1 - kept) * square
        u = g / np.sqrt(self.v[p])
        return 0.1 * LR * u / max(1, np.sqrt((u * u).mean()))


class ClippedByValue(Optimizer):
    def of(self, w, g, p):
        return LR * np.clip(g, -0.05, 0.05)


UNKNOWN = [Lion, LAMB, LAMBUntold, LARS, Muon, Adafactor, ClippedByValue]


# Mistakes of parallelism: what each copy follows.


def mean(grads, sizes):
    whole = [sum(same) / sum(sizes) for same in zip(*grads, strict=True)]
    return [whole] * len(sizes)


def sums_for_means(grads, sizes):
    return [[len(sizes) * g for g in own] for own in mean(grads, sizes)]


def means_of_means(grads, sizes):
    own = [[g / n for g in of] for of, n in zip(grads, sizes, strict=True)]
    whole = [sum(same) / len(sizes) for same in zip(*own, strict=True)]
    return [whole] * len(sizes)


def without_the_last(grads, sizes):
    if len(sizes) == 1:
        return mean(grads, sizes)
    whole = [sum(same[:-1]) / sum(sizes) for same in zip(*grads, strict=True)]
    return [whole] * len(sizes)


def apart(grads, sizes):
    own = [[g / n for g in of] for of, n in zip(grads, sizes, strict=True)]
    return [*mean(grads, sizes)[:-1], own[-1]]


def bent(optimizer, bend):
    """Return a training whose copies each have such an optimizer."""

    class Replicas:
        def __init__(self, weights, devices):
            self.own = [[w.copy() for w in weights] for _ in range(devices)]
            self.rules = [optimizer(weights) for _ in range(devices)]

        def take(self, X, y):
            sizes = shares(len(X), len(self.own))
            ends = np.cumsum(sizes)[:-1]
            parts = zip(np.split(X, ends), np.split(y, ends), self.own, strict=True)
            losses, grads = zip(*(gradient(*part) for part in parts), strict=True)
            sizes = [max(n, 1e-300) for n in sizes]
            for own, rule, g in zip(
                self.own, self.rules, bend(grads, sizes), strict=True
            ):
                changes = rule.change(own, g)
                for w, change in zip(own, changes, strict=True):
                    w -= change.astype(w.dtype)
            return sum(losses) / len(X)

        def copies(self):
            return self.own

    return Replicas


def subject(optimizer, bend=mean, dtype=np.float64, **about):
    rng = np.random.default_rng(0)
    drawn_weights = [2 * rng.normal(size=s) for s in SHAPES]
    pairs = zip(drawn_weights, optimizer.begun, strict=True)
    weights = [(w * by).astype(dtype) for w, by in pairs]
    about = {"rule": optimizer.told, "name": optimizer.__name__, "lr": LR} | about

    def drawn(samples, seed):
        X, y = draw(samples, seed)
        return X.astype(dtype), y

    start = bent(optimizer, bend)
    return Subject(start, gradient, drawn, weights, **about)


def plain(verdict):
    return " ".join(str(verdict).split())


@pytest.mark.parametrize("kind", FOUND, ids=lambda kind: kind.__name__)
def test_hyperparameters_that_were_not_told_are_found(kind):
    verdict = judge(subject(kind))
    assert verdict.right, str(verdict)
    assert "each sample counted once" in plain(verdict)
    assert all(said in plain(verdict) for said in kind.said), str(verdict)
    assert "what fits the step on one device best is" in plain(verdict)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", [AdamWOfAnyBias, AdamW])
def test_a_decay_is_found_of_parameters_that_begin_at_0(kind, dtype):
    own = subject(kind, dtype=dtype)
    verdict = judge(own)
    assert verdict.right and "each sample counted once" in plain(verdict), str(verdict)
    assert "weight decay 0.05 decoupled" in plain(verdict), str(verdict)


ADAM = {"betas": (0.9, 0.95), "epsilon": 1e-8, "before": False}


@pytest.mark.parametrize("lr", [LR, 2 * LR])
def test_an_optimizer_that_can_be_asked_is_believed_if_that_explains_the_step(lr):
    said = lambda: ("adam", ADAM | {"rates": (LR,)})  # noqa: E731
    verdict = judge(subject(AdamUntold, optimizer_says=said, lr=lr))
    assert verdict.right and "each sample counted once" in plain(verdict), str(verdict)
    assert "its optimizer is Adam with betas 0.9 and 0.95" in plain(verdict)
    wrong = "lr must be its learning rate, 0.25, got 0.5: correct it"
    assert (wrong in plain(verdict)) == (lr != LR), str(verdict)
    verdict = judge(subject(AdamUntold, means_of_means, optimizer_says=said, lr=lr))
    assert verdict.findings[0].broken == "shares", str(verdict)


def test_an_optimizer_that_says_something_else_is_not_believed():
    def stops():
        raise AttributeError("no group")

    for said in (lambda: None, stops, lambda: ("adam", {"rates": (LR,)})):
        verdict = judge(subject(AdamUntold, optimizer_says=said))
        assert verdict.right, str(verdict)
        assert "fits the step on one device best" in plain(verdict)


@pytest.mark.parametrize("most", [0.1, 0.3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_norm_that_changes_no_step_is_not_guessed(most, dtype):
    """Adam goes as far along a gradient that is ten times as long."""
    kind = type("Clipped", (AdamAlwaysClipped,), {"most": most})
    verdict = judge(subject(kind, dtype=dtype))
    assert verdict.right, str(verdict)
    assert all(said in plain(verdict) for said in kind.said), str(verdict)
    assert "norm of" not in plain(verdict) and "epsilon 1e" not in plain(verdict)


@pytest.mark.parametrize("kind", UNKNOWN, ids=lambda kind: kind.__name__)
def test_a_rule_that_nobody_knows_is_no_fault(kind):
    verdict = judge(subject(kind))
    assert verdict.right, str(verdict)
    assert "not tried: how often each sample is counted" in plain(verdict)
    assert "the same on 1 to 3 devices" in plain(verdict)


MISTAKES = {
    "mean": sums_for_means,
    "shares": means_of_means,
    "data": without_the_last,
    "copies": apart,
}
SOME = [
    AdamOfPyTorch,
    AdamW,
    RMSpropOfPyTorch,
    Momentum,
    MomentumDampened,
    MomentumOfKerasWithWarmUp,
    Nesterov,
    DecoupledDecay,
    Cosine,
    RatesOfLayers,
    LAMB,
]


@pytest.mark.parametrize("broken", MISTAKES)
@pytest.mark.parametrize("kind", SOME, ids=lambda kind: kind.__name__)
def test_a_number_that_was_found_hides_no_mistake_of_several_devices(kind, broken):
    verdict = judge(subject(kind, MISTAKES[broken]))
    assert not verdict.unsure
    assert not verdict.right
    if kind is not LAMB or broken != "data":  # a lost sample moves LAMB otherwise
        assert verdict.findings[0].broken == broken, str(verdict)


# Of a sum, these take the same step as of a mean.
UNMOVED = (Lion, Adafactor)


@pytest.mark.parametrize("broken", MISTAKES)
@pytest.mark.parametrize("kind", [Lion, LARS, Muon, Adafactor, ClippedByValue])
def test_an_unknown_rule_hides_no_mistake_of_several_devices(kind, broken):
    verdict = judge(subject(kind, MISTAKES[broken], rule="own"))
    assert verdict.right == (kind in UNMOVED and broken == "mean"), str(verdict)
    assert not verdict.unsure


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", [*UNKNOWN, AdamAlwaysClipped, AdamWWithWarmUp])
def test_a_mean_of_means_is_called_so_under_any_rule(kind, dtype):
    verdict = judge(subject(kind, means_of_means, dtype, rule=kind.told))
    assert not verdict.unsure
    found = verdict.findings[0]
    assert found.broken == "shares", str(verdict)
    assert found.smallest[:2] == (2, 3), str(verdict)


class AdamWWithWarmUpByDevices(AdamWWithWarmUp):
    """Its scheduler goes on once per device and step: right on one device alone."""

    betas, devices = (0.9, 0.95), 1

    def of(self, w, g, p):
        rate = min(1, (1 + (self.t - 1) * self.devices) / 4)
        return AdamW.of(self, w, g, p) * rate


class ClippedWithWarmUpByDevices(AdamWWithWarmUpByDevices):
    def change(self, weights, grads):
        short = min(1, 0.3 / (norm(grads) + 1e-6))
        return super().change(weights, [short * g for g in grads])


class MomentumWithWarmUpByDevices(MomentumUntold):
    devices = 1

    def of(self, w, g, p):
        return super().of(w, g, p) * min(1, (1 + (self.t - 1) * self.devices) / 4)


def with_rates_by_devices(kind, dtype, **about):
    """Return a subject whose optimizers know the number of devices."""
    own = subject(kind, dtype=dtype, **about)

    def start(weights, devices):
        training = own.start(weights, devices)
        for rule in training.rules:
            rule.devices = devices
        return training

    return replace(own, start=start)


BY_DEVICES = (
    AdamWWithWarmUpByDevices,
    ClippedWithWarmUpByDevices,
    MomentumWithWarmUpByDevices,
)


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", BY_DEVICES)
def test_a_rate_that_several_devices_bring_on_is_named(kind, dtype, even):
    """In float32, a first step of Adam tells so little that a count can't see it."""
    verdict = judge(with_rates_by_devices(kind, dtype, even=even))
    assert not verdict.unsure and not verdict.right, str(verdict)
    found = verdict.findings[0]
    assert found.broken == "schedule", str(verdict)
    times, rate = (1.5, 0.1875) if found.case.devices == 2 else (2, 0.25)
    said = plain(verdict)
    assert "after 1 right step, " in said and f" {times} times" in said, said
    assert f"at a rate of {rate}, not 0.125" in said, said
    assert found.smallest == (2, 2, 2, 0), str(verdict)


class AdamCountedByDevices(AdamOfPyTorch):
    """Its counter, which corrects the bias, goes on once per device and step."""

    told, devices = None, 1

    def divided(self, m, v, a, b, t):
        return super().divided(m, v, a, b, 1 + (t - 1) * self.devices)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_counter_that_several_devices_bring_on_is_no_rate(dtype):
    verdict = judge(with_rates_by_devices(AdamCountedByDevices, dtype))
    assert verdict.findings[0].broken == "optimizer", str(verdict)
    counted = verdict.findings[0].case.devices + 1
    assert f"as if this step 2 were counted as step {counted}" in plain(verdict)


@pytest.mark.parametrize("rule", [None, "own"])
@pytest.mark.parametrize("kind", BY_DEVICES)
def test_a_known_rule_finds_no_less_than_an_unknown_one(kind, rule):
    verdict = judge(with_rates_by_devices(kind, np.float32, rule=rule))
    assert verdict.findings[0].broken == "schedule", str(verdict)


@pytest.mark.parametrize("kind", [AdamWWithWarmUp, AdamWOfMatrices, AdamAlwaysClipped])
def test_a_right_rate_is_right_in_float32_too(kind):
    for seed in range(2):
        own = subject(kind, dtype=np.float32)
        weights = [w * (1 + seed) for w in own.weights]
        verdict = judge(replace(own, weights=weights))
        assert verdict.right, str(verdict)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", [AdamOfPyTorch, AdamWWithWarmUp])
def test_a_sum_is_named_though_adam_goes_as_far_along_it(kind, dtype):
    verdict = judge(subject(kind, sums_for_means, dtype))
    found = verdict.findings[0]
    assert found.broken == "mean", str(verdict)
    assert "the number of devices: a sum instead of a mean" in plain(verdict)
    if dtype == np.float32:
        moments = "first moments 2 times, second ones 4 times one device's"
        assert moments in plain(verdict)


class AdamWithoutEpsilon(AdamWWithWarmUp):
    epsilon = 0.0


def test_what_is_kept_shows_a_sum_that_moves_no_weight():
    """Without an epsilon, Adam goes exactly as far; its averages tell, if seen."""
    own = subject(AdamWithoutEpsilon, sums_for_means, np.float32, rule="own")

    def start(weights, devices):
        training = own.start(weights, devices)
        training.state = lambda: {
            f"{name}{p}": [getattr(rule, name)[p] for rule in training.rules]
            for name in "mv"
            for p in range(len(weights))
        }
        return training

    assert judge(own).right  # nobody sees it
    verdict = judge(replace(own, start=start))
    assert verdict.findings[0].broken == "mean", str(verdict)
    said = "first moments are 3 times as large as on 1 device, and second ones 9 times"
    assert said in plain(verdict)
    right = subject(AdamWithoutEpsilon, dtype=np.float32, rule="own")
    assert judge(right).right


class TakesFewSamples(bent(AdamW, means_of_means)):
    def take(self, X, y):
        if len(X) in (12, 18):  # as many as repeats ask for
            raise RuntimeError("no batch of this size")
        return super().take(X, y)


def test_a_step_that_stops_at_repeats_is_named_by_its_even_shares():
    own = subject(AdamW, dtype=np.float32)
    verdict = judge(replace(own, start=TakesFewSamples))
    assert verdict.findings[0].broken == "shares", str(verdict)
    assert not any("no batch" in one.sentence for one in verdict.findings)


@pytest.mark.parametrize("kind", [AdamOfPyTorch, AdamW, Momentum, Cosine, Lion])
def test_hyperparameters_are_found_in_float32_too(kind):
    verdict = judge(subject(kind, dtype=np.float32))
    assert verdict.right, str(verdict)
    verdict = judge(subject(kind, means_of_means, dtype=np.float32))
    assert not verdict.right
    assert not verdict.unsure, str(verdict)


def test_what_is_told_is_not_searched_for():
    numbers = {"betas": (0.9, 0.95), "epsilon": 1e-8, "before": False}
    told = subject(AdamUntold, rule="adam", hyperparameters=numbers)
    verdict = judge(told)
    assert verdict.right, str(verdict)
    assert not any("on one device" in remark for remark in verdict.remarks)
    numbers = numbers | {"betas": (0.9, 0.96)}
    verdict = judge(subject(AdamUntold, rule="adam", hyperparameters=numbers))
    assert "on one device" in verdict.unsure


class TwiceTheRate(Optimizer):
    def of(self, w, g, p):
        return 2 * LR * g


class HalfOfAGradient(Optimizer):
    """Its second layer is never told of what it is asked."""

    def of(self, w, g, p):
        return LR * (0.5 * g if p == 1 else np.roll(g, 1))


class DecayOfTheWrongSign(Optimizer):
    def of(self, w, g, p):
        return LR * (g - 0.05 * w)


class ClippedBeforeItIsScaledBack(Optimizer):
    told = "clipped"

    def change(self, weights, grads):
        scaled = [1024 * g for g in grads]
        short = min(1, 1 / (norm(scaled) + 1e-6))
        return [LR * short * g / 1024 for g in scaled]


@pytest.mark.parametrize(
    "kind",
    [TwiceTheRate, HalfOfAGradient, DecayOfTheWrongSign, ClippedBeforeItIsScaledBack],
)
def test_a_mistake_on_one_device_is_no_hyperparameter(kind):
    verdict = judge(subject(kind))
    assert not verdict.right, str(verdict)
