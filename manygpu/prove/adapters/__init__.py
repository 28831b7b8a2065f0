"""How a training step comes before the judge: a few lines for each kind of step.

Each adapter makes a subject for `manygpu.prove.judge`. For the command, write a
function without arguments that returns the subject: `manygpu prove mine:function`.

- `of_step`: a data parallel step of the book's LeNet.
    of_step(train_batch)
- `of_variables`: a step over lists of TensorFlow variables, one list per device.
    of_variables(start, gradients, params, draw, lr=0.1)
- `of_fit`: Keras `fit` under MirroredStrategy.
    of_fit(build, draw, lr=0.1)
- `of_loop`: a loop of your own under MirroredStrategy.
    of_loop(build, step, draw, lr=0.1)
- `of_workers`: a loop of your own under MultiWorkerMirroredStrategy.
    of_workers(build, step, draw, lr=0.1)
- `of_ring`: a step of the book's ring of processes.
    of_ring(step, gradients, params, draw, lr=0.1)
- `manygpu.prove.with_torch.of_ddp`: a step of PyTorch's DistributedDataParallel.
    of_ddp(step, build, loss, draw, lr=0.1)
- `manygpu.prove.with_torch.of_fsdp2`: a step of PyTorch's `fully_shard`.
    of_fsdp2(step, build, loss, draw, lr=0.1)
- `manygpu.prove.with_jax.of_shard_map`: a step of JAX's `shard_map`.
    of_shard_map(step, init, loss, draw, lr=0.1)

The arguments are your functions: `build()` makes a model, and `draw(samples, seed)` a
batch, the arrays X and y. `of_workers` and `of_ring` give their subject in a `with`
statement. For the other arguments, see an adapter's own help, such as
`help(manygpu.prove.adapters.of_fit)`.

TensorFlow is imported when the first of these names is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manygpu.prove.adapters.engine import of_loop as of_loop
    from manygpu.prove.adapters.fit import of_fit as of_fit
    from manygpu.prove.adapters.processes import of_ring as of_ring
    from manygpu.prove.adapters.processes import of_workers as of_workers
    from manygpu.prove.adapters.variables import Variables as Variables
    from manygpu.prove.adapters.variables import of_step as of_step
    from manygpu.prove.adapters.variables import of_variables as of_variables
    from manygpu.trainings.contract import Training as Training

HOMES = {
    "of_fit": "manygpu.prove.adapters.fit",
    "of_loop": "manygpu.prove.adapters.engine",
}
HOMES |= dict.fromkeys(("of_ring", "of_workers"), "manygpu.prove.adapters.processes")
HOMES |= dict.fromkeys(
    ("Variables", "of_step", "of_variables"), "manygpu.prove.adapters.variables"
)
HOMES["Training"] = "manygpu.trainings.contract"
__all__ = [
    "Training",
    "Variables",
    "of_fit",
    "of_loop",
    "of_ring",
    "of_step",
    "of_variables",
    "of_workers",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(HOMES[name]), name)
