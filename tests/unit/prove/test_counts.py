"""How far rounding may move the counts."""

from __future__ import annotations

import numpy as np
import pytest

from manygpu.prove.counts import (
    basis,
    likely_off,
    nearest,
    rounded_off,
    together,
)

COARSE, DRAWS = 2.0**-10, 2000


@pytest.mark.parametrize("apart", [1.0, 0.01])
def test_what_few_digits_do_to_counts_is_what_many_draws_show(apart):
    """Also where two samples are nearly alike, and few draws may miss it."""
    rng = np.random.default_rng(0)
    grads = [rng.normal(size=(numbers, 3)) for numbers in (4, 12)]
    for g in grads:
        g[:, 2] = g[:, 1] + apart * g[:, 2]
    bases = [basis(g) for g in grads]
    alone, of_all = [[], []], []
    for _ in range(DRAWS):
        noise = [rounded_off(b, rng, COARSE) for b in bases]
        inside = [b.q.T @ off for b, off in zip(bases, noise, strict=True)]
        for own, b, off in zip(alone, bases, inside, strict=True):
            own.append(nearest(b.r, off) - 1)
        scaled = [off / b.length for b, off in zip(bases, inside, strict=True)]
        of_all.append(nearest(together(bases), np.concatenate(scaled)) - 1)
    seen = [np.std(own, axis=0).max() for own in (*alone, of_all)]
    found, joint = likely_off(bases, COARSE)
    assert np.allclose(seen, [*found, joint], rtol=0.1)
