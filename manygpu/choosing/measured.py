"""What `manygpu choose` is asked after `manygpu bench`: measured model and machine.

Everything here is derived from a comparison's numbers; nothing is measured anew.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from manygpu.records.comparison import BASE, DATA
from manygpu.simulate.cluster import LINKS

LINK = "PCIe 5"  # taken where no link can be seen; its latency is always taken
# The rows that share a batch out, each what it is called here; the first one counts.
SHARED = {DATA: "data parallel by hand", "engine": "MirroredStrategy", "fit": "fit"}


class Comparison(Protocol):
    """What is asked of a comparison, see `manygpu.bench.result`."""

    experiment: Mapping[str, Any]
    rows: Mapping[str, Any]
    machine: Mapping[str, Any]
    times: Mapping[str, Sequence[float]]


def question(comparison: Comparison) -> dict[str, Any]:
    """Return what `asking.setting_of` reads, as far as the comparison tells it.

    Besides there are `how`, a sentence for each name that was measured or assumed, and
    `missing`, why a name is not there. `launch` is 0: the rate was measured over whole
    steps, with all launches in them. `cut` says whether the layers are a chain that can
    be cut; if not, `how` says why, and there is no `handed`.
    """
    asked, about = comparison.experiment, comparison.experiment["about"]
    found: dict[str, Any] = {"name": asked["model"], "gpus": asked["devices"]}
    found |= {"launch": 0.0, "how": {}, "missing": dict(about.get("unknown", {}))}
    if not about:
        return found
    found |= {"batch": about["samples"], "parameters": about["parameters"]}
    found |= about.get("asked", {})
    _add_cut(found, about)
    _add_memory(found, comparison)
    _add_rate(found, comparison.times)
    _add_kept(found, comparison)
    _add_link(found, comparison)
    return found


def _add_cut(found: dict[str, Any], about: Mapping[str, Any]) -> None:
    """Whether a model can be cut between its layers."""
    why = about.get("uncut", "")
    if about.get("assigns"):
        why = about["assigns"]
    elif about.get("own_step"):
        why = "its train_step is its own, so no stage could take a part of it"
    elif found.get("layers") == 1:
        why = "it has one layer"
    found["cut"] = not why
    if why:
        found["how"]["cut"] = f"none: {why}"
        found.setdefault("layers", 1)
        found.pop("handed", None)


def _add_memory(found: dict[str, Any], comparison: Comparison) -> None:
    """A GPU's memory, else the machine's, shared out."""
    on_gpu, here = comparison.experiment["about"].get("gpu_bytes", 0), "memory"
    if here in found["missing"]:
        return
    whole = comparison.machine["memory_gib"] * 2**30
    if on_gpu:
        found[here], said = on_gpu, "what nvidia-smi says is free on a GPU"
    elif whole:
        found[here] = whole / found["gpus"]
        said = f"the machine's {whole / 1e9:.3g} GB, shared by {found['gpus']}"
    else:
        found["missing"][here] = "the system doesn't tell"
        return
    found["how"][here] = said


def _add_rate(found: dict[str, Any], times: Mapping[str, Sequence[float]]) -> None:
    """FLOPs of one device's step, forward and twice that backward, over its time.

    Only their quotient matters, the time. So where nobody counts FLOPs, any do.
    """
    if not times.get(BASE):
        found["missing"]["rate"] = "no round of one device was complete"
        return
    step, how = statistics.median(times[BASE]) / 1e3, found["how"]
    how["rate"] = f"the FLOPs of one device's step over its median time, {step:.3g} s"
    if not found.get("flops"):
        found["flops"] = 2.0 * found["parameters"]
        why = found["missing"].pop("flops", "it has no products")
        how["flops"] = (
            f"not counted ({why}), but two a parameter: with the rate they give the "
            f"measured time"
        )
    found["rate"] = 3 * found["flops"] * found["batch"] / step


def _add_kept(found: dict[str, Any], comparison: Comparison) -> None:
    """If shapes don't tell: what one device's step held beside what grows with none."""
    memory = comparison.rows[BASE].facts.get("memory") if BASE in comparison.rows else 0
    if found.get("kept") or not memory:
        return
    state = 2 * comparison.experiment["about"]["bytes"]  # parameters, gradients
    found["kept"] = max(memory - state, found["batch"]) / found["batch"]
    why = found["missing"].pop("kept", "it has no activations")
    found["how"]["kept"] = (
        f"not by shapes ({why}), but measured: what one device's step held beside "
        f"parameters and gradients"
    )


def _add_link(found: dict[str, Any], comparison: Comparison) -> None:
    """The link with which data parallel steps take what they were measured to take."""
    k, times = found["gpus"], comparison.times
    row = next((name for name in SHARED if times.get(name)), None)
    cores, on_gpu = comparison.machine["cores"], comparison.experiment["about"]
    found["inside"] = LINK
    if k == 1:
        why = "one device sends nothing"
    elif not (times.get(BASE) and row):
        why = "no round with and without data parallel was complete"
    elif k > cores and not on_gpu.get("gpu_bytes"):
        why = f"{k} devices share {cores} cores, so times say nothing of a link"
    else:
        pairs = zip(times[BASE], times[row], strict=True)
        extra = statistics.median(many - one / k for one, many in pairs) / 1e3
        share = statistics.median(times[BASE]) / 1e3 / k
        bandwidth = _bandwidth(found, extra, share)
        why = f"{SHARED[row]} took no more than 1/{k} of one device"
        if bandwidth:
            found["inside"] = [LINKS[LINK].latency, bandwidth]
            said = f"{SHARED[row]} took {extra:.3g} s more than 1/{k} of one"
            found["how"]["inside"] = f"{said} device; the latency is assumed"
            return
    found["how"]["inside"] = f"{LINK} is assumed: {why}"


def _bandwidth(found: Mapping[str, Any], extra: float, share: float) -> float | None:
    """Bytes a second of a ring that makes a step so much longer; None: no bound.

    `manygpu.costs.seconds`, solved for an all-reduce. The last one can't hide behind a
    backward pass, nor what is longer than all of them but the first.

    Args:
        found: says devices, layers, parameters.
        extra: seconds that a step takes beyond computing.
        share: seconds of computing.
    """
    k, layers = found["gpus"], found.get("layers", 1)
    backward = 2 / 3 * share / layers
    sums = extra if extra <= backward else (extra + (layers - 1) * backward) / layers
    sent = 4 * found["parameters"] / layers / k  # a ring's messages, float32
    taken = sums / (2 * (k - 1)) - LINKS[LINK].latency
    return sent / taken if taken > 0 else None
