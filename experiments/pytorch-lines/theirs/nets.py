"""Small models of PyTorch with the parameters of `given`, and back again."""

import given
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

# Names whose imports some pages leave out.
IMPORTED = {
    "torch": torch, "dist": dist, "F": F, "cross_entropy": F.cross_entropy,
    "init_device_mesh": init_device_mesh, "fully_shard": fully_shard,
    "PipelineStage": PipelineStage, "ScheduleGPipe": ScheduleGPipe,
    "ScheduleInterleaved1F1B": ScheduleInterleaved1F1B,
    "ColwiseParallel": ColwiseParallel, "RowwiseParallel": RowwiseParallel,
    "parallelize_module": parallelize_module, "DataLoader": DataLoader,
    "DistributedDataParallel": DistributedDataParallel,
    "DistributedSampler": DistributedSampler,
}  # fmt: skip


def names(**own: object) -> dict:
    """Return what a block may use: the imports, and these."""
    return IMPORTED | own


class LeNet(nn.Module):
    """The book's LeNet, for images (samples, 28, 28, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_1, self.conv_2 = nn.Conv2d(1, 20, 3), nn.Conv2d(20, 50, 5)
        self.dense_1, self.dense_2 = nn.Linear(800, 128), nn.Linear(128, 10)

    def forward(self, X):
        h = X.permute(0, 3, 1, 2)
        h = F.avg_pool2d(F.relu(self.conv_1(h)), 2)
        h = F.avg_pool2d(F.relu(self.conv_2(h)), 2)
        h = h.permute(0, 2, 3, 1).flatten(1)
        return self.dense_2(F.relu(self.dense_1(h)))


def loaded(module: nn.Module, arrays: list[np.ndarray]) -> nn.Module:
    """Give a module the book's parameters, in their order."""
    with torch.no_grad():
        for p, array in zip(module.parameters(), arrays, strict=True):
            t = torch.tensor(array, dtype=p.dtype)
            p.copy_(
                t.T if t.dim() == 2 else t.permute(3, 2, 0, 1) if t.dim() == 4 else t
            )
    return module


def lenet(seed: int = 0) -> LeNet:
    """Return the LeNet with the parameters of `given.LENET`."""
    return loaded(LeNet(), given.params(given.LENET, seed))


def dense(*layers: str, widths: tuple, seed: int = 0, last: bool = False) -> nn.Module:
    """Return a perceptron whose layers have these names; ReLUs between them.

    last: a ReLU after the last layer, too.
    """
    model = nn.Sequential()
    for i, name in enumerate(layers):
        model.add_module(name, nn.Linear(widths[i], widths[i + 1]))
        if last or i + 1 < len(layers):
            model.add_module(f"relu_{i}", nn.ReLU())
    return loaded(model, given.perceptron(*widths, seed=seed))


def whole(t: torch.Tensor) -> torch.Tensor:
    """Return a tensor that may be cut over processes, whole."""
    return t.detach().full_tensor() if isinstance(t, DTensor) else t.detach()


def as_ours(t: torch.Tensor) -> np.ndarray:
    """Return a parameter or gradient in the book's layout, as a vector."""
    t = whole(t)
    t = t.T if t.dim() == 2 else t.permute(2, 3, 1, 0) if t.dim() == 4 else t
    return t.double().numpy().ravel()


def params_of(module: nn.Module) -> np.ndarray:
    """Return all parameters, end to end."""
    return np.concatenate([as_ours(p) for p in module.parameters()])


def grads_of(module: nn.Module) -> np.ndarray:
    """Return all gradients, end to end."""
    return np.concatenate([as_ours(p.grad) for p in module.parameters()])


def tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    """Return arrays as tensors."""
    return [torch.tensor(a) for a in arrays]


def share(samples: tuple, rank: int, ranks: int) -> list[torch.Tensor]:
    """Return a rank's part of (X, y)."""
    own = given.shares(len(samples[1]), ranks)[rank]
    return tensors(*(a[own] for a in samples))
