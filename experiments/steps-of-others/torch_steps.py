"""Steps of PyTorch, DDP and FSDP2: each process imports this file."""

from __future__ import annotations

import contextlib

import numpy as np

try:
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy
except ModuleNotFoundError:  # the list of cases can be read all the same
    torch = None

FEATURES, CLASSES, LR = 6, 4, 0.05


def build():
    torch.manual_seed(0)
    own = torch.nn.Linear(FEATURES, 5), torch.nn.Tanh(), torch.nn.Linear(5, CLASSES)
    return torch.nn.Sequential(*own).double()


def build32():
    return build().float()


def build_steep():
    model = build()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(6)
    return model


def loss(model, X, y, reduction="sum"):
    return cross_entropy(model(X), y, reduction=reduction)


def loss16(model, X, y):
    """Computed in bfloat16, as the step does."""
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(X)
    return cross_entropy(logits.float(), y, reduction="sum")


def masked_loss(model, X, y):
    return cross_entropy(model(X), y, reduction="sum", ignore_index=-1)


def draw(samples, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, FEATURES)), rng.integers(0, CLASSES, samples)


def draw32(samples, seed):
    X, y = draw(samples, seed)
    return X.astype(np.float32), y


def draw_masked(samples, seed):
    X, y = draw(samples, seed)
    off = np.random.default_rng(seed + 77).random(samples) < 0.4
    off[seed % samples] = False
    return X, np.where(off, -1, y)


def share(tensor):
    """This process's part of a batch; parts may be uneven."""
    return tensor.tensor_split(dist.get_world_size())[dist.get_rank()]


def scale_of(X):
    """DDP averages over k processes; this makes it a mean over the samples."""
    return dist.get_world_size() / len(X)


def descend(optimizer, total):
    optimizer.zero_grad()
    total.backward()
    optimizer.step()


def weighed(model, optimizer, X, y):
    descend(optimizer, loss(model, share(X), share(y)) * scale_of(X))


def autocast(model, optimizer, X, y):
    descend(optimizer, loss16(model, share(X), share(y)) * scale_of(X))


def compressed(model, optimizer, X, y):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
        fp16_compress_hook,
    )

    if not getattr(model, "_comm_hooks", None):
        model.register_comm_hook(None, fp16_compress_hook)
    weighed(model, optimizer, X, y)


def global_norm_clipped(model, optimizer, X, y):
    optimizer.zero_grad()
    (loss(model, share(X), share(y)) * scale_of(X)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def pieces(model, X, y):
    """Yield each sample of the own share, whether it is the first, and the last.

    Of an empty share, an empty piece: DDP waits for all ranks.
    """
    X, y = share(X), share(y)
    count = max(1, len(X))
    for i in range(count):
        yield X[i : i + 1], y[i : i + 1], i == 0, i == count - 1


def flag_before_forward(model, optimizer, X, y):
    optimizer.zero_grad()
    for x, t, _, last in pieces(model, X, y):
        model.require_backward_grad_sync = last
        (loss(model, x, t) * scale_of(X)).backward()
    optimizer.step()


def synced_at_the_first(model, optimizer, X, y):
    optimizer.zero_grad()
    for x, t, first, _ in pieces(model, X, y):
        with contextlib.nullcontext() if first else model.no_sync():
            (loss(model, x, t) * scale_of(X)).backward()
    optimizer.step()


def flag_after_forward(model, optimizer, X, y):
    optimizer.zero_grad()
    model.require_backward_grad_sync = False
    for x, t, _, last in pieces(model, X, y):
        total = loss(model, x, t) * scale_of(X)
        model.require_backward_grad_sync = last
        total.backward()
        model.require_backward_grad_sync = False
    optimizer.step()


def mean_of_means(model, optimizer, X, y):
    descend(optimizer, loss(model, share(X), share(y), "mean"))


def masked_mean(model, optimizer, X, y):
    own = share(y)
    total = cross_entropy(model(share(X)), own, reduction="sum", ignore_index=-1)
    descend(optimizer, total / max(1, int((own >= 0).sum())))


def outside_the_wrapper(model, optimizer, X, y):
    logits = model.module(share(X))
    descend(optimizer, cross_entropy(logits, share(y), reduction="sum") * scale_of(X))


def clipped_without_sync(model, optimizer, X, y):
    optimizer.zero_grad()
    with model.no_sync():
        (loss(model, share(X), share(y)) * scale_of(X)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()


def skips_if_empty(model, optimizer, X, y):
    if len(share(X)):
        weighed(model, optimizer, X, y)


# Optimizers, and FSDP2 with fewer bits on the way


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=LR, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.05)


def build_reduced():
    """FSDP2 that sums gradients in bfloat16, on each layer."""
    model = build32()
    if dist.is_initialized():
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)
        for layer in (model[0], model[2]):
            fully_shard(layer, mp_policy=policy)
    return model
