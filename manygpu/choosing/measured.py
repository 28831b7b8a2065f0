"""What `manygpu choose` is asked after `manygpu bench`: measured model and machine.

Everything here is derived from a comparison's numbers; nothing is measured anew.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from manygpu.comparison import BASE, DATA, Comparison
from manygpu.simulate.cluster import LINKS

LINK = "PCIe 5"  # taken where no link can be seen; its latency is always taken


def question(comparison: Comparison) -> dict[str, Any]:
    """Return what `command.setting_of` reads, as far as the comparison tells it.

    Besides there are `how`, a sentence for each name that was measured or assumed, and
    `missing`, why a name is not there. `launch` is 0: the rate was measured over whole
    steps, with all launches in them.
    """
    asked, about = comparison.experiment, comparison.experiment["about"]
    found: dict[str, Any] = {"name": asked["model"], "gpus": asked["devices"]}
    found |= {"launch": 0.0, "how": {}, "missing": dict(about.get("unknown", {}))}
    if not about:
        return found
    found |= {"batch": about["samples"], "parameters": about["parameters"]}
    found |= about.get("asked", {})
    _add_memory(found, comparison)
    _add_rate(found, comparison.times)
    _add_link(found, comparison)
    return found


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
    """FLOPs of one device's step, forward and twice that backward, over its time."""
    if "flops" not in found:
        found["missing"]["rate"] = "the FLOPs of a step are not known"
    elif not times.get(BASE):
        found["missing"]["rate"] = "no round of one device was complete"
    else:
        step = statistics.median(times[BASE]) / 1e3
        found["rate"] = 3 * found["flops"] * found["batch"] / step
        said = f"the FLOPs of one device's step over its median time, {step:.3g} s"
        found["how"]["rate"] = said


def _add_link(found: dict[str, Any], comparison: Comparison) -> None:
    """The link with which data parallel steps take what they were measured to take."""
    k, times = found["gpus"], comparison.times
    cores, on_gpu = comparison.machine["cores"], comparison.experiment["about"]
    found["inside"] = LINK
    if k == 1:
        why = "one device sends nothing"
    elif not (times.get(BASE) and times.get(DATA)):
        why = "no round with and without data parallel was complete"
    elif k > cores and not on_gpu.get("gpu_bytes"):
        why = f"{k} devices share {cores} cores, so times say nothing of a link"
    else:
        pairs = zip(times[BASE], times[DATA], strict=True)
        extra = statistics.median(many - one / k for one, many in pairs) / 1e3
        share = statistics.median(times[BASE]) / 1e3 / k
        bandwidth = _bandwidth(found, extra, share)
        why = f"data parallel by hand took no more than 1/{k} of one device"
        if bandwidth:
            found["inside"] = [LINKS[LINK].latency, bandwidth]
            said = f"data parallel by hand took {extra:.3g} s more than 1/{k} of one"
            found["how"]["inside"] = f"{said} device; the latency is assumed"
            return
    found["how"]["inside"] = f"{LINK} is assumed: {why}"


def _bandwidth(found: Mapping[str, Any], extra: float, share: float) -> float | None:
    """Bytes a second of a ring that makes a step so much longer; None: no bound.

    `forecast.data_parallel_seconds`, solved for its all-reduce. Its last one can't hide
    behind a backward pass, nor what is longer than all of them but the first.

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
