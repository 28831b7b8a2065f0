"""Numbers that the cases of exercises hold."""

from __future__ import annotations

import random

import numpy as np


def arrays(draw: random.Random, *shape: int) -> np.ndarray:
    """Normal numbers of this shape."""
    return np.random.default_rng(draw.getrandbits(32)).normal(size=shape)
