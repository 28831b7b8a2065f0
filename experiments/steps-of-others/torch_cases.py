"""The cases of PyTorch; their steps are in a file that needs no TensorFlow."""

from __future__ import annotations

from dataclasses import replace

import torch_steps as s
from cases import case

from manygpu.prove.with_torch import of_ddp, of_fsdp2


def of(step, build=s.build, loss=s.loss, draw=s.draw, make=of_ddp, **about):
    lr = about.pop("lr", s.LR)
    return make(step, build, loss, draw, lr, most_devices=3, **about)


@case("right", needs="torch")
def ddp():
    """DDP; each process weighs its share."""
    return of(s.weighed)


@case("right", needs="torch")
def ddp_flag():
    """DDP with require_backward_grad_sync set before the last forward pass."""
    return of(s.flag_before_forward)


@case("right", needs="torch")
def ddp_momentum():
    """DDP with PyTorch's momentum."""
    return of(s.weighed, optimizer=s.momentum, rule="momentum")


@case("right", needs="torch", of_rule=True)
def ddp_adam():
    """DDP with PyTorch's Adam, in float64."""
    return of(s.weighed, lr=0.01, optimizer=s.adam, rule="adam")


@case("right", needs="torch", of_rule=True)
def ddp_adam_float32():
    """DDP with PyTorch's Adam, in float32."""
    own = {"lr": 0.01, "optimizer": s.adam, "rule": "adam"}
    return of(s.weighed, s.build32, draw=s.draw32, **own)


@case("right", needs="torch", of_rule=True)
def ddp_adamw():
    """DDP with PyTorch's AdamW; no rule is told, and no reference."""
    return replace(of(s.weighed, lr=0.01, optimizer=s.adamw), gradient=None)


@case("right", needs="torch")
def fsdp2():
    """FSDP2; each process weighs its share."""
    return of(s.weighed, make=of_fsdp2)


@case("right", needs="torch")
def ddp_clipped():
    """DDP, clipped after the reduction."""
    return of(s.global_norm_clipped, s.build_steep, rule="clipped")


@case("odd", needs="torch")
def ddp_autocast():
    """DDP with torch.autocast in bfloat16, float32 weights."""
    return of(s.autocast, s.build32, s.loss16, s.draw32)


@case("odd", needs="torch")
def ddp_autocast_plain_reference():
    """The same, with a reference in float32."""
    return of(s.autocast, s.build32, draw=s.draw32)


@case("odd", needs="torch")
def ddp_float16_hook():
    """DDP that sends gradients in float16 (fp16_compress_hook)."""
    return of(s.compressed, s.build32, draw=s.draw32)


@case("odd", needs="torch")
def fsdp2_reduced_in_bfloat16():
    """FSDP2 that sums gradients in bfloat16."""
    return of(s.weighed, s.build_reduced, draw=s.draw32, make=of_fsdp2)


@case("wrong", "shares", needs="torch")
def ddp_masked_mean():
    """Each rank divides by its own valid targets (pytorch #31579)."""
    return of(s.masked_mean, loss=s.masked_loss, draw=s.draw_masked)


@case("wrong", "copies", needs="torch")
def ddp_synced_at_the_first():
    """no_sync around all micro-batches but the first (speechbrain #2010)."""
    return of(s.synced_at_the_first)


@case("wrong", "copies", needs="torch")
def ddp_flag_after_forward():
    """require_backward_grad_sync is set after the forward pass (build-nanogpt #30)."""
    return of(s.flag_after_forward)


@case("wrong", "empty", needs="torch")
def ddp_skips_if_empty():
    """A rank without samples skips the step (Lightning #9851)."""
    return of(s.skips_if_empty)


@case("wrong", "shares", needs="torch")
def ddp_mean_of_means():
    """Each rank takes the mean of its own share."""
    return of(s.mean_of_means)


@case("wrong", "copies", needs="torch")
def ddp_outside_the_wrapper():
    """The model is called as model.module, so that nothing is reduced."""
    return of(s.outside_the_wrapper)


@case("wrong", "clipping", needs="torch")
def ddp_clipped_without_sync():
    """Each rank clips before the reduction."""
    return of(s.clipped_without_sync, s.build_steep, rule="clipped")


@case("wrong", "shares", needs="torch")
def fsdp2_mean_of_means():
    """FSDP2; each rank takes the mean of its own share."""
    return of(s.mean_of_means, make=of_fsdp2)
