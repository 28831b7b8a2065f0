"""`manygpu choose`: the rule's question, read from options and a file, and its answer.

The command itself is in `manygpu.__main__`, as all are.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from manygpu.choosing.question import GOALS, Machine, Model, Setting
from manygpu.choosing.search import Choice
from manygpu.simulate.cluster import LINKS, Cluster, Link


class Option(NamedTuple):
    """What of a setting can be said: what it is, its unit, and its default.

    Without a default it must be given, as an option or in the file.
    """

    about: str
    default: float | None = None
    whole: bool = False


MODEL = {
    "layers": Option("equal layers that it has", whole=True),
    "parameters": Option("of all layers"),
    "flops": Option("FLOPs of the forward pass of one sample"),
    "handed": Option("bytes a sample that a layer hands to the next one"),
    "kept": Option("bytes a sample that all layers keep for the backward pass"),
    "state": Option(
        "bytes a parameter in memory, with its gradient and the optimizer's: plain "
        "SGD 8, Adam 16",
        16.0,
    ),
    "sent": Option("bytes a parameter, and its gradient, when it is sent", 4.0),
}
MACHINE = {
    "memory": Option("bytes of a device's memory"),
    "rate": Option("FLOP/s that a device reaches in training; no data sheet has it"),
    "bandwidth": Option("bytes a second of a device's memory", 1e12),
    "launch": Option("seconds that a layer's pass takes at least", 50e-6),
    "price": Option("dollars an hour for a device", 1.0),
}
CLUSTER = {
    "nodes": Option("machines", 1, whole=True),
    "gpus": Option("devices in each machine", whole=True),
    "cards": Option("network cards in each machine", 1, whole=True),
}
BATCH = {"batch": Option("samples of a step, over all devices", whole=True)}
NUMBERS = {**MODEL, **BATCH, **MACHINE, **CLUSTER}
TEXTS = ("name", "goal", "inside", "across")
NOTES = ("how", "missing")  # what bench says of its numbers


def add_options(made: argparse.ArgumentParser) -> None:
    """Add what can be said of a setting; a file may say it as well."""
    made.add_argument(
        "--file",
        type=Path,
        metavar="FILE.json",
        help="take what isn't given here from this file: what manygpu bench --json "
        "wrote, or an object of the options' names",
    )
    made.add_argument("--goal", choices=GOALS, help="the shortest step, the cheapest "
        "one, or the fewest devices on which it fits; default: time")  # fmt: skip
    made.add_argument("--json", action="store_true", help="print the plan as JSON")
    model = made.add_argument_group("the model")
    machine = made.add_argument_group("the machine")
    for name, (about, default, whole) in NUMBERS.items():
        group = model if name in MODEL | BATCH else machine
        end = "; needed" if default is None else f"; default: {default:g}"
        kind = int if whole else float
        group.add_argument(f"--{name}", type=kind, metavar="N", help=about + end)
    links = f"{', '.join(LINKS)}; or SECONDS,BYTES_A_SECOND"
    machine.add_argument("--inside", metavar="LINK", help="the link between devices "
        f"of a machine: {links}; needed")  # fmt: skip
    machine.add_argument("--across", metavar="LINK", help="the same between machines; "
        "default: as inside")  # fmt: skip


def asked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return names and values of a setting: the file's, and over them the options'.

    Raises:
        ValueError: the file is none, or has names that are not known here.
    """
    given = read(options["file"]) if options.get("file") else {}
    known = (*NUMBERS, *TEXTS)
    said = {name: options[name] for name in known if options.get(name) is not None}
    notes = given.get("how", {}).items()
    given["how"] = {name: note for name, note in notes if name not in said}
    return given | said


def read(path: Path) -> dict[str, Any]:
    """What a file says of a setting; errors: see `asked`."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as wrong:
        raise ValueError(f"file {path} can't be read: {wrong}") from wrong
    except RecursionError as wrong:
        raise ValueError(f"file {path} can't be read: nested too deep") from wrong
    given = given.get("choose", given) if isinstance(given, dict) else given
    if not isinstance(given, dict):
        raise ValueError(f"file {path} must hold an object, got {given!r:.80}")
    strange = sorted(set(given) - {*NUMBERS, *TEXTS, *NOTES, "cut"})
    if strange:
        raise ValueError(f"file {path} has names that mean nothing here: {strange}")
    for note in NOTES:
        said = given.get(note, {})
        texts = said.values() if isinstance(said, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"file {path}: {note} must be an object of texts")
    return given


def link_of(name: str, said: str | Sequence[float]) -> Link:
    """A link by its name, or from its latency and bandwidth.

    Raises:
        ValueError: no link of this name, and not two numbers that can be.
    """
    if isinstance(said, str) and said in LINKS:
        return LINKS[said]
    try:
        if isinstance(said, Mapping):
            raise TypeError("an object has no order")
        return Link(*map(float, said.split(",") if isinstance(said, str) else said))
    except (TypeError, ValueError, OverflowError) as wrong:
        raise ValueError(
            f"{name} must be one of {', '.join(LINKS)}, or seconds above or at 0 and "
            f"bytes a second above 0, got {str(said):.80}"
        ) from wrong


def setting_of(given: Mapping[str, Any]) -> Setting:
    """A setting from names and values, as a file or the options have them.

    Raises:
        TypeError, ValueError: names that miss, and what `Setting` and its parts
            refuse; the message names the option.
    """
    filled = {name: option.default for name, option in NUMBERS.items()}
    filled |= {"inside": None, "goal": GOALS[0], "name": "your model"}
    filled |= {name: value for name, value in given.items() if value is not None}
    _check_missing(filled)
    for name, option in NUMBERS.items():
        value = filled[name]
        if option.whole and isinstance(value, float) and value.is_integer():
            filled[name] = int(value)  # a file may say 1e3
    inside = link_of("inside", filled["inside"])
    across = link_of("across", filled.get("across", filled["inside"]))
    cluster = Cluster(inside=inside, across=across, **_part(filled, CLUSTER))
    model = Model(str(filled["name"]), **_part(filled, MODEL))
    machine = Machine(cluster, **_part(filled, MACHINE))
    return Setting(model, machine, filled["batch"], filled["goal"])


def _part(filled: Mapping[str, Any], options: Mapping[str, Option]) -> dict[str, Any]:
    return {name: filled[name] for name in options}


def _check_missing(filled: Mapping[str, Any]) -> None:
    """Refuse a setting in which something is not said; bench may have said why."""
    names = sorted(name for name, value in filled.items() if value is None)
    if names:
        why = filled.get("missing", {})
        said = [f"{name} ({why[name]})" if name in why else name for name in names]
        options = ", ".join(f"--{name}" for name in names)
        raise ValueError(f"missing: {', '.join(said)}; give {options}")


def told(choice: Choice, how: Mapping[str, str] | None = None) -> str:
    """A choice in lines for a terminal, and where its numbers are from."""
    lines = [f"{r.question} {r.answer}" for r in choice.reasons]
    if choice.plan is None:
        lines.append("Nothing fits: more devices, more memory, or a smaller model.")
    else:
        lines.append(f"-> {choice.plan.words}")
        lines.append(
            f"   {choice.seconds:.3g} s a step, {choice.memory / 1e9:.3g} GB a device, "
            f"{100 * choice.cost:.3g} cents a step"
        )
    lines.append(f"   see {', '.join(choice.chapters)}")
    return "\n".join(
        lines + [f"   {name}: {said}" for name, said in (how or {}).items()]
    )


def as_json(choice: Choice) -> dict[str, Any]:
    """A choice as JSON can hold it."""
    plan = choice.plan and choice.plan._asdict() | {"words": choice.plan.words}
    reasons = [reason._asdict() for reason in choice.reasons]
    return choice._asdict() | {"plan": plan, "reasons": reasons}
