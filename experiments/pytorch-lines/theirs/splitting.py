"""Blocks of the part `splitting`."""

import re

import given
import numpy as np
import torch
import torch.nn.functional as F
from ranks import NeedsGPUError, case
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from theirs.nets import (
    dense,
    grads_of,
    lenet,
    loaded,
    names,
    params_of,
    share,
    tensors,
    whole,
)

ON_CPU = {'"cuda"': '"cpu"'}
WIDTHS = 6, 8, 8, 8, 4


def local_numbers(module: nn.Module) -> int:
    """Return how many numbers of the parameters this process holds."""
    return sum(p.to_local().numel() for p in module.parameters())


@case(
    "splitting/network", 1, "logits and gradients (both parts on one CPU)", ranks=0,
    changes={"cuda:0": "cpu", "cuda:1": "cpu"},
)  # fmt: skip
def network(block, rank, ranks):
    model = dense("a", "b", widths=(6, 8, 4))
    X, y = tensors(*given.features(8, 6, 4))
    own = names(front=model[:2], back=model[2:], X=X, y=y)
    own = block.run(own)
    return {"logits": own["logits"].detach(), "grads": grads_of(model)}


@case(
    "splitting/what-a-tensor-means", 1,
    "the output, the output of a ReLU, and both placements", 2,
)  # fmt: skip
def what_a_tensor_means(block, rank, ranks):
    rng = np.random.default_rng(0)
    x, W, b = (torch.tensor(rng.normal(size=s)) for s in ((4, 6), (6, 3), (3,)))
    mesh = init_device_mesh("cpu", (2,))
    own = block.run(names(mesh=mesh, x=x, W=W, b=b))
    found = {name: whole(own[name]) for name in ("output", "hidden")}
    kinds = [str(own[name].placements[0]) for name in found]
    return found | {"placements": kinds}


@case(
    "splitting/program-over-ranks", 1,
    "the result, where it is a partial sum, and the gradients of A and B",
    ranks=4, changes=ON_CPU,
)  # fmt: skip
def program_over_ranks(block, rank, ranks):
    rng = np.random.default_rng(0)
    x, A, B = (torch.tensor(rng.normal(size=s)) for s in ((4, 6), (6, 8), (8, 3)))
    own, kinds = names(x=x, A=A.requires_grad_(), B=B.requires_grad_()), []
    for line in block.statements():
        exec(line, own)
        if line.startswith("y ="):
            kinds.append([str(p) for p in own["y"].placements])
    own["y"].square().sum().backward()
    found = {"y": whole(own["y"]), "placements": kinds}
    return found | {name: whole(own[name].grad) for name in "AB"}


@case(
    "splitting/batch-normalization", 1, "that line 1 exchanges the layers",
    ranks=2, changes={"device_ids=[rank]": "device_ids=None"},
)  # fmt: skip
def batch_normalization(block, rank, ranks):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten())
    own = names(model=model, rank=rank, X=torch.ones(2, 1, 5, 5), loss_fn=torch.sum)
    own |= {"y": torch.zeros(2, dtype=torch.long)}
    exec(block.statements()[0], layers := dict(own))
    kinds = [type(layer).__name__ for layer in layers["model"].modules()]
    assert "SyncBatchNorm" in kinds and "BatchNorm2d" not in kinds
    try:
        block.run(own)
    except ValueError as error:
        assert "only work with GPU modules" in str(error), error
        raise NeedsGPUError(
            "line 1 exchanges the layers, which then refuse CPUs"
        ) from error


@case("splitting/pipeline", 1, "each rank's operations in their order", 4, tolerance=0)
def pipeline(block, rank, ranks):
    layers = dense(*"abcd", widths=WIDTHS)[2 * rank : 2 * rank + 2]
    stage, printed = PipelineStage(layers, rank, ranks, torch.device("cpu")), []
    own = names(stage=stage, rank=rank, loss_fn=F.cross_entropy, print=printed.append)
    own = block.run(own)
    assert own["schedule"].pipeline_order[rank] == printed
    return {"order": order_of(own["schedule"], rank)}


def order_of(schedule, rank: int) -> list[str]:
    """Return a rank's passes as the book writes them: F or B, stage, micro-batch."""
    order = []
    for action in schedule.pipeline_order[rank]:
        # Such as 0F0; it also lists ticks without work, and its own operations.
        if found := re.fullmatch(r"(\d+)([FB])(\d+)", str(action)):
            stage, kind, micro_batch = found.groups()
            order.append(f"{kind}{stage}.{micro_batch}")
    return order


@case(
    "splitting/running-a-pipeline", 1, "each stage's gradients, the order of passes",
    ranks=4,
)  # fmt: skip
def running_a_pipeline(block, rank, ranks):
    model = dense(*"abcd", widths=WIDTHS)
    layers = model[2 * rank : 2 * rank + 2]
    X, y = tensors(*given.features(16, 6, 4))
    own = names(layers=layers, rank=rank, world_size=ranks, device="cpu", X=X, y=y)
    order = []  # of the passes that run: pipeline_order is wrong for the last rank
    for name in ("forward", "backward"):
        note_passes(f"{name}_one_chunk", f"{name[0].upper()}{rank}", order)
    block.run(own | {"loss_fn": F.cross_entropy})
    return {"grads": grads_of(layers), "order": order}


def note_passes(name: str, text: str, order: list[str]) -> None:
    """Let all stages note the micro-batch of each pass with this text."""
    passes = getattr(PipelineStage, name)

    def noted(self, micro_batch: int, *more, **options):
        order.append(f"{text}.{micro_batch}")
        return passes(self, micro_batch, *more, **options)

    setattr(PipelineStage, name, noted)


@case("splitting/smaller-bubble", 1, "each rank's gradients, and the order of passes")
def smaller_bubble(block, rank, ranks):
    model = dense(*"abcd", widths=WIDTHS)
    my_indices = [rank, rank + 2]
    parts = [model[2 * i : 2 * i + 2] for i in my_indices]
    own = names(parts=parts, my_indices=my_indices, n_stages=4, device="cpu")
    own = block.run(own | {"loss_fn": F.cross_entropy})
    X, y = tensors(*given.features(16, 6, 4))
    own["schedule"].step(X) if rank == 0 else own["schedule"].step(target=y)
    grads = np.concatenate([grads_of(part) for part in parts])
    return {"grads": grads, "order": order_of(own["schedule"], rank)}


@case("splitting/layerwise", 1, "logits and gradients", ranks=8, changes=ON_CPU)
def layerwise(block, rank, ranks):
    model = dense("first", "second", widths=(6, 16, 4))
    X, y = tensors(*given.features(8, 6, 4))
    model = block.run(names(model=model))["model"]
    logits = model(X)
    F.cross_entropy(logits, y).backward()
    found = {"logits": logits.detach(), "grads": grads_of(model)}
    return found | {"numbers": model.first.weight.to_local().numel()}


@case("splitting/layerwise-lenet", 1, "logits and gradients")
def layerwise_lenet(block, rank, ranks):
    X, y = tensors(*given.images(8))
    mesh = init_device_mesh("cpu", (2,))
    model = block.run(names(model=lenet(), mesh=mesh))["model"]
    logits = model(X)
    F.cross_entropy(logits, y).backward()
    return {"logits": logits.detach(), "grads": grads_of(model)}


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.gain, self.shift)


class Attends(nn.Module):
    """The book's block: heads of size 2, and an MLP with gelu."""

    def __init__(self, D: int) -> None:
        super().__init__()
        self.norm = Norm(D)
        self.q, self.k, self.v, self.out = (nn.Linear(D, D, False) for _ in range(4))
        self.norm2 = Norm(D)
        self.A, self.B = nn.Linear(D, 4 * D, False), nn.Linear(4 * D, D, False)

    def forward(self, x):
        n = self.norm(x)
        q, k, v = (w(n).unflatten(-1, (-1, 2)) for w in (self.q, self.k, self.v))
        q, k, v = (t.permute(1, 2, 0, 3) for t in (q, k, v))  # tokens come first
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(h.permute(2, 0, 1, 3).flatten(2))
        return x + self.B(F.gelu(self.A(self.norm2(x))))


# TensorFlow's gelu takes the root of 2 from float32, also in float64.
@case(
    "splitting/transformer", 1, "output and gradients of two blocks", ranks=8,
    changes=ON_CPU, tolerance=1e-7,
)  # fmt: skip
def transformer(block, rank, ranks):
    D = 16
    shapes = [(D,), (D,), *[(D, D)] * 4, (D,), (D,), (D, 4 * D), (4 * D, D)]
    model = nn.Module()
    model.blocks = nn.ModuleList(
        loaded(Attends(D), given.params(shapes, seed)) for seed in range(2)
    )
    rng = np.random.default_rng(5)
    x, upstream = tensors(rng.normal(size=(5, 3, D)), rng.normal(size=(5, 3, D)))
    block.run(names(model=model))
    h = x
    for one in model.blocks:
        h = one(h)
    (h * upstream).sum().backward()
    found = {"output": h.detach(), "grads": grads_of(model)}
    return found | {"numbers": model.blocks[0].A.weight.to_local().numel()}


@case("splitting/dtensor", 1, "output and gradients", ranks=4, changes=ON_CPU)
def dtensor(block, rank, ranks):
    rng = np.random.default_rng(0)
    x, W1, W2 = (torch.tensor(rng.normal(size=s)) for s in ((4, 6), (6, 8), (8, 4)))
    own = names(x=x, W1=W1.requires_grad_(), W2=W2.requires_grad_())
    own = block.run(own)
    own["y"].square().sum().backward()
    found = {"y": whole(own["y"]), "local": own["W1"].to_local().shape}
    return found | {name: whole(own[name].grad) for name in ("W1", "W2")}


@case("splitting/recomputation", 1, "gradients; how often the block runs", ranks=0)
def recomputation(block, rank, ranks):
    model, runs = dense("a", "b", widths=(6, 8, 6), last=True), []
    model.register_forward_pre_hook(lambda *_: runs.append(1))
    h = torch.tensor(given.features(8, 6, 4)[0], requires_grad=True)
    own = block.run(names(block=model, h=h))
    own["h"].square().sum().backward()
    return {"grads": grads_of(model), "of h": h.grad, "runs": len(runs)}


@case(
    "splitting/sharded-state", 1,
    "gradients, parameters after a step of Adam, and how many numbers a rank holds",
    ranks=8, changes=ON_CPU,
)  # fmt: skip
def sharded_state(block, rank, ranks):
    model = dense("a", "b", widths=(6, 8, 4))
    model.layers = [model.a, model.b]
    X, y = share(given.features(16, 6, 4), rank, ranks)
    block.run(names(model=model))
    F.cross_entropy(model(X), y).backward()
    grads, numbers = grads_of(model), local_numbers(model)
    epsilon = 1e-7 / (1 - 0.999) ** 0.5  # the book adds it to v before its correction
    torch.optim.Adam(model.parameters(), 0.001, eps=epsilon).step()
    return {"grads": grads, "params": params_of(model), "numbers": numbers}


@case(
    "splitting/hybrid-meshes", 1, "gradients, and how many numbers a rank holds",
    ranks=8, changes=ON_CPU,
)  # fmt: skip
def hybrid_meshes(block, rank, ranks):
    model = dense("up", "down", widths=(6, 8, 4))
    block.run(names(block=model))
    X, y = share(given.features(8, 6, 4), rank // 2, 4)
    F.cross_entropy(model(X), y).backward()
    weights = model.up.weight.to_local().numel() + model.down.weight.to_local().numel()
    return {"grads": grads_of(model), "weights": weights}


@case("splitting/hybrid-meshes", 2, "the norm, and the clipped gradients", ranks=8)
def clipped_on_a_mesh(block, rank, ranks):
    names_of_axes = "pipeline", "data", "tensor"
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=names_of_axes)
    model = dense("up", "down", "up2", "down2", widths=WIDTHS)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    plan |= {"up2": ColwiseParallel(), "down2": RowwiseParallel()}
    parallelize_module(model, mesh["tensor"], plan)
    stages = [fully_shard(part, mesh=mesh["data"]) for part in (model[:4], model[4:])]
    X, y = share(given.features(8, 6, 4), mesh.get_local_rank("data"), 2)
    # Every rank runs both stages, but it clips only its own, as in a pipeline.
    (10 * F.cross_entropy(stages[1](stages[0](X)), y)).backward()
    stage = stages[mesh.get_local_rank("pipeline")]
    own = block.run(names(stage=stage, mesh=mesh))
    return {"norm": own["norm"], "grads": grads_of(stage)}


@case(
    "splitting/mesh-layout", 1, "the groups of ranks 0, 9 and 511 of 512", ranks=0,
    changes=ON_CPU, tolerance=0,
)  # fmt: skip
def mesh_layout(block, rank, ranks):
    dist, found = torch.distributed, {}
    for me in (0, 9, 511):
        dist.init_process_group("fake", store=FakeStore(), rank=me, world_size=512)
        own = block.run(names())
        for name in ("inside_a_node", "between_nodes"):
            group = own[name].get_group()
            found[f"{name} {me}"] = dist.get_process_group_ranks(group)
        dist.destroy_process_group()
    return found
