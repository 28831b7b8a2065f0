"""What a plan takes, in closed form: the seconds of its step, and a device's memory.

Both ask the one home of such formulas (`manygpu.costs`); this says what a step of a
setting is made of. `agenda` builds works from the same pieces, for a loop that plays
them event by event; tests play many plans and find the same, but for three kinds. With
ZeRO 3 a few percent may be missing. Where stages have unequal numbers of layers, it is
exact as long as messages are shorter than turns, else off by up to a tenth. Interleaved
stages sum gradients earlier than the formula says. A formula answers for an array of
plans at once: that makes a search over all of them quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from manygpu.choosing.question import Setting
from manygpu.costs import seconds as costs
from manygpu.costs.layout import ALL, ATTENTION, SELECTIVE, Layout, Number
from manygpu.costs.memory import held
from manygpu.costs.seconds import Parts, Pieces
from manygpu.simulate import steps
from manygpu.simulate.works import Agenda

UPDATE = 30.0  # bytes that Adam's update reads and writes, a parameter


def micro_batch(setting: Setting, plan: Layout) -> Number:
    """Samples that a replica works on at once."""
    return np.ceil(np.ceil(setting.batch / plan.data) / plan.micro_batches)


def passes(setting: Setting, plan: Layout) -> tuple[Number, Number]:
    """Seconds of one layer's forward and backward pass, shared out layerwise.

    Layerwise devices share the products, but each launches its own kernels; with ZeRO 3
    gathers and scatters are launched as well. What is computed again between products
    takes as long as its bytes take to be read and written.
    """
    model, machine = setting.model, setting.machine
    work = micro_batch(setting, plan) * model.flops / model.layers / machine.rate
    sharded = np.where(plan.zero == 3, machine.launch, 0.0)
    forward = machine.launch + work / plan.layerwise
    again = np.where(plan.recompute == ALL, 1.0, 0.0)
    if model.shape is not None:
        again = np.where(plan.recompute == ATTENTION, model.shape.attention, again)
    backward = forward * (2 + again)
    stored = model.stored
    if stored.products is not None:
        made = stored.whole + stored.shared - sum(stored.products)
        moved = 2 * micro_batch(setting, plan) * made / plan.layerwise
        part = plan.recompute == SELECTIVE
        backward = backward + np.where(part, moved / machine.bandwidth, 0.0)
    return forward + sharded, backward + 2 * sharded


def update_seconds(setting: Setting) -> float:
    """Seconds of the optimizer for one layer, held whole."""
    each = setting.model.parameters / setting.model.layers
    return UPDATE * each / setting.machine.bandwidth


def allreduce_seconds(setting: Setting, devices: Number) -> Number:
    """An all-reduce of one layer's gradients among the first so many devices."""
    machine, model = setting.machine, setting.model
    size = model.gradient * model.parameters / model.layers
    counts = np.unique(devices)  # in order
    taken = [steps.allreduce_seconds(machine.part(n), size) for n in counts.tolist()]
    return np.array(taken)[np.searchsorted(counts, devices)]


def pieces(setting: Setting, plan: Layout) -> Pieces:
    """What a step is made of, for `manygpu.costs.seconds` and for the loop."""
    plan.check(setting.machine.cluster.count)
    model, (forward, backward) = setting.model, passes(setting, plan)
    return steps.pieces(
        setting.machine.cluster,
        plan,
        model.layers,
        forward,
        backward,
        model.gradient * model.parameters / model.layers,
        micro_batch(setting, plan) * model.handed,
        update_seconds(setting),
        allreduce_seconds(setting, plan.devices),
        model.sent / model.gradient,
    )


def parts(setting: Setting, plan: Layout) -> Parts:
    """Seconds of a step, by what they are for."""
    return costs.parts(pieces(setting, plan), plan)


def seconds(setting: Setting, plan: Layout) -> Number:
    """Seconds of a step."""
    return parts(setting, plan).seconds


def memory(setting: Setting, plan: Layout) -> Number:
    """Bytes that the fullest device needs: state, and activations in flight."""
    plan.check(setting.machine.cluster.count)
    model, b, each = setting.model, micro_batch(setting, plan), setting.model.each
    if model.shape is not None:  # Megatron-LM adds gradients up in float32
        cut = (plan.layerwise > 1) | (plan.stages > 1)
        wide = np.where(cut & (plan.zero < 3), np.maximum(4.0, each.gradient), 0.0)
        each = each._replace(gradient=np.where(wide, wide, each.gradient))
    return held(model.stored, plan, b, each).total


def dollars(setting: Setting, devices: Number, seconds: Number) -> Number:
    """Dollars of a step; whole lots of devices are billed."""
    lots = np.ceil(devices / setting.machine.at_once)
    paid = lots * setting.machine.at_once * setting.machine.price
    return paid * seconds / 3600


def agenda(
    setting: Setting,
    plan: Layout,
    schedule: Callable[..., Iterable[Any]],
    needs: Callable[[Any, int], Any],
) -> Agenda:
    """The works of a step for the simulator's loop.

    Args:
        setting, plan: one plan, of numbers.
        schedule: (stages, micro-batches) -> slots, such as
            `one_forward_one_backward`; for several chunks a device (stages,
            micro-batches, devices) -> slots, such as `interleaved`.
        needs: which operations' results an operation uses.
    """
    made, count = pieces(setting, plan), setting.model.layers
    if plan.zero == 3:
        layers = steps.Layers(count, float(made.forward), float(made.backward), 0, 0)
        cluster = setting.machine.part(plan.devices)
        return steps.sharded(layers, cluster, made, plan.micro_batches)
    runs = plan.stages * plan.chunks
    devices = (plan.stages,) if plan.chunks > 1 else ()
    slots = schedule(runs, plan.micro_batches, *devices)
    each = [count * (i + 1) // runs - count * i // runs for i in range(runs)]
    if plan.chunks > 1:
        made = made._replace(layers=made.layers / plan.chunks)
    turns = [n * float(made.forward + made.backward) for n in each]
    return steps.played(made, plan, slots, needs, turns)
