"""What a plan takes, in closed form: the seconds of its step, and a device's memory.

The seconds are those of the simulator's steps (`manygpu.simulate.steps`), which a loop
plays event by event; `agenda` builds the works for it. Tests play thousands of plans
and find the same. A formula answers for an array of plans at once: that makes a search
over all of them quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from manygpu.choosing.question import Setting
from manygpu.costs.layout import ALL, Layout
from manygpu.costs.memory import held
from manygpu.simulate import steps
from manygpu.simulate.collectives import ring_seconds
from manygpu.simulate.works import Agenda

UPDATE = 30.0  # bytes that Adam's update reads and writes, a parameter

Number = float | np.ndarray


def micro_batch(setting: Setting, plan: Layout) -> Number:
    """Samples that a replica works on at once."""
    return np.ceil(np.ceil(setting.batch / plan.data) / plan.micro_batches)


def passes(setting: Setting, plan: Layout) -> tuple[Number, Number]:
    """Seconds of one layer's forward and backward pass, shared out layerwise.

    Layerwise devices share the products, but each launches its own kernels.
    """
    model, machine = setting.model, setting.machine
    work = micro_batch(setting, plan) * model.flops / model.layers / machine.rate
    forward = machine.launch + work / plan.layerwise
    return forward, forward * np.where(plan.recompute == ALL, 3, 2)


def update_seconds(setting: Setting) -> float:
    """Seconds of the optimizer for one layer, held whole."""
    each = setting.model.parameters / setting.model.layers
    return UPDATE * each / setting.machine.bandwidth


def allreduce_seconds(setting: Setting, devices: Number) -> Number:
    """An all-reduce of one layer's gradients among the first so many devices."""
    machine, model = setting.machine, setting.model
    size = model.sent * model.parameters / model.layers
    counts = np.unique(devices)  # in order
    taken = [steps.allreduce_seconds(machine.part(n), size) for n in counts.tolist()]
    return np.array(taken)[np.searchsorted(counts, devices)]


def replicas_seconds(setting: Setting, plan: Layout) -> Number:
    """The all-reduce at a step's end where replicas are cut layerwise or in stages.

    It hides behind nothing.
    """
    cluster, model = setting.machine.cluster, setting.model
    own = model.sent * model.parameters / (plan.layerwise * plan.stages)
    return steps.across_seconds(cluster, plan.layerwise, plan.data, own)


def data_parallel_seconds(setting: Setting, plan: Layout) -> Number:
    """All micro-batches, the last one with all-reduces beside its backward passes.

    Three chains may be the longest. All computing, then all updates. The first sum,
    then all updates. Or the last sum, then its own update: sums follow each other, or
    wait for the passes that make them.
    """
    layers, u = setting.model.layers, update_seconds(setting)
    forward, backward = passes(setting, plan)
    a = np.where(plan.devices > 1, allreduce_seconds(setting, plan.devices), 0.0)
    before = (plan.micro_batches - 1) * layers * (forward + backward)
    before = before + layers * forward
    last = np.maximum(layers * backward + a, backward + layers * a)
    ends = [layers * (backward + u), backward + a + layers * u, last + u]
    return before + np.maximum.reduce([end + np.zeros_like(before) for end in ends])


def sharded_seconds(setting: Setting, plan: Layout) -> Number:
    """Gathers one layer ahead, twice, and scatters; all share the network.

    Four chains may be the longest: the network's three transfers a layer; the same,
    but for the ends of the backward pass; gathers while the forward pass waits for
    them, then the backward passes; or all computing, between one gather and one
    scatter. A micro-batch begins when the one before has been scattered.
    """
    n, u = setting.model.layers, update_seconds(setting) / plan.devices
    forward, backward = passes(setting, plan)
    half = np.where(plan.devices > 1, allreduce_seconds(setting, plan.devices) / 2, 0.0)
    chains = [
        3 * n * half,
        (3 * n - 2) * half + min(n, 2) * backward,
        (n + 2) * half + n * backward,
        2 * half + n * (forward + backward),
    ]
    updates = np.maximum(u, n * u - half)
    return plan.micro_batches * np.maximum.reduce(chains) + updates


def cut_seconds(setting: Setting, plan: Layout) -> Number:
    """Layerwise, pipelined with 1F1B, or both; replicas are summed at the end.

    The longest chain of 1F1B zigzags between the stages: each way down and up again
    takes `stages` micro-batches' turns, and all hops between the stages twice. Where
    one turn is left over, a message that waits for the one before it may take longer.
    """
    model, machine = setting.model, setting.machine
    t, p, m = plan.layerwise, plan.stages, plan.micro_batches
    handed = micro_batch(setting, plan) * model.handed
    forward, backward = passes(setting, plan)
    sums = np.where(t > 1, 2 * ring_seconds(t, handed, machine.cluster.inside), 0.0)
    turn = model.layers / p * (forward + backward + 2 * sums)
    far = plan.devices > machine.cluster.gpus
    links = machine.cluster.inside, machine.cluster.across
    hops = [link.latency + handed / t / link.bandwidth for link in links]
    hop = np.where(p > 1, np.where(far, hops[1], hops[0]), 0.0)
    crossings = (p - 1) + (m - 1) - np.ceil((m - 1) / p)
    queued = np.where((m - 1) % p == 1, np.maximum(hop - turn, 0.0), 0.0)
    pipeline = (m + p - 1) * turn + 2 * hop * crossings + queued
    update = model.layers / (t * p) * update_seconds(setting)
    end = np.where(plan.data > 1, replicas_seconds(setting, plan), 0.0)
    return pipeline + end + update


def seconds(setting: Setting, plan: Layout) -> Number:
    """Seconds of a step."""
    cut = (plan.layerwise > 1) | (plan.stages > 1)
    data = data_parallel_seconds(setting, plan)
    whole = np.where(plan.zero == 3, sharded_seconds(setting, plan), data)
    return np.where(cut, cut_seconds(setting, plan), whole)[()]


def memory(setting: Setting, plan: Layout) -> Number:
    """Bytes that the fullest device needs: state, and activations in flight."""
    model, b = setting.model, micro_batch(setting, plan)
    return held(model.stored, plan, b, model.each).total


def dollars(setting: Setting, devices: Number, seconds: Number) -> Number:
    """Dollars of a step; whole lots of devices are billed."""
    lots = np.ceil(devices / setting.machine.at_once)
    paid = lots * setting.machine.at_once * setting.machine.price
    return paid * seconds / 3600


def agenda(
    setting: Setting,
    plan: Layout,
    schedule: Callable[[int, int], Iterable[Any]],
    needs: Callable[[Any, int], Any],
) -> Agenda:
    """The works of a step for the simulator's loop.

    Args:
        setting, plan: one plan, of numbers.
        schedule: (stages, micro-batches) -> slots, such as
            `one_forward_one_backward`.
        needs: which operations' results an operation uses.
    """
    model, u = setting.model, update_seconds(setting)
    forward, backward = (float(s) * plan.layerwise for s in passes(setting, plan))
    handed = micro_batch(setting, plan) * model.handed
    sent = model.sent * model.parameters / model.layers
    layers = steps.Layers(model.layers, forward, backward, sent, handed, u)
    cluster = setting.machine.part(plan.devices)
    if plan.layerwise > 1 or plan.stages > 1:
        slots = schedule(plan.stages, plan.micro_batches)
        return steps.pipelined(layers, cluster, slots, needs, plan.layerwise)
    made = steps.sharded if plan.zero == 3 else steps.data_parallel
    return _accumulated(made(layers, cluster), plan.micro_batches)


def _accumulated(step: Agenda, micro_batches: int) -> Agenda:
    """So many steps one behind the other, of which only the last one updates.

    Data parallel replicas keep their sums until the last; sharded ones scatter each.
    """
    sharded = any(work.name == "reduce-scatter" for work in step)
    left_out = {"update"} if sharded else {"update", "all-reduce"}
    out, before = Agenda(), ()
    for number in range(micro_batches):
        last, new = number == micro_batches - 1, {}
        for i, work in enumerate(step):
            if last or work.name not in left_out:
                after = [new[j] for j in work.after] or before
                new[i] = out.put(*work[:5], after, work.what)
        before = tuple(new.values())[-1:]
    return out
