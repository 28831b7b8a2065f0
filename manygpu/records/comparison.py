"""Records of `manygpu bench`: a model, what was asked, and a row for each strategy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manygpu.records.fields import check_fields, check_range

# The strategies whose times tell of a machine: one device, and the batch shared out.
BASE, DATA = "one", "data"
# `source`: a digest of the file with the reader's own model; `batch` 0: the model's
# own; `about`: what was found out about the model, empty until it is.
EXPERIMENT = {"model": str, "source": str, "devices": int, "batch": int}
EXPERIMENT |= {"steps": int, "kernels": str, "strategies": list, "about": dict}
# What `about` may hold. `asked`, `unknown`: numbers, and why some are not there;
# `layers`: each one's name and seconds.
ABOUT = dict.fromkeys(("parameters", "samples", "bytes", "gpu_bytes"), int)
ABOUT |= dict.fromkeys(("own_step", "own_loss", "fixed"), bool) | {
    "uncut": str,
    "gpu": str,
}
ABOUT |= {"assigns": str}
ABOUT |= {"said": list, "layers": list, "asked": dict, "unknown": dict}
# `times`: median milliseconds a step, one a round; `facts`: what was found out before
# any timing; `cannot`: why it doesn't run here, empty if it does.
RUN = {"strategy": str, "devices": int, "times": list, "facts": dict, "cannot": str}
# What facts may hold, the least and the most of each.
FACTS = dict.fromkeys(("distance", "trained", "tolerance"), (0, 1e30))
FACTS |= {"held": (0, 2**60), "own": (0, 1e9), "times": (0, 1e9)}
FACTS |= {"memory": (0, 2**60), "shared": (False, True), "sent": (0, 2**60)}
WORDS = ("remark", "why", "hardware")  # and these are texts
# A comparison has this besides: what `manygpu choose` is asked after it.
MORE = {"choose": dict}


def check(record: dict[str, Any]) -> None:
    """Refuse a comparison with rows that nobody could have measured.

    Raises:
        ValueError: the message names the place and what is wrong there.
    """
    experiment, runs = record["experiment"], record["runs"]
    check_fields("record.experiment", experiment, EXPERIMENT)
    _check_about("record.experiment.about", experiment["about"])
    _check_numbers("record.choose", record["choose"])
    for name in ("devices", "steps"):
        check_range(f"record.experiment.{name}", experiment[name], 1, 2**20)
    for i, run in enumerate(runs):
        place = f"record.runs[{i}]"
        check_fields(place, run, RUN)
        check_range(f"{place}.devices", run["devices"], 1, 2**20)
        _check_times(place, run["times"])
        _check_facts(place, run["facts"])
    found = [run["strategy"] for run in runs]
    if found != experiment["strategies"]:
        raise ValueError(
            f"record.runs must be of {experiment['strategies']}, got {found}"
        )


def _check_about(place: str, about: dict[str, Any]) -> None:
    """Refuse what nobody could have found out about a model."""
    check_fields(place, about, {name: ABOUT.get(name, type(None)) for name in about})
    _check_numbers(f"{place}.asked", about.get("asked", {}))
    texts = [*about.get("said", []), *about.get("unknown", {}).values()]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{place}: said and unknown must hold texts, got {texts}")
    for i, layer in enumerate(about.get("layers", [])):
        match layer:
            case [str(), float() as seconds]:
                check_range(f"{place}.layers[{i}]", seconds, 0, 1e6)
            case _:
                raise ValueError(f"{place}.layers[{i}] must be a name and seconds")


def _check_numbers(place: str, values: Mapping[str, Any]) -> None:
    """Refuse numbers that can't be; what else is there is for whoever reads it."""
    for name, value in values.items():
        if isinstance(value, int | float):
            check_range(f"{place}.{name}", value, 0, 1e30)


def _check_times(place: str, times: list) -> None:
    """Refuse milliseconds that no step takes."""
    for i, time in enumerate(times):
        if type(time) is not float:
            raise ValueError(f"{place}.times[{i}] must be float, got {time!r}")
        check_range(f"{place}.times[{i}]", time, 1e-6, 1e9)


def _check_facts(place: str, facts: Mapping[str, Any]) -> None:
    """Refuse facts of no known name, or out of their range."""
    for name, value in facts.items():
        if name in WORDS:
            if not isinstance(value, str):
                raise ValueError(f"{place}.facts.{name} must be str, got {value!r}")
        elif name not in FACTS:
            raise ValueError(f"{place}.facts must be of {[*FACTS, *WORDS]}: {name!r}")
        elif not isinstance(value, int | float):
            raise ValueError(f"{place}.facts.{name} must be a number, got {value!r}")
        else:
            check_range(f"{place}.facts.{name}", value, *FACTS[name])
