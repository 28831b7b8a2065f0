"""How an optimizer's change of the weights is told back from a gradient.

A rule has seen all earlier changes, so it knows what its averages must be, if the
optimizer is what it says.
"""

from __future__ import annotations

import numpy as np

Changes = list[np.ndarray]
OPERATIONS = 16  # of an optimizer, each of which may round


class Plain:
    """Plain SGD: w <- w - lr g.

    by_last_digits: whether a change tells a gradient only by its last digits.
    remembers: whether a step asks what was before it.
    """

    by_last_digits = remembers = False

    def __init__(self, lr: float) -> None:
        self.lr = lr

    @property
    def units_off(self) -> float:
        """Units in the last place by which rounding may change the next change."""
        return OPERATIONS

    def gradient(self, changes: Changes, right: Changes) -> Changes:
        """Return the gradient that made the weights smaller by `changes`.

        right: what it should be; of two that fit, the nearer to this one.
        """
        return [change / self.lr for change in changes]

    def follow(self, grads: Changes) -> None:
        """Remember a step along these gradients, as `gradient` does of those found."""
        self.gradient(self.change(grads), grads)

    def change(self, grads: Changes) -> Changes:
        """Return by how much such gradients would make the weights smaller."""
        return [self.lr * g for g in grads]


class Clipped(Plain):
    """Plain SGD along a gradient whose norm, over all parameters, is at most 1."""

    most, epsilon = 1.0, 1e-6  # as PyTorch has it; in float32, nobody sees epsilon

    def gradient(self, changes: Changes, right: Changes) -> Changes:
        scale = self.scale(right)
        return [change / self.lr / scale for change in changes]

    def change(self, grads: Changes) -> Changes:
        scale = self.scale(grads)
        return [self.lr * scale * g for g in grads]

    def scale(self, grads: Changes) -> float:
        norm = np.sqrt(sum((g * g).sum() for g in grads))
        return float(min(1, self.most / (norm + self.epsilon)))


class Rising(Plain):
    """Plain SGD at a rate from lr to 4 lr in 4 steps, doubled from the second on."""

    remembers = True

    def __init__(self, lr: float) -> None:
        super().__init__(lr)
        self.steps = [lr * (1 + 3 * t / 4) * (1 + (t > 0)) for t in range(5)]

    def gradient(self, changes: Changes, right: Changes) -> Changes:
        found = super().gradient(changes, right)
        self.steps = self.steps[1:] or self.steps
        self.lr = self.steps[0]
        return found


class Momentum(Plain):
    """v <- m v + g, w <- w - lr v."""

    share, remembers = 0.9, True

    def __init__(self, lr: float) -> None:
        super().__init__(lr)
        self.velocity: Changes | None = None

    def gradient(self, changes: Changes, right: Changes) -> Changes:
        now = [change / self.lr for change in changes]
        past, self.velocity = self.velocity or [0 * v for v in now], now
        return [v - self.share * old for v, old in zip(now, past, strict=True)]

    def change(self, grads: Changes) -> Changes:
        past = self.velocity or [0 * g for g in grads]
        pairs = zip(grads, past, strict=True)
        return [self.lr * (g + self.share * old) for g, old in pairs]


class Nesterov(Momentum):
    """v <- m v + g, w <- w - lr (g + m v)."""

    def gradient(self, changes: Changes, right: Changes) -> Changes:
        m, past = self.share, self.velocity or [0 * c for c in changes]
        pairs = list(zip(changes, past, strict=True))
        found = [(c / self.lr - m * m * v) / (1 + m) for c, v in pairs]
        self.velocity = [m * v + g for v, g in zip(past, found, strict=True)]
        return found

    def change(self, grads: Changes) -> Changes:
        m, past = self.share, self.velocity or [0 * g for g in grads]
        pairs = zip(grads, past, strict=True)
        return [self.lr * ((1 + m) * g + m * m * v) for g, v in pairs]


class Adagrad(Plain):
    """v <- v + g^2, w <- w - lr g / sqrt(v + epsilon), as Keras has it."""

    kept, new, first, epsilon = 1.0, 1.0, 0.1, 1e-7
    by_last_digits = remembers = True

    def __init__(self, lr: float) -> None:
        super().__init__(lr)
        self.squares: Changes | None = None

    def held(self, like: Changes) -> Changes:
        """Return v for each parameter as the last step left it."""
        return self.squares or [np.full(one.shape, self.first) for one in like]

    def gradient(self, changes: Changes, right: Changes) -> Changes:
        past, found = self.held(changes), []
        for change, v in zip(changes, past, strict=True):
            u = change / self.lr
            with np.errstate(divide="ignore", invalid="ignore"):
                square = u * u * (self.kept * v + self.epsilon) / (1 - self.new * u * u)
            found.append(np.sign(u) * np.sqrt(np.maximum(square, 0)))
        self.follow(found)
        return found

    def follow(self, grads: Changes) -> None:
        pairs = zip(self.held(grads), grads, strict=True)
        self.squares = [self.kept * v + self.new * g * g for v, g in pairs]

    def change(self, grads: Changes) -> Changes:
        changes = []
        for g, v in zip(grads, self.held(grads), strict=True):
            now = self.kept * v + self.new * g * g
            changes.append(self.lr * g / np.sqrt(now + self.epsilon))
        return changes


class RMSprop(Adagrad):
    """v <- 0.9 v + 0.1 g^2, w <- w - lr g / sqrt(v + epsilon), as Keras has it."""

    kept, new, first = 0.9, 0.1, 0.0


class Adam(Plain):
    """Adam as Keras has it: epsilon is added to sqrt(v), uncorrected."""

    beta_1, beta_2, epsilon = 0.9, 0.999, 1e-7
    by_last_digits = remembers = True

    def __init__(self, lr: float) -> None:
        super().__init__(lr)
        self.t, self.held = 0, None

    def gradient(self, changes: Changes, right: Changes) -> Changes:
        averages, rate = self.averages(changes), self.rate(self.t + 1)
        # change / rate is m / (sqrt(v) + epsilon)
        found = [
            self.inverse(change / rate, m, v, near)
            for change, (m, v), near in zip(changes, averages, right, strict=True)
        ]
        self.follow(found)
        return found

    def follow(self, grads: Changes) -> None:
        pairs = zip(self.averages(grads), grads, strict=True)
        self.held = [self.next(*own, g) for own, g in pairs]
        self.t += 1

    def change(self, grads: Changes) -> Changes:
        rate, changes = self.rate(self.t + 1), []
        for own, g in zip(self.averages(grads), grads, strict=True):
            m, v = self.next(*own, g)
            changes.append(rate * m / (np.sqrt(v) + self.epsilon))
        return changes

    @property
    def units_off(self) -> float:
        # 1 - beta_2^t is a small number that is left of two larger ones.
        return OPERATIONS + 1 / (1 - self.beta_2 ** (self.t + 1))

    def rate(self, t: int) -> float:
        """Return the rate with the correction of step t, from 1."""
        return self.lr * np.sqrt(1 - self.beta_2**t) / (1 - self.beta_1**t)

    def averages(self, like: Changes) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return m and v for each parameter as the last step left them."""
        return self.held or [(0 * c, 0 * c) for c in like]

    def next(self, m: np.ndarray, v: np.ndarray, g: np.ndarray) -> tuple:
        """Return m and v after a step along g."""
        b, d = 1 - self.beta_1, 1 - self.beta_2
        return m + b * (g - m), v + d * (g * g - v)

    def inverse(self, u, m, v, near) -> np.ndarray:
        """Solve beta_1 m + b g = u (sqrt(beta_2 v + d g^2) + epsilon) for g."""
        b, d = 1 - self.beta_1, 1 - self.beta_2
        start, held = self.beta_1 * m - u * self.epsilon, self.beta_2 * v
        two = b * b - u * u * d
        one, zero = b * start, start * start - u * u * held
        root = np.sqrt(np.maximum(one * one - two * zero, 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            both = np.stack([(-one + root) / two, (-one - root) / two])
        both = np.where(np.isfinite(both), both, 0)
        made = self.beta_1 * m + b * both
        back = made / (np.sqrt(held + d * both * both) + self.epsilon)
        fits = np.abs(back - u) <= 1e-6 * (1 + np.abs(u))
        apart = np.where(fits, np.abs(both - near), np.inf)
        return np.take_along_axis(both, apart.argmin(axis=0)[None], axis=0)[0]


RULES = {
    "sgd": Plain,
    "sgd, rising rate": Rising,
    "clipped": Clipped,
    "momentum": Momentum,
    "nesterov": Nesterov,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
    "adam": Adam,
}
