"""Which engine has a layout, and the line that asks it for that.

A layout that no engine has is never proposed. The simplest engine comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from manygpu.choosing.question import Setting
from manygpu.costs.layout import ALL, NOTHING, Layout

Mask = bool | np.ndarray


class Engine(NamedTuple):
    """An engine, and how it is asked.

    Attributes:
        name: what people install.
        has: whether it has a layout of a setting, for arrays too.
        line: what you write, with the layout's numbers.
    """

    name: str
    has: Callable[[Setting, Layout], Mask]
    line: Callable[[Setting, Layout], str]


def uncut(_: Setting, layout: Layout) -> Mask:
    """Whether each device has whole layers, all of them."""
    return (layout.layerwise == 1) & (layout.stages == 1)


def even(setting: Setting, layout: Layout) -> Mask:
    """Whether each replica and each micro-batch has as many samples."""
    return setting.batch % (layout.data * layout.micro_batches) == 0


def one_machine(setting: Setting, layout: Layout) -> Mask:
    """Whether all devices are in one machine."""
    return layout.devices <= setting.machine.cluster.gpus


def _fit(setting: Setting, layout: Layout) -> Mask:
    once = (layout.micro_batches == 1) | (layout.devices == 1) & even(setting, layout)
    copies = uncut(setting, layout) & (layout.zero == 0) & even(setting, layout)
    return copies & once & one_machine(setting, layout)


def _fit_line(setting: Setting, layout: Layout) -> str:
    m, size = layout.micro_batches, setting.batch // layout.micro_batches
    said = f"model.fit(x, y, batch_size={size})"
    if layout.devices > 1:
        said = "with tf.distribute.MirroredStrategy().scope(): build, compile; " + said
    if m > 1:
        said = f"keras.optimizers.Adam(gradient_accumulation_steps={m}); " + said
    return said + _again(layout, '; layers under keras.RematScope(mode="full")')


def _again(layout: Layout, said: str) -> str:
    return said if layout.recompute else ""


def _loop(setting: Setting, layout: Layout) -> Mask:
    return uncut(setting, layout) & (layout.zero == 0)


def _loop_line(setting: Setting, layout: Layout) -> str:
    which = "" if one_machine(setting, layout) else "MultiWorker"
    said = f"a loop of your own under tf.distribute.{which}MirroredStrategy"
    if layout.micro_batches > 1:
        said += f", gradients added over {layout.micro_batches} micro-batches"
    if not even(setting, layout):
        said += f", sums divided by the batch of {setting.batch}"
    return said + _again(layout, ", tf.recompute_grad")


def _deepspeed(setting: Setting, layout: Layout) -> Mask:
    wanted = (layout.zero == 1) | (layout.zero == 2)
    return uncut(setting, layout) & wanted & even(setting, layout)


def _deepspeed_line(setting: Setting, layout: Layout) -> str:
    said = f'{{"zero_optimization": {{"stage": {layout.zero}}}, '
    said += f'"train_batch_size": {setting.batch}, '
    said += f'"gradient_accumulation_steps": {layout.micro_batches}}}'
    return said + _again(layout, ", deepspeed.checkpointing")


def _fsdp(setting: Setting, layout: Layout) -> Mask:
    return (layout.zero == 3) & (layout.stages == 1) & even(setting, layout)


def _fsdp_line(_: Setting, layout: Layout) -> str:
    mesh, said = [layout.data], "fully_shard(layer, mesh=mesh) for each layer"
    if layout.copies > 1:
        mesh = [layout.copies, layout.shards]
    if layout.layerwise > 1:
        mesh.append(layout.layerwise)
        said = "parallelize_module and " + said
    shape = ", ".join(map(str, mesh)) + ("," if len(mesh) == 1 else "")
    said = f'mesh = init_device_mesh("cuda", ({shape})); ' + said
    if layout.micro_batches > 1:
        said += f"; {layout.micro_batches} micro-batches a step"
    return said + _again(layout, "; checkpoint_wrapper(layer)")


def _pipelining(setting: Setting, layout: Layout) -> Mask:
    wanted = (layout.stages > 1) & (layout.layerwise == 1) & (layout.zero == 0)
    return wanted & even(setting, layout)


def _pipelining_line(_: Setting, layout: Layout) -> str:
    said = f"torch.distributed.pipelining: Schedule1F1B(stage, {layout.micro_batches})"
    said += f" on {layout.stages} stages"
    if layout.data > 1:
        said += f", DDP over {layout.data}"
    return said + _again(layout, ", checkpoint_wrapper(layer)")


def _megatron(setting: Setting, layout: Layout) -> Mask:
    known = setting.model.shape is not None  # it has transformers only
    return known & (layout.zero <= 1) & (layout.copies == 1) & even(setting, layout)


def _megatron_line(setting: Setting, layout: Layout) -> str:
    each = setting.batch // (layout.data * layout.micro_batches)
    sizes = {"tensor-model-parallel-size": layout.layerwise}
    sizes |= {"pipeline-model-parallel-size": layout.stages}
    said = "".join(f"--{name} {n} " for name, n in sizes.items() if n > 1)
    said += f"--micro-batch-size {each} --global-batch-size {setting.batch}"
    said += " --sequence-parallel" * (layout.layerwise > 1)
    said += " --use-distributed-optimizer" * layout.zero
    if layout.recompute != NOTHING:
        kind = "full --recompute-method uniform --recompute-num-layers 1"
        said += " --recompute-granularity "
        said += kind if layout.recompute == ALL else "selective"
    return "pretrain_gpt.py " + said


def _jax(setting: Setting, layout: Layout) -> Mask:
    wanted = (layout.layerwise > 1) & (layout.stages == 1) & (layout.zero != 2)
    return wanted & (layout.copies == 1) & even(setting, layout)


def _jax_line(_: Setting, layout: Layout) -> str:
    said = f'mesh = jax.make_mesh(({layout.data}, {layout.layerwise}), ("data", '
    said += '"model")); jit with NamedSharding of batch and parameters'
    if layout.micro_batches > 1:
        said += f"; lax.scan over {layout.micro_batches} micro-batches"
    return said + _again(layout, "; jax.checkpoint(layer)")


# Of two that have a layout, the one that comes first is named.
ENGINES = (
    Engine("Keras", _fit, _fit_line),
    Engine("TensorFlow", _loop, _loop_line),
    Engine("DeepSpeed", _deepspeed, _deepspeed_line),
    Engine("PyTorch FSDP2", _fsdp, _fsdp_line),
    Engine("Megatron-LM", _megatron, _megatron_line),
    Engine("PyTorch", _pipelining, _pipelining_line),
    Engine("JAX", _jax, _jax_line),
)


def has_one(setting: Setting, layouts: Layout, names: tuple[str, ...] = ()) -> Mask:
    """Whether some engine has each layout; with `names`, one of these."""
    wanted = [one for one in ENGINES if not names or one.name in names]
    return np.any([one.has(setting, layouts) for one in wanted], axis=0)


def engine_of(
    setting: Setting, layout: Layout, names: tuple[str, ...] = ()
) -> tuple[str, str]:
    """The first engine that has a layout, and the line that asks it.

    Raises ValueError if none has it.
    """
    for one in ENGINES:
        if (not names or one.name in names) and one.has(setting, layout):
            return one.name, one.line(setting, layout)
    raise ValueError(f"layout must be one that an engine has, got {layout.words}")
