"""Steps of PyTorch, right ones and wrong ones: each process imports this file."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_reduce
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

FEATURES, CLASSES, LR = 6, 4, 0.05


def build():
    torch.manual_seed(0)
    own = torch.nn.Linear(FEATURES, 5), torch.nn.Tanh(), torch.nn.Linear(5, CLASSES)
    return torch.nn.Sequential(*own).double()


def loss(model, X, y, reduction="sum"):
    """So steep that each shard of its gradient has to be clipped, too."""
    return 10 * cross_entropy(model(X), y, reduction=reduction)


def draw(samples, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(samples, FEATURES)), rng.integers(0, CLASSES, samples)
    return 3 * X, y


def share(tensor):
    """This process's part of a batch; parts may be uneven."""
    return tensor.tensor_split(dist.get_world_size())[dist.get_rank()]


def descend(optimizer, total):
    optimizer.zero_grad()
    total.backward()
    optimizer.step()


# Right: DDP and FSDP2 average over k processes, so each multiplies by k, and divides
# by the samples of all.


def weighed(model, optimizer, X, y):
    own = loss(model, share(X), share(y)) * dist.get_world_size() / len(X)
    descend(optimizer, own)
    mean = own.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    return mean


def in_micro_batches(model, optimizer, X, y):
    optimizer.zero_grad()
    own_X, own_y = share(X), share(y)
    *first, last = zip(own_X.split(1), own_y.split(1), strict=True)
    scale = dist.get_world_size() / len(X)
    with model.no_sync():
        for one in first:
            (loss(model, *one) * scale).backward()
    (loss(model, *last) * scale).backward()
    optimizer.step()


def loss_summed_before_gradient(model, optimizer, X, y):
    """It looks like k times: its backward sums, too. The average undoes just that."""
    whole = all_reduce(loss(model, share(X), share(y))) / len(X)
    descend(optimizer, whole)
    return whole


def clipped(model, optimizer, X, y):
    optimizer.zero_grad()
    (loss(model, share(X), share(y)) * dist.get_world_size() / len(X)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def falling(parameters):
    """An optimizer with a scheduler, which halves the rate after each step."""
    own = torch.optim.SGD(parameters, lr=LR)
    own.scheduler = torch.optim.lr_scheduler.ExponentialLR(own, gamma=0.5)
    return own


def scheduled(model, optimizer, X, y):
    mean = weighed(model, optimizer, X, y)
    optimizer.scheduler.step()
    return mean


# Wrong


def mean_of_means(model, optimizer, X, y):
    descend(optimizer, loss(model, share(X), share(y), "mean"))


def summed(model, optimizer, X, y):
    descend(optimizer, loss(model, share(X), share(y)))


def divided_twice(model, optimizer, X, y):
    descend(optimizer, loss(model, share(X), share(y)) / len(X))


def mean_of_micro_batch_means(model, optimizer, X, y):
    optimizer.zero_grad()
    own_X, own_y = share(X), share(y)
    *first, last = zip(own_X.split(2), own_y.split(2), strict=True)
    pieces, scale = len(first) + 1, len(share(X)) * dist.get_world_size() / len(X)
    with getattr(model, "no_sync", torch.enable_grad)():
        for X_of, y_of in first:
            (loss(model, X_of, y_of, "mean") * scale / pieces).backward()
    X_of, y_of = last
    (loss(model, X_of, y_of, "mean") * scale / pieces).backward()
    optimizer.step()


def module_called(model, optimizer, X, y):
    own = loss(model.module, share(X), share(y)) * dist.get_world_size() / len(X)
    descend(optimizer, own)


def loss_summed_and_weighed(model, optimizer, X, y):
    """Its backward has summed over the processes already: k times."""
    own = loss(model, share(X), share(y)) * dist.get_world_size() / len(X)
    descend(optimizer, all_reduce(own))


def sampler_fills_up(model, optimizer, X, y):
    own = list(DistributedSampler(range(len(X)), shuffle=False))
    descend(optimizer, loss(model, X[own], y[own], "mean"))


def build_with_a_bias_ignored():
    model = build()
    ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    ignore(model, ["0.bias"])
    return model


def clipped_by_its_shard(model, optimizer, X, y):
    optimizer.zero_grad()
    (loss(model, share(X), share(y)) * dist.get_world_size() / len(X)).backward()
    own = [p.grad.to_local() for p in model.parameters()]
    norm = sum((g * g).sum().item() for g in own) ** 0.5
    for p in model.parameters():
        p.grad.mul_(1 / max(1, norm))
    optimizer.step()


def stops(model, optimizer, X, y):
    if dist.get_rank() == dist.get_world_size() - 1:
        raise ValueError("this process has no data")
    weighed(model, optimizer, X, y)
