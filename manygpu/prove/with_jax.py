"""How a step of JAX comes before the judge: `shard_map` on devices of a CPU.

JAX runs in a process of its own, with as many devices as a trial may need. It isn't in
the book's lock: `pip install jax` adds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from manygpu.prove.elsewhere import need, subject_of
from manygpu.prove.subject import Arrays, Subject

MOST_DEVICES = 8


def of_shard_map(
    step: Callable,
    init: Callable[[], Any],
    loss: Callable,
    draw: Callable[[int, int], tuple[np.ndarray, np.ndarray]],
    lr: float,
    **about: Any,
) -> Subject:
    """Return a subject of a step of plain SGD, in JAX.

    Args:
        step: `step(params, X, y, mesh)` takes a step on a whole batch, on a mesh whose
            one axis is "data"; it returns the new parameters, and the mean loss or
            None. `shard_map` takes even shares only: a batch that isn't a multiple of
            the mesh must be filled up by samples that count for nothing.
        init: makes the parameters, a tree of arrays.
        loss: `loss(params, X, y)`, summed over these samples, on one device.
        draw: `draw(samples, seed)`: X and y, arrays of NumPy.
        lr: the rate.
        about: see `Subject`.

    All are functions of a file, which the process imports.
    """
    need("jax")
    flags = os.environ.get("XLA_FLAGS", "")
    count = f"--xla_force_host_platform_device_count={MOST_DEVICES}"
    variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"{flags} {count}".strip()}
    about = {"name": getattr(step, "__name__", "the step")} | about
    return subject_of(_Devices, (step, init, loss), draw, lr, variables, False, **about)


class _Devices:
    """The process with all devices, see `manygpu.prove.elsewhere`."""

    def __init__(self, _: int, step: Callable, init: Callable, loss: Callable) -> None:
        self.step, self.init, self.loss = step, init, loss

    def parameters(self) -> tuple[list[str], Arrays]:
        import jax

        named, self.tree = jax.tree_util.tree_flatten_with_path(self.init())
        names = [jax.tree_util.keystr(path) for path, _ in named]
        return names, [np.asarray(leaf) for _, leaf in named]

    def gradient(self, X: np.ndarray, y: np.ndarray, weights: Arrays) -> tuple:
        import jax

        total, grads = jax.value_and_grad(self.loss)(self._tree_of(weights), X, y)
        return float(total), [np.asarray(g) for g in jax.tree.leaves(grads)]

    def begin(self, weights: Arrays, k: int, meeting: str) -> None:
        import jax

        self.mesh = jax.sharding.Mesh(np.array(jax.devices()[:k]), ("data",))
        whole = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec())
        self.params = jax.device_put(self._tree_of(weights), whole)

    def take(self, X: np.ndarray, y: np.ndarray) -> float | None:
        self.params, loss = self.step(self.params, X, y, self.mesh)
        return None if loss is None else float(loss)

    def dtypes(self, X: np.ndarray, y: np.ndarray) -> set[str]:
        import jax

        traced = jax.make_jaxpr(lambda p: self.step(p, X, y, self.mesh)[0])
        found = set(_floats_of(traced(self.params).jaxpr))
        self.take(X, y)
        return found

    def copies(self) -> list[Arrays]:
        import jax

        leaves = jax.tree.leaves(self.params)
        return [[_on(a, device) for a in leaves] for device in self.mesh.devices.flat]

    def _tree_of(self, weights: Arrays) -> Any:
        import jax
        import jax.numpy as jnp

        return jax.tree.unflatten(self.tree, [jnp.asarray(w) for w in weights])


def _floats_of(jaxpr: Any) -> Iterator[str]:
    """Yield the names of the floating-point dtypes in a jaxpr, and in those inside."""
    import jax
    import jax.numpy as jnp

    for equation in jaxpr.eqns:
        for made in equation.outvars:
            dtype = getattr(made.aval, "dtype", None)
            if dtype is not None and jnp.issubdtype(dtype, jnp.floating):
                yield dtype.name
        for inside in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda one: hasattr(one, "eqns")
        ):
            inside = getattr(inside, "jaxpr", inside)
            if hasattr(inside, "eqns"):
                yield from _floats_of(inside)


def _on(array: Any, device: Any) -> np.ndarray:
    """Return what a device holds of an array that each has whole, or all of it."""
    own = [part.data for part in array.addressable_shards if part.device == device]
    return np.asarray(own[0] if own and array.is_fully_replicated else array)
