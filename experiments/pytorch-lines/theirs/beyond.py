"""Blocks of the parts `beyond` and `choosing`."""

import given
import torch
import torch.nn.functional as F
from ranks import case
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode

from theirs.data_parallel import sgd
from theirs.nets import dense, grads_of, lenet, names, params_of, share, tensors


@case(
    "beyond/many-workers", 1, "gradients, of processes that find each other",
    starts=False,
    changes={
        '"nccl")': '"gloo")', "model.to(gpu)": "model",
        "device_ids=[gpu]": "device_ids=None",
    },
)  # fmt: skip
def many_workers(block, rank, ranks):
    import os

    X, y = share(given.images(8), rank, ranks)
    model = lenet()
    own = names(model=model, X_own=X, y_own=y, os=os)
    own["DistributedDataParallel"] = nn.parallel.DistributedDataParallel
    block.run(own)
    return {"grads": grads_of(model)}


@case(
    "beyond/sixteen-thousand", 1,
    "what rank 0 holds of a layer under FSDP2, and the collectives of its step",
    ranks=0, tolerance=0,
)  # fmt: skip
def sixteen_thousand(block, rank, ranks):
    def build_model() -> nn.Module:
        return nn.Linear(4, 32_768)

    def parallelize(model: nn.Module) -> nn.Module:
        return fully_shard(model, mesh=init_device_mesh("cpu", (16_384,)))

    own = block.run(names(build_model=build_model, parallelize=parallelize))
    held = sum(p.to_local().numel() for p in own["model"].parameters())
    with CommDebugMode() as counter:
        own["model"](torch.ones(2, 4)).sum().backward()
    counts = {str(op): n for op, n in counter.get_comm_counts().items()}
    sent = [sum(n for op, n in counts.items() if name in op) for name in COLLECTIVES]
    return {"held": held, "collectives": sent}


COLLECTIVES = "allgather", "reduce_scatter", "allreduce"


class Loader:
    """A loader whose place is its state, as that of torchdata's StatefulDataLoader."""

    def __init__(self, place: int) -> None:
        self.place = place

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


def momentum_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    X, y = tensors(*given.features(8, 6, 4))
    optimizer.zero_grad()
    F.cross_entropy(model(X), y).backward()
    optimizer.step()


@case(
    "beyond/worker-dies", 1,
    "parameters of a run with momentum that goes on from the files",
)  # fmt: skip
def worker_dies(block, rank, ranks):
    def run(place: int, seed: int) -> dict:
        model = dense("a", "b", widths=(6, 8, 4), seed=seed)
        optimizer = sgd(model, momentum=0.9)
        return names(model=model, optimizer=optimizer, loader=Loader(place), step=2)

    before, after = run(place=16, seed=0), run(place=0, seed=1)
    for _ in range(2):
        momentum_step(before["model"], before["optimizer"])
    for own, left_out in ((before, "dcp.load"), (after, "dcp.save")):
        for line in block.statements():
            if left_out in line:
                if own is before:
                    break  # here the worker dies
            else:
                exec(line, own)
    momentum_step(after["model"], after["optimizer"])
    place = after["state"]["loader"]["place"]
    return {"params": params_of(after["model"]), "place": place}


@case(
    "choosing/is-my-step-right", 1, "parameters after a step, of shares of 4 and 3"
)  # fmt: skip
def is_my_step_right(block, rank, ranks):
    X, y = share(given.images(7), rank, ranks)
    model = lenet()
    block.run(names(model=model, optimizer=sgd(model), X=X, y=y, batch_size=7))
    return {"params": params_of(model)}


@case(
    "choosing/which-one", 1, "gradients in bfloat16, and in which dtypes they come",
    tolerance=0.03,
)  # fmt: skip
def which_one(block, rank, ranks):
    torch.set_default_dtype(torch.float32)
    model = nn.Sequential()
    model.blocks = dense("a", "b", widths=(6, 8, 8), last=True)
    model.last = dense("c", widths=(8, 4), seed=1)
    block.run(names(model=model))
    X, y = share(given.features(8, 6, 4), rank, ranks)
    logits = model(X.float())
    F.cross_entropy(logits.float(), y).backward()
    dtypes = [str(logits.dtype), str(next(model.parameters()).grad.dtype)]
    return {"grads": grads_of(model), "dtypes": dtypes}
