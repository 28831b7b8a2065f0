"""How a step of PyTorch comes before the judge: DDP and FSDP2, on gloo.

Each device is a process on this machine's CPU. PyTorch isn't in the book's lock:
`pip install torch` adds it.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from manygpu.prove.elsewhere import need, subject_of
from manygpu.prove.subject import Arrays, Subject

if TYPE_CHECKING:
    import torch

PATIENCE_S = 60  # how long a process waits for another in a collective


def of_ddp(
    step: Callable,
    build: Callable[[], torch.nn.Module],
    loss: Callable,
    draw: Callable[[int, int], tuple[np.ndarray, np.ndarray]],
    lr: float,
    optimizer: Callable | None = None,
    **about: Any,
) -> Subject:
    """Return a subject of a step of DistributedDataParallel.

    A scheduler of the rate goes with the optimizer: `optimizer` makes both, and the
    step finds the one by the other. The judge sees on one device which rate each step
    has, and `lr` is the first step's. For example:

        def optimizer(parameters):
            own = torch.optim.SGD(parameters, lr=0.1)
            own.scheduler = torch.optim.lr_scheduler.ExponentialLR(own, gamma=0.5)
            return own

        def step(model, optimizer, X, y):
            ...
            optimizer.step()
            optimizer.scheduler.step()

    Args:
        step: `step(model, optimizer, X, y)`, called in each process with the whole
            batch: it takes its own share, by its rank, and one step. It returns the
            batch's mean loss, or None.
        build: makes the model. DDP is wrapped around it.
        loss: `loss(model, X, y)`, summed over these samples, on one device.
        draw: `draw(samples, seed)`: X and y, arrays of NumPy.
        lr: the rate.
        optimizer: `optimizer(parameters)` makes the optimizer, and what goes with it;
            None: SGD with this rate.
        about: see `Subject`; `rule` says which optimizer it is.

    All are functions of a file, which each process imports.
    """
    return _of(_Replica, (step, build, loss, optimizer), draw, lr, about)


def of_fsdp2(
    step: Callable,
    build: Callable[[], torch.nn.Module],
    loss: Callable,
    draw: Callable[[int, int], tuple[np.ndarray, np.ndarray]],
    lr: float,
    optimizer: Callable | None = None,
    **about: Any,
) -> Subject:
    """Return a subject of a step of FSDP2: `fully_shard` cuts the model's parameters.

    Args: see `of_ddp`. `build` may call `fully_shard` on parts of the model, if
    `torch.distributed.is_initialized()`: for the reference, on one device, it isn't.
    """
    return _of(_Shard, (step, build, loss, optimizer), draw, lr, about)


def _of(
    site: type, functions: tuple, draw: Callable, lr: float, about: dict
) -> Subject:
    need("torch")
    *own, optimizer = functions
    own = [*own, optimizer or partial(_sgd, lr=lr)]
    variables = {"OMP_NUM_THREADS": "1"}
    about = {"name": getattr(functions[0], "__name__", "the step")} | about
    return subject_of(site, own, draw, lr, variables, True, **about)


def _sgd(parameters: Any, lr: float) -> torch.optim.Optimizer:
    import torch

    return torch.optim.SGD(parameters, lr=lr)


# Options of an optimizer that no rule has, if they are used.
UNLIKE_A_RULE = ("amsgrad", "maximize", "centered", "lr_decay")


def rule_of(
    name: str, groups: Sequence[Mapping[str, Any]]
) -> tuple[str, dict[str, Any]] | None:
    """Return an optimizer's rule and its numbers; see `Subject.optimizer_says`.

    Args:
        name: of its class.
        groups: the options of each parameter.
    """
    own, rates = groups[0], [float(g["lr"]) for g in groups]
    used = any(own.get(option) for option in UNLIKE_A_RULE)
    if used or own["lr"] == 0 or name == "RMSprop" and own["momentum"]:
        return None
    told: dict[str, Any] = {"rates": (rates[0],)}
    if len({*rates}) > 1:
        told["layers"] = tuple(rate / rates[0] for rate in rates)
    if any(decays := [float(g["weight_decay"]) for g in groups]):
        told["decay"] = decays[0] if len({*decays}) == 1 else tuple(decays)
        apart = name == "AdamW" or own.get("decoupled_weight_decay")
        told |= {"decoupled": True} if apart else {}
    if name == "SGD":
        if not own["momentum"]:
            return "sgd", told
        damped = {"dampening": own["dampening"]} if own["dampening"] else {}
        kind = "nesterov" if own["nesterov"] else "momentum"
        return kind, told | {"momentum": own["momentum"]} | damped
    told |= {"epsilon": own.get("eps"), "inside": False}
    if name in ("Adam", "AdamW"):
        about = {"corrected": True, "before": False}
        return "adam", told | about | {"betas": tuple(own["betas"])}
    if name == "RMSprop":
        return "rmsprop", told | {"rho": own["alpha"]}
    if name == "Adagrad":
        return "adagrad", told | {"start": own["initial_accumulator_value"]}
    return None


class _Replica:
    """A process with a copy of the model, see `manygpu.prove.elsewhere`."""

    def __init__(
        self, rank: int, step: Callable, build: Callable, loss: Callable, rule: Callable
    ) -> None:
        import torch._dynamo  # noqa: F401  # DDP needs it; that takes seconds
        import torch.distributed as dist

        self.rank, self.step, self.build = rank, step, build
        self.loss, self.rule = loss, rule
        if dist.is_initialized():  # by the subject before: `build` may ask
            dist.destroy_process_group()
        self.alone = build()

    def parameters(self) -> tuple[list[str], Arrays]:
        named = _trained(self.alone)
        return list(named), [p.detach().numpy() for p in named.values()]

    def gradient(self, X: np.ndarray, y: np.ndarray, weights: Arrays) -> tuple:
        model = _loaded(copy.deepcopy(self.alone), weights)
        total = self.loss(model, *_tensors(X, y))
        total.backward()
        return float(total.detach()), [p.grad.numpy() for p in _trained(model).values()]

    def begin(self, weights: Arrays, k: int, meeting: str) -> None:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
        patience = datetime.timedelta(seconds=PATIENCE_S)
        at = {"init_method": f"file://{meeting}", "rank": self.rank, "world_size": k}
        dist.init_process_group("gloo", timeout=patience, **at)
        self.model = self.wrapped(_loaded(self.build(), weights))
        self.optimizer = self.rule(self.model.parameters())

    def optimizer_says(self) -> tuple[str, dict[str, Any]] | None:
        model = copy.deepcopy(self.alone)
        optimizer, trained = self.rule(model.parameters()), _trained(model).values()
        groups = {id(p): g for g in optimizer.param_groups for p in g["params"]}
        if any(id(p) not in groups for p in trained):
            return None
        return rule_of(type(optimizer).__name__, [groups[id(p)] for p in trained])

    def take(self, X: np.ndarray, y: np.ndarray) -> float | None:
        loss = self.step(self.model, self.optimizer, *_tensors(X, y))
        return None if loss is None else float(loss)

    def dtypes(self, X: np.ndarray, y: np.ndarray) -> set[str]:
        with _floats() as seen:
            self.take(X, y)
        return seen

    def copies(self) -> list[Arrays]:
        return [[self.whole(p).numpy() for p in _trained(self.model).values()]]

    def wrapped(self, model: torch.nn.Module) -> torch.nn.Module:
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(model)

    def whole(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        return parameter.detach().clone()


class _Shard(_Replica):
    """A process with a shard of each parameter."""

    def wrapped(self, model: torch.nn.Module) -> torch.nn.Module:
        from torch.distributed.fsdp import fully_shard

        return fully_shard(model)

    def whole(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        return parameter.detach().full_tensor()


def _trained(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the parameters that are trained, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _loaded(model: torch.nn.Module, weights: Arrays) -> torch.nn.Module:
    """Return a model with these weights; parts of it may be sharded already."""
    import torch
    from torch.distributed.tensor import DTensor, distribute_tensor

    with torch.no_grad():
        for p, w in zip(_trained(model).values(), weights, strict=True):
            whole = torch.from_numpy(w)
            if isinstance(p, DTensor):
                whole = distribute_tensor(whole, p.device_mesh, p.placements)
            p.copy_(whole)
    return model


@contextlib.contextmanager
def _floats() -> Iterator[set[str]]:
    """Give the names of the floating-point dtypes that operations make meanwhile.

    Single numbers don't count: AdamW keeps its count of steps in float32.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    seen: set[str] = set()

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            arrays = [a for a in tree_leaves(made) if getattr(a, "ndim", 0)]
            floats = [a.dtype for a in arrays if a.dtype.is_floating_point]
            seen.update(str(dtype).removeprefix("torch.") for dtype in floats)
            return made

    with Noting():
        yield seen


def _tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    import torch

    return [torch.from_numpy(a) for a in arrays]
