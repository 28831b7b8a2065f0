"""Blocks of the parts `start` and `data-parallel`."""

import time

import given
import torch
import torch.nn.functional as F
from ranks import case
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from theirs.nets import dense, grads_of, lenet, names, params_of, share, tensors

LR = 0.05


def sgd(model: nn.Module, lr: float = LR, **options: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, **options)


def summed(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, y, reduction="sum")


# The second device is `meta`, whose tensors have a shape and no numbers.
@case(
    "start/devices", 1, "which lines raise an error", ranks=0, tolerance=0,
    changes={"cuda:0": "cpu", "cuda:1": "meta"},
)  # fmt: skip
def devices(block, rank, ranks):
    raised, own = [], names()
    for line in block.statements():
        try:
            exec(line, own)
            raised.append(False)
        except (RuntimeError, AssertionError):
            raised.append(True)
    return {"raised": raised}


@case("start/one-device", 1, "logits, loss, gradients, and parameters after", ranks=0)
def one_device(block, rank, ranks):
    model = lenet()
    X, y = tensors(*given.images(8))
    own = block.run(names(model=model, optimizer=sgd(model), X=X, y=y))
    after = {"params": params_of(model), "grads": grads_of(model)}
    return after | {"loss": own["loss"].detach(), "logits": own["logits"].detach()}


@case("start/two-devices", 1, "gradients, and parameters after a step")
def two_devices(block, rank, ranks):
    X, y = share(given.images(8), rank, ranks)
    model = lenet()
    block.run(names(model=model, optimizer=sgd(model), X=X, y=y))
    return {"params": params_of(model), "grads": grads_of(model)}


@case(
    "start/three-ways-to-split", 1, "gradients of each of the four lines, run alone",
    changes={"n_microbatches=8": "n_microbatches=4"},
)  # fmt: skip
def three_ways(block, rank, ranks):
    widths, found = (6, 8, 4), {}
    batch = given.features(8, 6, 4)
    (all_X, all_y), (X, y) = tensors(*batch), share(batch, rank, ranks)
    ddp, fsdp, plan, parallelize, stage, schedule = block.statements()
    for name, line in {"ddp": ddp, "fsdp": fsdp}.items():
        own = names(model=dense("up", "down", widths=widths))
        exec(line, own)
        F.cross_entropy(own["model"](X), y).backward()
        found[name] = grads_of(own["model"])
    mesh = torch.distributed.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    own = names(model=dense("up", "down", widths=widths), mesh=mesh)
    exec(f"{plan}\n{parallelize}", own)
    F.cross_entropy(own["model"](all_X), all_y).backward()
    found["tp"] = grads_of(own["model"])
    whole = dense("up", "down", widths=widths)
    layers = whole[:2] if rank == 0 else whole[2:]
    own = names(own_layers=layers, stage_index=rank, num_stages=2, device="cpu")
    own |= {"loss_fn": F.cross_entropy}
    exec(f"{stage}\nschedule = {schedule}", own)
    step = own["schedule"].step
    step(all_X) if rank == 0 else step(target=all_y)
    return found | {"pipeline": grads_of(layers)}


@case(
    "data-parallel/parameters-and-devices", 1,
    "parameters after a step from rank 0's values, on both ranks",
)  # fmt: skip
def parameters_and_devices(block, rank, ranks):
    X, y = share(given.images(8), rank, ranks)

    def another() -> nn.Module:  # each process draws its own
        return lenet(seed=rank)

    own = names(LeNet=another, device="cpu", images=X, labels=y)
    own = block.run(own | {"loss_fn": F.cross_entropy})
    return {"params": params_of(own["model"])}


@case("data-parallel/all-reduce", 1, "gradients, of shares of 4 and 3")
def all_reduce(block, rank, ranks):
    model = lenet()
    X, y = share(given.images(7), rank, ranks)
    summed(model(X), y).backward()
    block.run(names(model=model, batch_size=7))
    return {"grads": grads_of(model)}


@case(
    "data-parallel/many-devices", 1, "parameters after an epoch of two steps",
    changes={".to(rank)": '.to("cpu")', "device_ids=[rank]": "device_ids=None"},
)  # fmt: skip
def many_devices(block, rank, ranks):
    X, y = given.images(512)
    images = list(zip(*tensors(X, y), strict=True))
    seen = []

    class Noted(torch.utils.data.Dataset):
        def __len__(self):
            return len(images)

        def __getitem__(self, i):
            seen.append(i)
            return images[i]

    model = lenet()
    own = names(LeNet=lambda: model, images=Noted(), k=ranks, rank=rank)
    block.run(own | {"optimizer": sgd(model)})
    return {"params": params_of(model), "for ours: order": seen}


@case(
    "data-parallel/float32-parts-ways", 1,
    "tolerances of assert_close; that a step repeats its bits", ranks=0, tolerance=0,
)  # fmt: skip
def float32_parts_ways(block, rank, ranks):
    torch.set_default_dtype(torch.float32)
    one = torch.ones(1)
    block.run(names(grad=one, reference=one))

    def passes(grad: float, reference: float) -> bool:
        both = names(grad=torch.tensor([grad]), reference=torch.tensor([reference]))
        try:
            exec(block.statements()[-1], both)
        except AssertionError:
            return False
        return True

    close = [passes(1e4 * (1 + 1.2e-6), 1e4), passes(1e4 * (1 + 1.5e-6), 1e4)]
    close += [passes(0.9e-5, 0.0), passes(1.1e-5, 0.0)]
    bits = []
    for _ in range(2):
        model = lenet()
        X, y = tensors(*given.images(8))
        F.cross_entropy(model(X.float()), y).backward()
        bits.append(grads_of(model))
    known = torch.are_deterministic_algorithms_enabled()
    return {"close": close, "repeats": (bits[0] == bits[1]).all(), "switch": known}


@case(
    "data-parallel/why-slower", 1, "parameters after the two steps",
    changes={"torch.cuda.synchronize": "torch.cpu.synchronize"}, tolerance=1e-9,
)  # fmt: skip
def why_slower(block, rank, ranks):
    X, y = share(given.features(8, 6, 4), rank, ranks)
    model = dense("first", "second", widths=(6, 8, 4))
    optimizer = sgd(model)

    def train_step(X, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(own["model"](X), y)
        loss.backward()
        optimizer.step()
        return loss

    own = names(model=model, train_step=train_step, X=X, y=y, time=time)
    block.run(own)
    return {"params": params_of(model)}


@case("data-parallel/collectives", 1, "what each of the four leaves on each rank")
def collectives(block, rank, ranks):
    tensor = torch.tensor(given.features(ranks, 6, 2)[0][rank])
    chunk, output, found = torch.zeros(6 // ranks), torch.zeros(6), {}
    own = names(tensor=tensor, chunk=chunk, output=output)
    for i, line in enumerate(block.statements()):
        exec(line, own)
        after = chunk if i == 1 else output if i == 3 else tensor
        found[f"after {i}"] = after.numpy().copy()
    return found


@case(
    "data-parallel/trees-and-hierarchy", 1,
    "the sum (the two variables need NCCL, so a GPU)", starts=False,
    changes={'"nccl"': '"gloo"'},
)  # fmt: skip
def trees(block, rank, ranks):
    import os

    grad = torch.tensor(given.features(ranks, 6, 2)[0][rank])
    block.run(names(grad=grad, os=os))
    return {"sum": grad}


@case(
    "data-parallel/hiding-communication", 1,
    "gradients; the order of layers in the buckets; a small first bucket",
    changes={"device_ids=[local_rank]": "device_ids=None"},
)  # fmt: skip
def hiding_communication(block, rank, ranks):
    model = dense(*"abcdefgh", widths=(1000,) * 9)  # 8 MB per layer
    X, y = share(given.features(4, 1000, 1000), rank, ranks)
    optimizer = sgd(model, 0.0)
    own = names(model=model, inputs=X, targets=y, optimizer=optimizer)
    ddp = block.run(own | {"loss_fn": F.cross_entropy})["model"]
    number = {id(p): i // 2 for i, p in enumerate(model.parameters())}
    layers, sizes = [], []

    def noted(_, bucket):
        layers.extend(number[id(p)] for p in bucket.parameters())
        sizes.append(bucket.buffer().nbytes)
        return allreduce_hook(None, bucket)

    ddp.register_comm_hook(None, noted)
    optimizer.zero_grad()
    F.cross_entropy(ddp(X), y).backward()
    found = {"grads": grads_of(model), "layers": list(dict.fromkeys(layers))}
    return found | {"several": len(sizes) > 1, "small first": sizes[0] < sizes[1]}


@case("data-parallel/gradient-accumulation", 1, "gradients; no sum before the last")
def gradient_accumulation(block, rank, ranks):
    X, y = share(given.images(12), rank, ranks)
    micro_batches = list(zip(X.split(2), y.split(2), strict=True))
    model = DistributedDataParallel(lenet())
    calls = []

    def counted(_, bucket):
        calls.append(bucket.index())
        return allreduce_hook(None, bucket)

    model.register_comm_hook(None, counted)
    block.run(names(model=model, micro_batches=micro_batches, summed_loss=summed))
    return {"grads": grads_of(model), "sums of bucket 0": calls.count(0)}


@case("data-parallel/large-batches", 1, "the rate of each step", 0, tolerance=1e-6)
def large_batches(block, rank, ranks):
    model, rates = nn.Linear(1, 1), []

    def train_step(inputs, targets):
        rates.append(own["optimizer"].param_groups[0]["lr"])
        own["optimizer"].step()

    own = names(model=model, train_step=train_step, base_lr=0.1, world_size=4)
    own |= {"warmup_steps": 5, "loader": [(None, None)] * 8}
    block.run(own)
    return {"rates": rates}


@case("data-parallel/critical-batch", 1, "squared lengths of both shares' gradients")
def critical_batch(block, rank, ranks):
    X, y = share(given.images(8), rank, ranks)
    model = DistributedDataParallel(lenet())
    own = block.run(names(model=model))
    F.cross_entropy(model(X), y).backward()
    squares = float(sum(own["lengths"]))
    return {"squares": squares, "grads": grads_of(model)}


@case(
    "data-parallel/bookkeeping", 1,
    "the loss of each epoch, the epoch that stops, the best file, orders of samples",
)  # fmt: skip
def bookkeeping(block, rank, ranks):
    import math
    import os

    images = list(zip(*tensors(*given.images(12)), strict=True))
    X, y = (each[rank::ranks] for each in tensors(*given.images(13, seed=2)))
    model, orders, sums = lenet(), [], []
    ddp, optimizer = DistributedDataParallel(model), sgd(model)
    sampler = DistributedSampler(images)
    loader = DataLoader(images, 6, sampler=sampler)

    def train_epoch(_, loader):  # all ranks' images are one batch
        orders.append(tuple(sampler))
        for inputs, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(ddp(inputs), labels).backward()
            optimizer.step()

    def count_own(model, own_val):
        with torch.no_grad():
            logits, labels = model(own_val[0]), own_val[1]
        right = (logits.argmax(1) == labels).sum()
        own = [summed(logits, labels), right, torch.tensor(len(labels))]
        sums.append(torch.stack([each.double() for each in own]))
        return sums[-1]

    own = names(model=ddp, loader=loader, sampler=sampler, train_epoch=train_epoch)
    own |= {"math": math, "os": os, "rank": rank, "epochs": 20, "patience": 2}
    own = block.run(own | {"count_own": count_own, "own_val": (X, y)})
    model.load_state_dict(torch.load("best.pt"))
    found = {"sums": torch.stack(sums), "stops": own["epoch"]}
    return found | {"best": params_of(model), "orders": len(set(orders)) == len(orders)}
