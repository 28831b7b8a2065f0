"""Blocks of the parts `engine` and `in-step`."""

import contextlib
import os
import threading

import given
import numpy as np
import torch
import torch.nn.functional as F
from ranks import case
from torch.distributed import rpc
from torch.nn.parallel import DistributedDataParallel

from theirs.data_parallel import sgd
from theirs.nets import (
    as_ours,
    dense,
    grads_of,
    lenet,
    loaded,
    names,
    params_of,
    share,
    tensors,
)


@case("engine/mirrored-strategy", 1, "gradients, of shares of 4 and 3")
def mirrored_strategy(block, rank, ranks):
    X, y = share(given.images(7), rank, ranks)
    model = lenet()
    block.run(names(model=model, X=X, y=y, device="cpu"))
    return {"grads": grads_of(model)}


@case(
    "engine/feeding-the-devices", 1, "the samples of two epochs, and their batches",
    ranks=0, tolerance=0,
)  # fmt: skip
def feeding_the_devices(block, rank, ranks):
    loader = block.run(names(dataset=range(100)))["loader"]
    epochs = [[batch.tolist() for batch in loader] for _ in range(2)]
    orders = [sum(batches, []) for batches in epochs]
    found = {"sizes": [[len(batch) for batch in batches] for batches in epochs]}
    found |= {"samples": [sorted(order) for order in orders]}
    return found | {"another order": orders[0] != orders[1]}


@case(
    "engine/files-for-many-workers", 1, "which samples the two ranks get, of 23",
    tolerance=0,
)  # fmt: skip
def files_for_many_workers(block, rank, ranks):
    seen = []

    def train_step(X, y):
        seen.extend(y.tolist())

    block.run(names(dataset=[(0, i) for i in range(23)], train_step=train_step))
    both = [None] * ranks
    torch.distributed.all_gather_object(both, seen)
    epochs = np.array(both).reshape(ranks, 10, -1)
    distinct = [len(np.unique(epochs[:, e])) for e in range(10)]
    orders = {tuple(epochs[rank, e]) for e in range(10)}
    return {"samples": len(seen), "distinct": distinct, "orders": len(orders)}


@case(
    "engine/mixed-precision", 1, "gradients; a step with an infinity is skipped",
    ranks=0, tolerance=0.02, changes={'"cuda"': '"cpu"'},
)  # fmt: skip
def mixed_precision(block, rank, ranks):
    torch.set_default_dtype(torch.float32)
    model = lenet()
    X, y = tensors(*given.images(8))
    own = names(model=model, optimizer=sgd(model), X=X.float(), y=y)
    own = block.run(own)
    found = {"grads": grads_of(model), "scale": own["scaler"].get_scale()}
    model.zero_grad()
    before, own["X"] = params_of(model), own["X"] * float("inf")
    for line in block.statements()[1:]:
        exec(line, own)
    found |= {"moved": (params_of(model) != before).any()}
    return found | {"scale after": own["scaler"].get_scale()}


@case("engine/roofline", 1, "FLOPs of a step of a perceptron", ranks=0, tolerance=0)
def roofline(block, rank, ranks):
    X, y = tensors(*given.features(8, 6, 4))
    model = dense("first", "second", widths=(6, 8, 4))
    own = names(model=model, loss=F.cross_entropy, X=X, y=y)
    return {"flops": block.run(own)["counter"].get_total_flops()}


@case(
    "engine/looking-inside", 1, "the rows of the table (without a GPU, times are 0)",
    ranks=0, tolerance=0,
)  # fmt: skip
def looking_inside(block, rank, ranks):
    model, printed = lenet(), []
    X, y = tensors(*given.images(8))

    def train_step(X, y):
        F.cross_entropy(model(X), y).backward()

    block.run(names(train_step=train_step, X=X, y=y, print=printed.append))
    lines = [line.split()[0] for line in printed[0].splitlines() if line.strip()]
    rows = lines[3 : lines.index(lines[0], 3)]
    known = [row.startswith(("aten::", "autograd::", "Conv", "Add")) for row in rows]
    return {"rows": len(rows), "are operations": any(known)}


class Server:
    """The parameters, and a ticket for each worker, as the book's server has them."""

    def __init__(self, params: list[torch.Tensor], workers: int) -> None:
        self.params, self.lock, self.log = params, threading.Lock(), []
        self.tickets = {w: (0, self.copy()) for w in range(1, workers + 1)}

    def copy(self) -> list[torch.Tensor]:
        return [p.clone() for p in self.params]


SERVERS: list[Server] = []


def pull(worker: int) -> tuple[int, list[torch.Tensor]]:
    return SERVERS[0].tickets[worker]


def push(worker: int, number: int, grads: list[torch.Tensor]) -> None:
    server = SERVERS[0]
    with server.lock:
        if server.tickets[worker][0] != number:
            return  # it has come before
        for p, g in zip(server.params, grads, strict=True):
            p -= 0.05 * g
        server.log.append(worker)
        server.tickets[worker] = number + 1, server.copy()


class EnoughError(Exception):
    """The end of a worker's loop, which has none in the block."""


@case(
    "in-step/asynchronous", 1, "the server's parameters after 2 x 6 updates",
    ranks=3, starts=False,
)  # fmt: skip
def asynchronous(block, rank, ranks):
    widths = 6, 8, 4
    if rank == 0:
        params = [p.detach() for p in dense("a", "b", widths=widths).parameters()]
        SERVERS.append(Server(params, ranks - 1))
    where = f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
    options = rpc.TensorPipeRpcBackendOptions(init_method=where)
    name = f"worker{rank}" if rank else "server"
    rpc.init_rpc(name, None, rank, ranks, options)
    rounds, found = iter(range(6)), {}

    def compute(params: list[torch.Tensor]) -> list[torch.Tensor]:
        number = next(rounds, None)
        if number is None:
            raise EnoughError
        X, y = tensors(*given.features(8, 6, 4, seed=10 * rank + number))
        model = dense("a", "b", widths=widths)
        with torch.no_grad():
            for p, value in zip(model.parameters(), params, strict=True):
                p.copy_(value)
        F.cross_entropy(model(X), y).backward()
        return [p.grad for p in model.parameters()]

    if rank:
        own = names(rank=rank, pull=pull, push=push, compute=compute)
        with contextlib.suppress(EnoughError):
            block.run(own)
    rpc.shutdown()
    if rank == 0:
        server = SERVERS[0]
        found["params"] = np.concatenate([as_ours(p) for p in server.params])
        found["for ours: order"] = server.log
    return found


@case(
    "in-step/sending-less", 1,
    "gradients after 1,000 plain steps: a sum of rank 2, sent as rank 2",
)  # fmt: skip
def sending_less(block, rank, ranks):
    model = torch.nn.Linear(12, 10)
    loaded(model, given.perceptron(12, 10))
    ddp_model = DistributedDataParallel(model)
    own = block.run(names(ddp_model=ddp_model))
    X, y = share(given.features(2, 12, 10), rank, ranks)
    for _ in range(1003):
        model.zero_grad()
        F.cross_entropy(ddp_model(X), y).backward()
    sent = own["state"].compression_stats()
    return {"grads": grads_of(model), "numbers sent": sent[2]}


@case("in-step/meeting-seldom", 1, "parameters after eight steps, meeting in two")
def meeting_seldom(block, rank, ranks):
    X, y = share(given.features(8, 6, 4), rank, ranks)
    model = dense("first", "second", widths=(6, 8, 4))
    optimizer = sgd(model)
    for step in range(8):
        optimizer.zero_grad()
        F.cross_entropy(model(X), y).backward()
        block.run(names(model=model, inner_optimizer=optimizer, step=step, H=4))
    return {"params": params_of(model)}
