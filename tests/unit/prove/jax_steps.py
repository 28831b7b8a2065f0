"""Steps of JAX, right ones and wrong ones: JAX's own process imports this file."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P  # noqa: N817

FEATURES, CLASSES, LR = 6, 4, 0.5


def init():
    rng = np.random.default_rng(0)
    shapes = {"W": (FEATURES, 5), "b": (5,), "V": (5, CLASSES)}
    return {name: jnp.asarray(rng.normal(size=s) / 2) for name, s in shapes.items()}


def each(params, X, y):
    """The loss of each sample."""
    logits = jnp.tanh(X @ params["W"] + params["b"]) @ params["V"]
    return -jax.nn.log_softmax(logits)[jnp.arange(len(y)), y]


def loss(params, X, y):
    return each(params, X, y).sum()


def draw(samples, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, FEATURES)), rng.integers(0, CLASSES, samples)


def filled_up(X, y, k):
    """Even shares: samples that count 0 at the end; and what each counts."""
    more = -len(X) % k
    counts = np.concatenate([np.ones(len(X)), np.zeros(more)])
    X = np.concatenate([X, np.zeros((more, *X.shape[1:]), X.dtype)])
    return X, np.concatenate([y, np.zeros(more, y.dtype)]), counts


def moved(params, grads):
    return jax.tree.map(lambda w, g: w - LR * g, params, grads)


def on_shares(of_share, check_vma):
    """A step that calls `of_share(params, X, y, counts, samples)` on each device."""

    def step(params, X, y, mesh):
        shares = P("data")
        run = jax.shard_map(
            partial(of_share, samples=len(X)),
            mesh=mesh,
            in_specs=(P(), shares, shares, shares),
            out_specs=(P(), P()),
            check_vma=check_vma,
        )
        return jax.jit(run)(params, *filled_up(X, y, mesh.size))

    return step


def own_loss(params, X, y, counts):
    return (each(params, X, y) * counts).sum()


def _by_hand(params, X, y, counts, samples):
    total, grads = jax.value_and_grad(own_loss)(params, X, y, counts)
    total, grads = jax.lax.psum((total / samples, grads), "data")
    return moved(params, jax.tree.map(lambda g: g / samples, grads)), total


def _by_transpose(params, X, y, counts, samples):
    total, grads = jax.value_and_grad(own_loss)(params, X, y, counts)
    total = jax.lax.psum(total, "data") / samples
    return moved(params, jax.tree.map(lambda g: g / samples, grads)), total


def _loss_in_replica(params, X, y, counts, samples):
    def mean_of_all(params):
        return jax.lax.psum(own_loss(params, X, y, counts), "data") / samples

    total, grads = jax.value_and_grad(mean_of_all)(params)
    return moved(params, jax.lax.psum(grads, "data")), total


def _psum_forgotten(params, X, y, counts, samples):
    grads = jax.grad(own_loss)(params, X, y, counts)
    return moved(params, jax.tree.map(lambda g: g / samples, grads)), 0.0


def _sum_of_means(params, X, y, counts, samples):
    own = jax.grad(own_loss)(params, X, y, counts)
    own = jax.tree.map(lambda g: g / counts.sum(), own)
    return moved(params, jax.lax.psum(own, "data")), 0.0


def _mean_of_means(params, X, y, counts, samples):
    own = jax.grad(own_loss)(params, X, y, counts)
    own = jax.tree.map(lambda g: g / counts.sum(), own)
    return moved(params, jax.lax.pmean(own, "data")), 0.0


def _bias_left_out(params, X, y, counts, samples):
    grads = jax.grad(own_loss)(params, X, y, counts)
    grads = {n: g if n == "b" else jax.lax.psum(g, "data") for n, g in grads.items()}
    return moved(params, jax.tree.map(lambda g: g / samples, grads)), 0.0


def without_loss(step):
    return lambda *given: (step(*given)[0], None)


def by_hand(params, X, y, mesh):
    return on_shares(_by_hand, False)(params, X, y, mesh)


def by_transpose(params, X, y, mesh):
    """Parameters that don't vary on the axis: their gradient is summed by itself."""
    return on_shares(_by_transpose, True)(params, X, y, mesh)


def by_compiler(params, X, y, mesh):
    """No `shard_map`: the compiler finds where to reduce, as for one device."""
    spec = jax.sharding.NamedSharding(mesh, P("data"))
    X, y, counts = jax.device_put(filled_up(X, y, mesh.size), spec)
    own = jax.jit(
        jax.value_and_grad(lambda p: own_loss(p, X, y, counts) / counts.sum())
    )
    total, grads = own(params)
    return moved(params, grads), total


def loss_in_replica(params, X, y, mesh):
    """A psum's transpose is a psum: jax #3970."""
    return on_shares(_loss_in_replica, False)(params, X, y, mesh)


def summed_twice(params, X, y, mesh):
    """The transpose has summed already: by hand it is once more."""
    return without_loss(on_shares(_by_hand, True))(params, X, y, mesh)


def psum_forgotten(params, X, y, mesh):
    return without_loss(on_shares(_psum_forgotten, False))(params, X, y, mesh)


def sum_of_means(params, X, y, mesh):
    return without_loss(on_shares(_sum_of_means, False))(params, X, y, mesh)


def mean_of_means(params, X, y, mesh):
    return without_loss(on_shares(_mean_of_means, False))(params, X, y, mesh)


def bias_left_out(params, X, y, mesh):
    return without_loss(on_shares(_bias_left_out, False))(params, X, y, mesh)


# Steps that carry more than the parameters: Adam, by hand.

BETAS, EPSILON, ADAM_LR = (0.9, 0.999), 1e-8, 0.05
HYPERPARAMETERS = {"betas": BETAS, "epsilon": EPSILON, "before": False}


def begin(params, mesh):
    zeros = jax.tree.map(jnp.zeros_like, params)
    return {"params": params, "m": zeros, "v": zeros, "count": jnp.zeros((), int)}


def params_of(carry):
    return carry["params"]


def all_of(carry):
    return carry


def by_adam(carry, grads):
    """Return what Adam makes of the carry, by the mean gradients."""
    (a, b), t = BETAS, carry["count"] + 1
    m = jax.tree.map(lambda m, g: a * m + (1 - a) * g, carry["m"], grads)
    v = jax.tree.map(lambda v, g: b * v + (1 - b) * g * g, carry["v"], grads)

    def moved(w, m, v):
        return w - ADAM_LR * (m / (1 - a**t)) / (jnp.sqrt(v / (1 - b**t)) + EPSILON)

    params = jax.tree.map(moved, carry["params"], m, v)
    return {"params": params, "m": m, "v": v, "count": t}


def _means(params, X, y, counts, samples):
    own = jax.value_and_grad(own_loss)(params, X, y, counts)
    return jax.tree.map(lambda a: a / samples, jax.lax.psum(own, "data"))


def _adam(carry, X, y, counts, samples):
    loss, grads = _means(carry["params"], X, y, counts, samples)
    return by_adam(carry, grads), loss


def _adam_own_squares(carry, X, y, counts, samples):
    """Each device squares its own gradient."""
    loss, grads = _means(carry["params"], X, y, counts, samples)
    own = jax.grad(own_loss)(carry["params"], X, y, counts)
    after = by_adam(carry, grads)
    return after | {"v": by_adam(carry, own)["v"]}, loss


def adam(carry, X, y, mesh):
    return on_shares(_adam, False)(carry, X, y, mesh)


def adam_forgets(carry, X, y, mesh):
    """Its averages begin anew in every step."""
    return adam(begin(carry["params"], mesh), X, y, mesh)


def adam_own_squares(carry, X, y, mesh):
    return on_shares(_adam_own_squares, False)(carry, X, y, mesh)


def adam_mean_of_means(carry, X, y, mesh):
    def of_share(carry, X, y, counts, samples):
        own = jax.grad(own_loss)(carry["params"], X, y, counts)
        own = jax.tree.map(lambda g: g / counts.sum(), own)
        return by_adam(carry, jax.lax.pmean(own, "data")), 0.0

    return without_loss(on_shares(of_share, False))(carry, X, y, mesh)
