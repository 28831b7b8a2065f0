"""How an optimizer's change of the weights is told back from a gradient.

A rule has seen all earlier changes, so it knows what its averages must be, if the
optimizer is what it says. Around its averages, every rule has the same: a gradient may
be clipped and get a weight decay, and a rate belongs to each step and each parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from manygpu.prove.subject import Subject

Changes = list[np.ndarray]
OPERATIONS = 16  # of an optimizer, each of which may round
FLOAT32 = 1e-6  # a rate that is off by less is the same one, maybe in float32
BY_COUNT, COUNTED_ON = 1e-3, 8  # how near a correction is; how far a count may be off
OF_A_NORM = 1e-6  # is added to it, as PyTorch does; in float32, nobody sees it


class Plain:
    """Plain SGD: w <- w - lr g.

    by_last_digits: whether a change tells a gradient only by its last digits.

    Args:
        lr: the rate.
        rates: of each step, from the first one on; the last is for all later ones.
        layers: by how much each parameter's rate is multiplied.
        clip: the largest norm, over all parameters, that a gradient may have.
        decay: times a weight, is added to its gradient; a number, or one for each
            parameter.
        decoupled: whether the decay is added behind the averages instead.
        rate_inside: whether the averages are of gradients times the rate, as Keras'
            momentum is; that shows if the rate changes.
    """

    by_last_digits = False

    def __init__(
        self,
        lr: float,
        *,
        rates: Sequence[float] = (),
        layers: Sequence[float] = (),
        clip: float = np.inf,
        decay: float | Sequence[float] = 0.0,
        decoupled: bool = False,
        rate_inside: bool = False,
    ) -> None:
        self.lr, self.rates, self.layers = lr, [*rates], layers
        self.clip, self.decay, self.decoupled = clip, decay, decoupled
        self.rate_inside = rate_inside
        self.t, self.weights = 0, None

    @property
    def remembers(self) -> bool:
        """Whether a second step asks what was before it."""
        return not np.allclose(self.rates[:2], self.rate, rtol=FLOAT32)

    @property
    def units_off(self) -> float:
        """Units in the last place by which rounding may change the next change."""
        return OPERATIONS

    @property
    def rate(self) -> float:
        """The rate of the next step."""
        return self.rates[min(self.t, len(self.rates) - 1)] if self.rates else self.lr

    def as_step(self, ratio: float) -> int:
        """Return which step's correction of a bias makes a change so long; 0: none's.

        ratio: how many times as long as the next step's change should be.
        """
        return 0

    def at(self, weights: Changes) -> None:
        """Say from which weights the next step goes; a decay needs them."""
        self.weights = [np.asarray(w).astype(np.float64).ravel() for w in weights]

    def gradient(self, changes: Changes, right: Changes) -> Changes:
        """Return the gradient that made the weights smaller by `changes`.

        right: what it should be; of two that fit, the nearer to this one.
        """
        if self.rate == 0:  # such a step tells nothing, if it moves nothing
            self.follow(right)
            still = not any(np.any(c) for c in changes)
            return list(right) if still else [c * np.inf for c in changes]
        rates, decays = self._rates(right), self._decays(right, self.decoupled)
        triples = zip(changes, rates, decays, strict=True)
        made = [change / r - d for change, r, d in triples]
        seen = self.inverse(made, self._seen(right))
        factor, decays = self._factor(right), self._decays(right, not self.decoupled)
        self.remember(seen)  # and so go on to the next step's rate
        return [(g - d) / factor for g, d in zip(seen, decays, strict=True)]

    def follow(self, grads: Changes) -> None:
        """Remember a step along these gradients, as `gradient` does of those found."""
        self.remember(self._seen(grads))

    def change(self, grads: Changes) -> Changes:
        """Return by how much such gradients would make the weights smaller."""
        rates, decays = self._rates(grads), self._decays(grads, self.decoupled)
        made = self.direction(self._seen(grads))
        return [r * (u + d) for r, u, d in zip(rates, made, decays, strict=True)]

    # What differs between rules: of gradients that are clipped, with their decay.

    def direction(self, seen: Changes) -> Changes:
        """Return what the rate is multiplied by."""
        return list(seen)

    def inverse(self, made: Changes, right: Changes) -> Changes:
        """Return what `direction` made this of; of two, the nearer to `right`."""
        return list(made)

    def remember(self, seen: Changes) -> None:
        """Bring the averages, and the number of the step, up to date."""
        self.t += 1

    # What is around them.

    def _rates(self, like: Changes) -> list[float]:
        rate = self.lr if self.rate_inside else self.rate
        return [rate * factor for factor in self.layers or [1.0] * len(like)]

    def _decays(self, like: Changes, here: bool) -> list:
        """Return the weights' decays, or zeros if they don't belong here."""
        if not here or not np.any(self.decay) or self.weights is None:
            return [0.0] * len(like)
        decays = np.broadcast_to(self.decay, len(like))
        pairs = zip(decays, self.weights, like, strict=True)
        return [d * w.reshape(g.shape) for d, w, g in pairs]

    def _factor(self, grads: Changes) -> float:
        """Return by how much a gradient is multiplied before anything else."""
        factor = self.rate / self.lr if self.rate_inside else 1.0
        if np.isinf(self.clip):
            return factor
        norm = np.sqrt(sum((g * g).sum() for g in grads))
        return factor * float(min(1, self.clip / (norm + OF_A_NORM)))

    def _seen(self, grads: Changes) -> Changes:
        factor, decays = self._factor(grads), self._decays(grads, not self.decoupled)
        return [factor * g + d for g, d in zip(grads, decays, strict=True)]


class Momentum(Plain):
    """v <- m v + (1 - dampening) g, w <- w - lr v; Nesterov's: w <- w - lr (g + m v).

    Args:
        momentum: `m` above.
        dampening: of each gradient but the first.
        nesterov: whether it is Nesterov's.
        dampens_first: whether the first gradient is dampened, too: not in PyTorch.
        about: see `Plain`.
    """

    remembers = True

    def __init__(
        self,
        lr: float,
        *,
        momentum: float = 0.9,
        dampening: float = 0.0,
        nesterov: bool = False,
        dampens_first: bool = False,
        **about: Any,
    ) -> None:
        super().__init__(lr, **about)
        self.momentum, self.dampening = momentum, dampening
        self.nesterov, self.dampens_first = nesterov, dampens_first
        self.velocity: Changes | None = None

    @property
    def new(self) -> float:
        """The part of a gradient that goes into the velocity."""
        first = self.velocity is None and not self.dampens_first
        return 1.0 if first else 1 - self.dampening

    def direction(self, seen: Changes) -> Changes:
        own, rest = self._parts()
        return [own * g + rest * v for g, v in zip(seen, self._past(seen), strict=True)]

    def inverse(self, made: Changes, right: Changes) -> Changes:
        own, rest = self._parts()
        pairs = zip(made, self._past(made), strict=True)
        return [(u - rest * v) / own for u, v in pairs]

    def remember(self, seen: Changes) -> None:
        pairs = zip(seen, self._past(seen), strict=True)
        self.velocity = [self.momentum * v + self.new * g for g, v in pairs]
        self.t += 1

    def _parts(self) -> tuple[float, float]:
        """Return how much of a gradient, and of the velocity before, is in a change."""
        m, new = self.momentum, self.new
        return (1 + m * new, m * m) if self.nesterov else (new, m)

    def _past(self, like: Changes) -> Changes:
        return self.velocity or [0 * g for g in like]


class Adaptive(Plain):
    """m <- kept_m m + new_m g, v <- kept_v v + new_v g^2, w <- w - lr m / root(v).

    Args:
        first, squares: what is kept of m and of v, and how much a new one counts.
        epsilon: added so that no root is 0.
        inside: whether it is added inside the root.
        before: whether it is added to averages before their bias is corrected, as
            Keras does and PyTorch doesn't.
        corrected: whether the bias of the averages is corrected at all.
        start: v before the first step.
        about: see `Plain`.
    """

    by_last_digits = remembers = True

    def __init__(
        self,
        lr: float,
        first: tuple[float, float],
        squares: tuple[float, float],
        *,
        epsilon: float,
        inside: bool,
        before: bool = True,
        corrected: bool = False,
        start: float = 0.0,
        **about: Any,
    ) -> None:
        super().__init__(lr, **about)
        self.first, self.squares = first, squares
        self.epsilon, self.inside, self.before = epsilon, inside, before
        self.corrected, self.start = corrected, start
        self.averages: list[tuple[np.ndarray, np.ndarray]] = []

    @property
    def units_off(self) -> float:
        # 1 - beta^t is a small number that is left of two larger ones.
        of_bias = 1 / (1 - self.squares[0] ** (self.t + 1)) if self.corrected else 0
        return OPERATIONS + of_bias

    def as_step(self, ratio: float) -> int:
        if not self.corrected:
            return 0
        own = self._correction(self.t + 1)
        for t in range(1, COUNTED_ON * (self.t + 1) + 1):
            if (
                t != self.t + 1
                and abs(self._correction(t) / own / ratio - 1) < BY_COUNT
            ):
                return t
        return 0

    def direction(self, seen: Changes) -> Changes:
        rate, added, inside = self._constants()
        made = []
        for own, g in zip(self._held(seen), seen, strict=True):
            m, v = self._next(*own, g)
            made.append(rate * m / (np.sqrt(v + inside) + added))
        return made

    def inverse(self, made: Changes, right: Changes) -> Changes:
        rate, *added = self._constants()
        held = self._held(made)
        return [
            self._solved(u / rate, m, v, near, *added)
            for u, (m, v), near in zip(made, held, right, strict=True)
        ]

    def remember(self, seen: Changes) -> None:
        pairs = zip(self._held(seen), seen, strict=True)
        self.averages = [self._next(*own, g) for own, g in pairs]
        self.t += 1

    def _constants(self) -> tuple[float, float, float]:
        """Return the correction of m / root(v), and what is added to root and v."""
        bias = 1.0
        rate = 1.0
        if self.corrected:
            bias = 1 - self.squares[0] ** (self.t + 1)
            rate = self._correction(self.t + 1)
        bias = 1.0 if self.before else bias
        if self.inside:
            return rate, 0.0, self.epsilon * bias
        return rate, self.epsilon * np.sqrt(bias), 0.0

    def _correction(self, t: int) -> float:
        """Return by what m / root(v) is multiplied in step t, the first one 1."""
        return float(np.sqrt(1 - self.squares[0] ** t) / (1 - self.first[0] ** t))

    def _held(self, like: Changes) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return m and v for each parameter as the last step left them."""
        return self.averages or [(0 * c, np.full(c.shape, self.start)) for c in like]

    def _next(self, m: np.ndarray, v: np.ndarray, g: np.ndarray) -> tuple:
        """Return m and v after a step along g."""
        (a, b), (c, d) = self.first, self.squares
        return a * m + b * g, c * v + d * g * g

    def _solved(self, u, m, v, near, added, inside) -> np.ndarray:
        """Solve a m + b g = u (sqrt(c v + d g^2 + inside) + added) for g."""
        (a, b), (c, d) = self.first, self.squares
        start, held = a * m - u * added, c * v + inside
        two = b * b - u * u * d
        one, zero = b * start, start * start - u * u * held
        root = np.sqrt(np.maximum(one * one - two * zero, 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            both = np.stack([(-one + root) / two, (-one - root) / two])
        both = np.where(np.isfinite(both), both, 0)
        back = (a * m + b * both) / (np.sqrt(held + d * both * both) + added)
        fits = np.abs(back - u) <= 1e-6 * (1 + np.abs(u))
        apart = np.where(fits, np.abs(both - near), np.inf)
        return np.take_along_axis(both, apart.argmin(axis=0)[None], axis=0)[0]


def adam(
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-7,
    inside: bool = False,
    before: bool = True,
    corrected: bool = True,
    **about: Any,
) -> Plain:
    """Return Adam, as Keras has it: epsilon is added to root(v), uncorrected."""
    pairs = [(beta, 1 - beta) for beta in betas]
    about |= {"epsilon": epsilon, "inside": inside}
    return Adaptive(lr, *pairs, before=before, corrected=corrected, **about)


def rmsprop(
    lr: float,
    rho: float = 0.9,
    epsilon: float = 1e-7,
    inside: bool = True,
    **about: Any,
) -> Plain:
    """Return RMSprop, as Keras has it: v <- rho v + (1 - rho) g^2."""
    about |= {"epsilon": epsilon, "inside": inside}
    return Adaptive(lr, (0.0, 1.0), (rho, 1 - rho), **about)


def adagrad(
    lr: float,
    start: float = 0.1,
    epsilon: float = 1e-7,
    inside: bool = True,
    **about: Any,
) -> Plain:
    """Return Adagrad, as Keras has it: v <- v + g^2, and v begins at 0.1."""
    about |= {"start": start, "epsilon": epsilon, "inside": inside}
    return Adaptive(lr, (0.0, 1.0), (1.0, 1.0), **about)


def rising(lr: float, **about: Any) -> Plain:
    """Return plain SGD: from lr to 4 lr in 4 steps, doubled from the second one on."""
    rates = [lr * (1 + 3 * t / 4) * (1 + (t > 0)) for t in range(5)]
    return Plain(lr, **{"rates": rates} | about)


def clipped(lr: float, clip: float = 1.0, **about: Any) -> Plain:
    """Return plain SGD along a gradient whose norm is at most 1."""
    return Plain(lr, clip=clip, **about)


RULES: dict[str, Callable[..., Plain]] = {
    "sgd": Plain,
    "sgd, rising rate": rising,
    "clipped": clipped,
    "momentum": Momentum,
    "nesterov": partial(Momentum, nesterov=True),
    "adagrad": adagrad,
    "rmsprop": rmsprop,
    "adam": adam,
    "adamw": partial(adam, epsilon=1e-8, before=False, decay=0.01, decoupled=True),
}
FAMILIES = (
    ("sgd", "sgd, rising rate", "clipped", "momentum", "nesterov"),
    ("adam", "adamw"),
    ("rmsprop",),
    ("adagrad",),
)
DEFAULT, UNKNOWN = "sgd", "unknown"


def is_known(rule: str | None) -> bool:
    """Return whether a rule was told that can be replayed."""
    return rule in RULES


def begun(subject: Subject) -> Plain:
    """Return a subject's rule, which has seen no step.

    Raises:
        KeyError: no rule has this name.
        TypeError: the rule has no such hyperparameter.
    """
    return RULES[subject.rule or DEFAULT](subject.lr, **subject.hyperparameters or {})
