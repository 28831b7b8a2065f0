"""The cases of JAX; their steps are in a file that needs no TensorFlow."""

from __future__ import annotations

import jax_steps as s
from cases import case

from manygpu.prove.with_jax import of_shard_map


def of(step, loss=s.loss):
    return of_shard_map(step, s.init, loss, s.draw, s.LR, most_devices=4)


@case("right", needs="jax")
def jax_shard_map():
    """shard_map with a psum; the batch is filled up by samples that count 0."""
    return of(s.right)


@case("odd", needs="jax")
def jax_bfloat16():
    """shard_map that computes in bfloat16."""
    return of(s.bfloat16, s.loss16)


@case("odd", needs="jax")
def jax_bfloat16_plain_reference():
    """The same, with a reference in float32."""
    return of(s.bfloat16)


@case("wrong", "shares", needs="jax")
def jax_mean_of_means():
    """pmean of the shares' means, which are uneven."""
    return of(s.mean_of_means)


@case("wrong", "data", needs="jax")
def jax_filling_counts():
    """The batch is filled up by its own first samples, which count twice."""
    return of(s.filling_counts)
