"""Which engine has a layout, and the line that asks it for that.

A layout that no engine has is never proposed, and an engine has a layout only if it
takes its numbers: what Megatron-LM asserts is asked here as well (its `arguments.py`
and `transformer_config.py`). The simplest engine comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from manygpu.choosing.question import Setting
from manygpu.costs.layout import ALL, ATTENTION, NOTHING, SELECTIVE, Layout

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


def in_float16(setting: Setting) -> bool:
    """Whether it computes in float16, whose gradients may overflow."""
    return setting.model.half and setting.machine.sixteen == "float16"


def _fit(setting: Setting, layout: Layout) -> Mask:
    # In float16 Keras skips a step if replica 0's gradients overflow, before they are
    # added up: an overflow on another replica reaches the weights of all.
    safe = (layout.devices == 1) | (not in_float16(setting))
    return safe & fit_shaped(setting, layout)


def fit_shaped(setting: Setting, layout: Layout) -> Mask:
    """Whether `fit` shares the work out so, whatever the numbers are written in."""
    once = (layout.micro_batches == 1) | (layout.devices == 1) & even(setting, layout)
    copies = uncut(setting, layout) & (layout.zero == 0) & even(setting, layout)
    kept = layout.recompute == NOTHING  # RematScope keeps every layer's input
    return copies & once & kept & one_machine(setting, layout)


def _policy(setting: Setting) -> str:
    """Keras's name for computing in the 16-bit numbers of this device."""
    return f"mixed_{setting.machine.sixteen}"


def _fit_line(setting: Setting, layout: Layout) -> str:
    m, said = layout.micro_batches, []
    if setting.model.half:
        said.append(f'keras.config.set_dtype_policy("{_policy(setting)}")')
    if in_float16(setting):
        said.append("compile then scales the loss by keras's LossScaleOptimizer")
    if layout.devices > 1:
        said.append("build and compile under tf.distribute.MirroredStrategy().scope()")
    options = ["jit_compile=True"] if setting.model.half else []
    if m > 1:
        options.append(f"an optimizer with gradient_accumulation_steps={m}")
    if options:
        said.append("model.compile(...) with " + " and ".join(options))
    said.append(f"model.fit(x, y, batch_size={setting.batch // m})")
    return "; ".join(said)


def _loop(setting: Setting, layout: Layout) -> Mask:
    parts = (layout.recompute == NOTHING) | (layout.recompute == ALL)
    return uncut(setting, layout) & (layout.zero == 0) & parts


def _loop_line(setting: Setting, layout: Layout) -> str:
    which = "" if one_machine(setting, layout) else "MultiWorker"
    said = f"a loop of your own under tf.distribute.{which}MirroredStrategy"
    if setting.model.half:
        said += f", in {_policy(setting)}"
    if in_float16(setting):
        said += ", the loss scaled as keras's LossScaleOptimizer does"
        agreed = " by a verdict that decides after the sum of gradients"
        said += agreed * (layout.devices > 1)
    if layout.micro_batches > 1:
        said += f", gradients added over {layout.micro_batches} micro-batches"
    if not even(setting, layout):
        said += f", sums divided by the batch of {setting.batch}"
    return said + _again(layout, ", tf.recompute_grad around each block")


def _again(layout: Layout, said: str, part: str = "") -> str:
    """What makes an engine compute again: all, or what lies between products."""
    return {ALL: said, SELECTIVE: part or said}.get(layout.recompute, "")


# PyTorch's way to keep the results of products and of attention.
KEEPS = "context_fn=create_selective_checkpoint_contexts keeping products and attention"


def _torch_recomputes(layout: Layout) -> Mask:
    """PyTorch computes a block again, or what lies between its products."""
    return layout.recompute != ATTENTION


def _launched(setting: Setting, layout: Layout, script: str = "train.py") -> str:
    """How a PyTorch engine's processes are started."""
    gpus = min(layout.devices, setting.machine.cluster.gpus)
    nodes = layout.devices // gpus
    many = f"--nnodes {nodes} " if nodes > 1 else ""
    return f"torchrun {many}--nproc-per-node {gpus} {script}"


def _scaler(setting: Setting) -> str:
    """What keeps float16's small gradients from becoming 0: their loss is scaled."""
    return ", gradients by torch.amp.GradScaler" * in_float16(setting)


def _deepspeed(setting: Setting, layout: Layout) -> Mask:
    wanted = (layout.zero > 0) & (layout.copies == 1) & _torch_recomputes(layout)
    return uncut(setting, layout) & wanted & even(setting, layout)


def _deepspeed_line(setting: Setting, layout: Layout) -> str:
    kind = "bf16" if setting.machine.sixteen == "bfloat16" else "fp16"
    half = f'"{kind}": {{"enabled": true}}, "communication_data_type": "fp32", '
    half *= setting.model.half  # else gradients would be added up in 16 bits
    said = f'{{{half}"zero_optimization": {{"stage": {layout.zero}}}, '
    said += f'"train_batch_size": {setting.batch}, '
    said += f'"gradient_accumulation_steps": {layout.micro_batches}}}'
    part = f"; torch.utils.checkpoint in each block, {KEEPS}"
    return said + _again(layout, "; deepspeed.checkpointing in each block", part)


def _fsdp(setting: Setting, layout: Layout) -> Mask:
    sharded = (layout.zero == 3) & (layout.stages == 1) & _torch_recomputes(layout)
    return sharded & even(setting, layout)


def _fsdp_line(setting: Setting, layout: Layout) -> str:
    names, sizes, of = ["shard"], [layout.shards], 'mesh["shard"]'
    said = []
    if layout.copies > 1:
        names, sizes = ["copy", *names], [layout.copies, *sizes]
        of = 'mesh["copy", "shard"]'
    if layout.layerwise > 1:
        names, sizes = [*names, "tp"], [*sizes, layout.layerwise]
        said.append('parallelize_module(block, mesh["tp"], plan)')
    shape = ", ".join(map(str, sizes)) + "," * (len(sizes) == 1)
    quoted = ", ".join(f'"{name}"' for name in names) + "," * (len(names) == 1)
    mesh = f'init_device_mesh("cuda", ({shape}), mesh_dim_names=({quoted}))'
    # Without reduce_dtype, all devices' gradients would be added up in 16 bits.
    types = f"param_dtype=torch.{setting.machine.sixteen}, reduce_dtype=torch.float32"
    policy = f", mp_policy=MixedPrecisionPolicy({types})" * setting.model.half
    block = f"fully_shard(block, mesh={of}{policy})"
    said.append(f"{block}, the model last{_scaler(setting)}")
    if again := _again(layout, "block", f"block, {KEEPS}"):
        said.insert(0, f"checkpoint_wrapper({again})")
    line = f"{_launched(setting, layout)}: mesh = {mesh}; for each block "
    line += ", ".join(said)
    return line + _pieces(layout)


def _pieces(layout: Layout) -> str:
    m = layout.micro_batches
    return f"; {m} micro-batches a step" if m > 1 else ""


def _torch(setting: Setting, layout: Layout) -> Mask:
    whole = (layout.layerwise == 1) & (layout.zero == 0) & _torch_recomputes(layout)
    runs = layout.stages * layout.chunks
    equal = (layout.chunks == 1) | (setting.model.layers % runs == 0)
    return whole & equal & even(setting, layout)


def _torch_line(setting: Setting, layout: Layout) -> str:
    said = []
    if layout.stages > 1:
        schedule = f"Schedule1F1B(stage, {layout.micro_batches})"
        runs = f"{layout.stages} stages"
        if layout.chunks > 1:
            schedule = f"ScheduleInterleaved1F1B(chunks, {layout.micro_batches})"
            runs += f" of {layout.chunks} chunks"
        said.append(f"pipelining.{schedule} on {runs}")
    if layout.data > 1:
        said.append("DistributedDataParallel over " + str(layout.data))
    if setting.model.half:
        said.append(f"torch.autocast in {setting.machine.sixteen}{_scaler(setting)}")
    again = _again(layout, "checkpoint in each block", f"checkpoint, {KEEPS}")
    said += [again] * bool(again)
    line = f"{_launched(setting, layout)}: " + ", ".join(said or ["one process"])
    return line if layout.stages > 1 else line + _pieces(layout)


def _megatron(setting: Setting, layout: Layout) -> Mask:
    shape = setting.model.shape
    if shape is None:  # it has transformers only
        return np.zeros(np.shape(layout.devices), dtype=bool)
    known = (layout.zero <= 1) & (layout.copies == 1) & (layout.recompute != SELECTIVE)
    runs = layout.stages * layout.chunks
    equal = (shape.layers % runs == 0) | _ends_counted(shape.layers, layout)
    tokens = shape.sequence % layout.layerwise == 0  # it cuts them between products
    return known & equal & tokens & even(setting, layout)


def _ends_counted(layers: int, layout: Layout) -> Mask:
    """Whether stages are equal only if embedding and loss count as a layer each."""
    runs, uneven = layout.stages * layout.chunks, layers % layout.stages != 0
    return (layout.stages > 1) & uneven & ((layers + 2) % runs == 0)


def _megatron_line(setting: Setting, layout: Layout) -> str:
    each = setting.batch // (layout.data * layout.micro_batches)
    sizes = {"tensor-model-parallel-size": layout.layerwise}
    sizes |= {"pipeline-model-parallel-size": layout.stages}
    sizes["num-virtual-stages-per-pipeline-rank"] = layout.chunks
    said = "".join(f"--{name} {n} " for name, n in sizes.items() if n > 1)
    if _ends_counted(setting.model.layers, layout):
        said += "--account-for-embedding-in-pipeline-split "
        said += "--account-for-loss-in-pipeline-split "
    said += f"--micro-batch-size {each} --global-batch-size {setting.batch}"
    if setting.model.half:
        said += " --bf16" if setting.machine.sixteen == "bfloat16" else " --fp16"
        said += " --accumulate-allreduce-grads-in-fp32"
    said += " --sequence-parallel" * (layout.layerwise > 1)
    said += " --use-distributed-optimizer" * layout.zero
    if layout.recompute != NOTHING:
        kind = "full --recompute-method uniform --recompute-num-layers 1"
        said += " --recompute-granularity "
        said += kind if layout.recompute == ALL else "selective"
    return f"{_launched(setting, layout, 'pretrain_gpt.py')} {said}"


def _jax(setting: Setting, layout: Layout) -> Mask:
    wanted = (layout.stages == 1) & (layout.zero != 2) & (layout.copies == 1)
    wanted = wanted & (layout.recompute != ATTENTION)
    return wanted & even(setting, layout)


def _jax_line(_: Setting, layout: Layout) -> str:
    said = f'mesh = jax.make_mesh(({layout.data}, {layout.layerwise}), ("data", '
    said += '"model")); jit with a NamedSharding of the batch'
    what = ("parameters", "the optimizer's state", "", "parameters and state")
    if layout.layerwise > 1 or layout.zero:
        said += f" and of {what[layout.zero]}"
    policy = "policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable"
    again = "; jax.checkpoint(block)", f"; jax.checkpoint(block, {policy})"
    return said + _pieces(layout) + _again(layout, *again)


# Of two that have a layout, the one that comes first is named.
ENGINES = (
    Engine("Keras", _fit, _fit_line),
    Engine("TensorFlow", _loop, _loop_line),
    Engine("PyTorch FSDP2", _fsdp, _fsdp_line),
    Engine("DeepSpeed", _deepspeed, _deepspeed_line),
    Engine("Megatron-LM", _megatron, _megatron_line),
    Engine("PyTorch", _torch, _torch_line),
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
