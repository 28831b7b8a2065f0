"""jax #3970: the loss is summed over the devices inside the gradient of `pmap`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from manygpu.prove import judge
from manygpu.prove.with_jax import of_shard_map

FEATURES, CLASSES, LR = 6, 4, 0.5


def init():
    W = np.random.default_rng(0).normal(size=(FEATURES, CLASSES)) / 2
    return {"W": jnp.asarray(W), "b": jnp.ones(CLASSES) / 10}


def each(params, X, y):
    logits = X @ params["W"] + params["b"]
    return -jax.nn.log_softmax(logits)[jnp.arange(len(y)), y]


def loss(params, X, y):
    return each(params, X, y).sum()


def draw(samples, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, FEATURES)), rng.integers(0, CLASSES, samples)


def step(params, X, y, mesh, inside):
    k, samples = mesh.size, len(X)
    more = -samples % k  # samples that count 0, for even shares
    counts = np.concatenate([np.ones(samples), np.zeros(more)])
    X, y = np.concatenate([X, X[:1].repeat(more, 0)]), np.append(y, y[:1].repeat(more))

    def mean(params, X, y, counts):
        own = (each(params, X, y) * counts).sum() / samples
        return jax.lax.psum(own, "data") if inside else own

    def of_share(params, *share):
        grads = jax.lax.psum(jax.grad(mean)(params, *share), "data")
        return jax.tree.map(lambda w, g: w - LR * g, params, grads)

    about = {"in_axes": (None, 0, 0, 0), "devices": list(mesh.devices.flat)}
    shares = [a.reshape(k, -1, *a.shape[1:]) for a in (X, y, counts)]
    stacked = jax.pmap(of_share, "data", **about)(params, *shares)
    return jax.tree.map(lambda w: w[0], stacked), None


if __name__ == "__main__":
    for inside, where in ((True, "inside"), (False, "outside")):
        name = f"pmap, jax {jax.__version__}, loss summed {where} the gradient"
        own = partial(step, inside=inside)
        print(judge(of_shard_map(own, init, loss, draw, LR, name=name)), flush=True)
