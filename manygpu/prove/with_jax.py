"""How a step of JAX comes before the judge: `shard_map` on devices of a CPU.

JAX runs in a process of its own, with as many devices as a trial may need. It isn't in
the book's lock: `pip install jax` adds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from manygpu.prove.elsewhere import need, subject_of
from manygpu.prove.subject import Arrays, Subject

if TYPE_CHECKING:
    import jax

MOST_DEVICES = 8


def of_shard_map(
    step: Callable,
    init: Callable[[], Any],
    loss: Callable,
    draw: Callable[[int, int], tuple[np.ndarray, np.ndarray]],
    lr: float,
    begin: Callable[[Any, jax.sharding.Mesh], Any] | None = None,
    params_of: Callable[[Any], Any] | None = None,
    **about: Any,
) -> Subject:
    """Return a subject of a step of JAX: plain SGD, or one that carries more along.

    A step of SGD takes the parameters and returns the new ones. Where a training keeps
    more than its parameters, such as the state of an optimizer of Optax, `begin` makes
    of the parameters all that goes from step to step, a tree of arrays. For example:

        def begin(params, mesh):
            return params, optax.adam(1e-3).init(params)

        def params_of(carry):
            return carry[0]

    The judge then looks at the rest, too: it must be the same on all devices.

    Args:
        step: `step(carry, X, y, mesh)` takes a step on a whole batch, on a mesh whose
            one axis is "data"; it returns the new carry (the parameters, without
            `begin`), and the mean loss or None. `shard_map` takes even shares only: a
            batch that isn't a multiple of the mesh must be filled up by samples that
            count for nothing.
        init: makes the parameters, a tree of arrays.
        loss: `loss(params, X, y)`, summed over these samples, on one device.
        draw: `draw(samples, seed)`: X and y, arrays of NumPy.
        lr: the rate.
        begin: `begin(params, mesh)`: the carry before the first step.
        params_of: `params_of(carry)`: the parameters in it, a tree like that of `init`.
        about: see `Subject`; `rule` says which optimizer it is, such as "adam".

    All are functions of a file, which the process imports.

    Raises:
        ModuleNotFoundError: JAX isn't installed.
        ValueError: only one of `begin` and `params_of` is given, or a function isn't
            one of a file.
    """
    need("jax")
    if (begin is None) != (params_of is None):
        raise ValueError(
            "begin and params_of must be given together, got only one of them: pass "
            "begin(params, mesh), which makes the carry, and params_of(carry)"
        )
    flags = os.environ.get("XLA_FLAGS", "")
    count = f"--xla_force_host_platform_device_count={MOST_DEVICES}"
    variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"{flags} {count}".strip()}
    about = {"name": getattr(step, "__name__", "the step")} | about
    own = step, init, loss, begin or _params_alone, params_of or _all_of
    return subject_of(_Devices, own, draw, lr, variables, False, **about)


def _params_alone(params: Any, mesh: jax.sharding.Mesh) -> Any:
    return params


def _all_of(carry: Any) -> Any:
    return carry


class _Devices:
    """The process with all devices, see `manygpu.prove.elsewhere`."""

    def __init__(
        self,
        _: int,
        step: Callable,
        init: Callable,
        loss: Callable,
        make: Callable,
        params_of: Callable,
    ) -> None:
        self.step, self.init, self.loss = step, init, loss
        self.make, self.params_of = make, params_of

    def parameters(self) -> tuple[list[str], Arrays]:
        import jax

        named, self.tree = jax.tree_util.tree_flatten_with_path(self.init())
        names = [jax.tree_util.keystr(path) for path, _ in named]
        return names, [np.asarray(leaf) for _, leaf in named]

    def gradient(self, X: np.ndarray, y: np.ndarray, weights: Arrays) -> tuple:
        import jax

        total, grads = jax.value_and_grad(self.loss)(self._tree_of(weights), X, y)
        return float(total), [np.asarray(g) for g in jax.tree.leaves(grads)]

    def begin(self, weights: Arrays, k: int, meeting: str) -> bool:
        import jax

        self.mesh = jax.sharding.Mesh(np.array(jax.devices()[:k]), ("data",))
        whole = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec())
        params = jax.device_put(self._tree_of(weights), whole)
        self.carry = self.make(params, self.mesh)
        if (found := jax.tree.structure(self.params_of(self.carry))) != self.tree:
            raise ValueError(
                f"params_of must return a tree like that of init, {self.tree}, got "
                f"{found}: return only the parameters"
            )
        return bool(self._beside())

    def take(self, X: np.ndarray, y: np.ndarray) -> float | None:
        self.carry, loss = self.step(self.carry, X, y, self.mesh)
        return None if loss is None else float(loss)

    def dtypes(self, X: np.ndarray, y: np.ndarray) -> set[str]:
        import jax

        traced = jax.make_jaxpr(lambda carry: self.step(carry, X, y, self.mesh)[0])
        found = set(_floats_of(traced(self.carry).jaxpr))
        self.take(X, y)
        return found

    def copies(self) -> list[Arrays]:
        import jax

        leaves = jax.tree.leaves(self.params_of(self.carry))
        return [[_on(a, device) for a in leaves] for device in self.mesh.devices.flat]

    def state(self) -> dict[str, list[np.ndarray]]:
        devices = list(self.mesh.devices.flat)
        beside = self._beside().items()
        return {
            name: [_on(leaf, device) for device in devices] for name, leaf in beside
        }

    def _beside(self) -> dict[str, Any]:
        """Return the leaves of the carry that are no parameters, by name."""
        import jax

        params = {id(leaf) for leaf in jax.tree.leaves(self.params_of(self.carry))}
        named, _ = jax.tree_util.tree_flatten_with_path(self.carry)
        return {
            f"carry{jax.tree_util.keystr(path)}": leaf
            for path, leaf in named
            if id(leaf) not in params
        }

    def _tree_of(self, weights: Arrays) -> Any:
        import jax
        import jax.numpy as jnp

        return jax.tree.unflatten(self.tree, [jnp.asarray(w) for w in weights])


def _floats_of(jaxpr: Any) -> Iterator[str]:
    """Yield the names of the floating-point dtypes in a jaxpr, and in those inside.

    Single numbers don't count, such as a rate.
    """
    import jax
    import jax.numpy as jnp

    for equation in jaxpr.eqns:
        for made in equation.outvars:
            dtype = getattr(made.aval, "dtype", None)
            is_array = dtype is not None and made.aval.ndim > 0
            if is_array and jnp.issubdtype(dtype, jnp.floating):
                yield dtype.name
        for inside in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda one: hasattr(one, "eqns")
        ):
            inside = getattr(inside, "jaxpr", inside)
            if hasattr(inside, "eqns"):
                yield from _floats_of(inside)


def _on(leaf: Any, device: Any) -> np.ndarray:
    """Return what a device holds of an array that each has whole, or all of it."""
    import jax

    if not isinstance(leaf, jax.Array):
        return np.asarray(leaf)
    if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    own = [part.data for part in leaf.addressable_shards if part.device == device]
    return np.asarray(own[0] if own and leaf.is_fully_replicated else leaf)
