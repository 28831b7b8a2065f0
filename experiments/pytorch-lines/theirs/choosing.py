"""Blocks of the part `choosing`."""

import given
import torch
from ranks import case
from torch.nn.parallel import DistributedDataParallel

from theirs.nets import dense, grads_of, names, params_of

LR = 0.05


@case("choosing/who-divides", 1, "gradients, and parameters after a step")
def who_divides(block, rank, ranks):
    """Run the block with micro-batches of 5 and 1, and of 2 and 4 tokens."""
    net = dense("up", "down", widths=(4, 6, 5))
    model = DistributedDataParallel(net)
    own = [tuple(map(torch.tensor, one)) for one in given.weighted_tokens()[rank]]
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    block.run(names(model=model, micro_batches=own, optimizer=optimizer))
    return {"grads": grads_of(net), "params": params_of(net)}
