"""Uneven shares that are weighted wrongly are called so, whatever the optimizer is."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tensorflow as tf

import manygpu
from manygpu.measure import shares
from manygpu.prove import Training, judge
from manygpu.prove.adapters import of_variables
from manygpu.prove.small import draw, drawn_weights, reference
from manygpu.prove.subject import Case

manygpu.devices(8, quiet=True)
RATE, DECAY, BETAS, EPSILON = 0.01, 0.01, (0.9, 0.999), 1e-8


class AdamW:
    """AdamW as PyTorch has it, behind clipping by the global norm, with a warm-up.

    Args:
        clip: the largest norm.
        rises: the number of steps in which the rate rises.
        begins: the number of the first step; of 0, the rate is 0.
    """

    def __init__(self, params, clip, rises=5, begins=1):
        self.clip, self.rises, self.begins, self.t = clip, rises, begins, 0
        self.m = [tf.zeros_like(p) for p in params]
        self.v = [tf.zeros_like(p) for p in params]

    def update(self, own, grads):
        grads, _ = tf.clip_by_global_norm(grads, self.clip)
        rate = RATE * min(1, (self.t + self.begins) / self.rises)
        self.t += 1
        (a, b), t = BETAS, self.t
        for i, (w, g) in enumerate(zip(own, grads, strict=True)):
            self.m[i] = a * self.m[i] + (1 - a) * g
            self.v[i] = b * self.v[i] + (1 - b) * g * g
            root = tf.sqrt(self.v[i] / (1 - b**t)) + EPSILON
            w.assign_sub(rate * (self.m[i] / (1 - a**t) / root + DECAY * w))


# What a share of so many samples counts, of so many on k devices.
def as_samples(size, samples, k):
    return size / samples


def as_means(size, samples, k):
    return 1 / k


def as_roots(size, samples, k):
    """Right if shares are even, and no mean of means if they aren't."""
    return size / samples * np.sqrt(samples / k / size)


def replicas(params, devices, weigh, **of_rule):
    """Start a data-parallel training of the small dense model."""
    copies, rules = [], []
    for device in devices:
        with tf.device(device):
            copies.append([tf.Variable(p) for p in params])
            rules.append(AdamW(params, **of_rule))

    def take(X, y):
        if len(X) < len(devices):
            raise ValueError(f"each device needs a sample, got {len(X)}")
        sizes, found = shares(len(X), len(devices)), []
        parts = zip(tf.split(X, sizes), tf.split(y, sizes), strict=True)
        for device, own, (x, t) in zip(devices, copies, parts, strict=True):
            with tf.device(device):
                _, grads = reference(x, t, own)
                times = weigh(len(x), len(X), len(devices)) / len(x)
                found.append([times * g for g in grads])
        for device, own, rule in zip(devices, copies, rules, strict=True):
            with tf.device(device):
                rule.update(own, [tf.add_n(list(g)) for g in zip(*found, strict=True)])

    return Training(take, lambda: copies)


def subject(weigh, dtype, clip, known=True, **of_rule):
    def drawn(samples, seed):
        X, y = draw(samples, seed)
        return X.astype(dtype), y

    start = partial(replicas, weigh=weigh, clip=clip, **of_rule)
    weights = [w.astype(dtype) for w in drawn_weights()]
    return of_variables(start, reference if known else None, weights, drawn, RATE)


KINDS = [
    (np.float32, 0.1, 1, True),
    (np.float32, 1.0, 0, True),
    (np.float32, 1.0, 1, False),
    (np.float64, 1.0, 1, True),
]


@pytest.mark.parametrize("dtype, clip, begins, known", KINDS)
def test_a_mean_of_means_is_named_though_no_count_can_be_read(
    dtype, clip, begins, known
):
    verdict = judge(subject(as_means, dtype, clip, known, begins=begins))
    assert not verdict.unsure and not verdict.right, str(verdict)
    found = verdict.findings[0]
    assert found.broken == "shares", str(verdict)
    assert "if each device's mean counts alike" in found.sentence
    assert found.smallest[:2] == Case(2, 3)[:2], str(verdict)


@pytest.mark.parametrize("dtype, clip, begins, known", KINDS)
def test_shares_that_count_as_their_samples_are_right(dtype, clip, begins, known):
    verdict = judge(subject(as_samples, dtype, clip, known, begins=begins))
    assert verdict.right, str(verdict)


@pytest.mark.parametrize("dtype, clip", [(np.float32, 0.1), (np.float64, 1.0)])
def test_what_only_uneven_shares_show_is_of_their_weights(dtype, clip):
    verdict = judge(subject(as_roots, dtype, clip))
    assert not verdict.unsure and not verdict.right, str(verdict)
    assert verdict.findings[0].broken == "shares", str(verdict)
