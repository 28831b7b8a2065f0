"""The parameters and the data that PyTorch and the book's functions both get."""

import math

import numpy as np

LENET = [(3, 3, 1, 20), (20,), (5, 5, 20, 50), (50,)]
LENET += [(800, 128), (128,), (128, 10), (10,)]


def params(shapes, seed: int = 0) -> list[np.ndarray]:
    """Draw weights as large as He's, and small biases, in float64."""
    rng = np.random.default_rng(seed)
    drawn = []
    for shape in shapes:
        inputs = math.prod(shape[:-1]) if len(shape) > 1 else 100
        drawn.append(rng.normal(size=shape) * math.sqrt(2 / inputs))
    return drawn


def perceptron(*widths: int, seed: int = 0) -> list[np.ndarray]:
    """Draw a weight (inputs, outputs) and a bias for each layer."""
    shapes = [((n, m), (m,)) for n, m in zip(widths, widths[1:], strict=False)]
    return params(sum(shapes, ()), seed)


def images(samples: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Draw images (samples, 28, 28, 1) and labels of ten classes."""
    rng = np.random.default_rng(seed)
    return rng.random((samples, 28, 28, 1)), rng.integers(0, 10, samples)


def features(samples: int, width: int, classes: int, seed: int = 1) -> tuple:
    """Draw samples (samples, width) and their labels."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, width)), rng.integers(0, classes, samples)


def shares(samples: int, ranks: int) -> list[slice]:
    """Return each rank's samples: neighbours, as even as possible, the larger first."""
    sizes = [samples // ranks + (r < samples % ranks) for r in range(ranks)]
    ends = np.cumsum(sizes)
    return [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def rows_of_experts(ranks: int) -> tuple[list, list, list]:
    """Draw each rank's rows, each rank's expert, and how many rows go where."""
    rng = np.random.default_rng(2)
    leaving = [[(i + 2 * j) % 3 + i for j in range(ranks)] for i in range(ranks)]
    rows = [rng.normal(size=(sum(own), 4)) for own in leaving]
    return rows, list(rng.normal(size=(ranks, 4, 4))), leaving


def weighted_tokens() -> list[list[tuple]]:
    """Draw tokens, labels and weights of two micro-batches on each of two ranks."""
    rng, sizes = np.random.default_rng(3), ((5, 1), (2, 4))
    return [
        [
            (rng.normal(size=(n, 4)), rng.integers(0, 5, n), rng.integers(1, 4, n) / 2)
            for n in own
        ]
        for own in sizes
    ]
