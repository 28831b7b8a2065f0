"""Steps of JAX on shard_map: JAX's own process imports this file."""

from __future__ import annotations

from functools import partial

import numpy as np

try:
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P  # noqa: N817
except ModuleNotFoundError:  # the list of cases can be read all the same
    jax = None

FEATURES, CLASSES, LR = 6, 4, 0.5


def init():
    rng = np.random.default_rng(0)
    shapes = {"W": (FEATURES, 5), "b": (5,), "V": (5, CLASSES)}
    return {name: jnp.asarray(rng.normal(size=s) / 2) for name, s in shapes.items()}


def draw(samples, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, FEATURES)), rng.integers(0, CLASSES, samples)


def each(params, X, y, dtype=None):
    if dtype:
        params, X = jax.tree.map(lambda a: a.astype(dtype), (params, X))
    logits = jnp.tanh(X @ params["W"] + params["b"]) @ params["V"]
    return -jax.nn.log_softmax(logits.astype(jnp.float32))[jnp.arange(len(y)), y]


def loss(params, X, y):
    return each(params, jnp.asarray(X), y).sum()


def loss16(params, X, y):
    return each(params, jnp.asarray(X), y, "bfloat16").sum()


def filled_up(X, y, k):
    """Even shares: samples that count 0 at the end; and what each counts."""
    more = -len(X) % k
    counts = np.concatenate([np.ones(len(X)), np.zeros(more)])
    X = np.concatenate([X, np.zeros((more, FEATURES))])
    return X, np.concatenate([y, np.zeros(more, y.dtype)]), counts


def stepped(of_share):
    """A step that calls `of_share(params, X, y, counts, n)` on each device."""

    def step(params, X, y, mesh):
        own = P("data")
        run = jax.shard_map(
            partial(of_share, n=len(X)),
            mesh=mesh,
            in_specs=(P(), own, own, own),
            out_specs=P(),
            check_vma=False,
        )
        grads = jax.jit(run)(params, *filled_up(X, y, mesh.size))
        return jax.tree.map(lambda w, g: w - LR * g, params, grads), None

    return step


def own_grads(params, X, y, counts, dtype=None):
    return jax.grad(lambda p: (each(p, X, y, dtype) * counts).sum())(params)


def divided(grads, n):
    return jax.tree.map(lambda g: g / n, grads)


def _summed(params, X, y, counts, n):
    return divided(jax.lax.psum(own_grads(params, X, y, counts), "data"), n)


def _bfloat16(params, X, y, counts, n):
    own = own_grads(params, X, y, counts, "bfloat16")
    return divided(jax.lax.psum(own, "data"), n)


def _mean_of_means(params, X, y, counts, n):
    own = divided(own_grads(params, X, y, counts), counts.sum())
    return jax.lax.pmean(own, "data")


def _filling_counts(params, X, y, counts, n):
    """The batch is filled up by its own first samples, and they count."""
    own = divided(own_grads(params, X, y, jnp.ones_like(counts)), len(counts))
    return jax.lax.pmean(own, "data")


def right(params, X, y, mesh):
    return stepped(_summed)(params, X, y, mesh)


def bfloat16(params, X, y, mesh):
    return stepped(_bfloat16)(params, X, y, mesh)


def mean_of_means(params, X, y, mesh):
    return stepped(_mean_of_means)(params, X, y, mesh)


def filling_counts(params, X, y, mesh):
    more = -len(X) % mesh.size
    X, y = np.concatenate([X, X[:more]]), np.concatenate([y, y[:more]])
    return stepped(_filling_counts)(params, X, y, mesh)
