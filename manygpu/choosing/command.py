"""`manygpu choose`: the question, read from names, options and a file; its answer.

The command itself is in `manygpu.__main__`, as all are.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from manygpu.choosing import tables
from manygpu.choosing.engines import ENGINES
from manygpu.choosing.presets import known_model
from manygpu.choosing.question import GOALS, OPTIMIZERS, Machine, Model, Setting
from manygpu.choosing.search import Choice, Option
from manygpu.simulate.cluster import LINKS, Cluster, Link


class Number(NamedTuple):
    """What of a setting can be said: what it is, its unit, and its default.

    Without a default it must be given: by a name, as an option or in the file.
    """

    about: str
    default: float | None = None
    whole: bool = False


MODEL = {
    "layers": Number("equal layers that it has", whole=True),
    "parameters": Number("of all layers"),
    "flops": Number("FLOPs of the forward pass of one sample"),
    "handed": Number("bytes a sample that a layer hands to the next one"),
    "kept": Number("bytes a sample that all layers keep for the backward pass"),
    "state": Number(
        "bytes a parameter in memory, with its gradient and the optimizer's: see "
        "--optimizer",
        16.0,
    ),
    "sent": Number("bytes a parameter, and its gradient, when it is sent", 4.0),
}
MACHINE = {
    "memory": Number("bytes of a device's memory"),
    "rate": Number("FLOP/s that a device reaches in training; no data sheet has it"),
    "bandwidth": Number("bytes a second of a device's memory", 1e12),
    "launch": Number("seconds that a layer's pass takes at least", 50e-6),
    "price": Number("dollars an hour for a device", 1.0),
    "at_once": Number("devices that are rented out together", 1, whole=True),
}
CLUSTER = {
    "nodes": Number("machines", 1, whole=True),
    "gpus": Number("devices in each machine", whole=True),
    "cards": Number("network cards in each machine", 1, whole=True),
}
BATCH = {"batch": Number("samples of a step, over all devices", whole=True)}
SEQUENCE = {"sequence": Number("tokens of a sample, for a model with a name")}
NUMBERS = {**MODEL, **BATCH, **MACHINE, **CLUSTER}
TEXTS = ("name", "goal", "inside", "across", "cut")
NOTES = ("how", "missing")  # what bench says of its numbers
# Less than this is another unit: what is asked for, and how it is written.
LEAST = {
    "memory": (1e6, "bytes: 80e9 for 80 GB"),
    "rate": (1e9, "FLOP/s: 150e12 for 150 TFLOP/s"),
    "bandwidth": (1e6, "bytes a second: 2e12 for 2 TB/s"),
}
# Machines are joined by one of these, if nobody says by which: a slow one, a fast one.
USUAL = ("Ethernet 100G", "InfiniBand HDR")
TOKENS, IMAGES = 2**20, 256  # of a step, if nobody says how many


def add_options(made: argparse.ArgumentParser) -> None:
    """Add what can be said of a setting; a file may say it as well."""
    made.add_argument(
        "what",
        nargs="?",
        metavar="MODEL or FILE.json",
        help="a model's name, see --list; or a file: what manygpu bench --json wrote, "
        "or an object of the options' names",
    )
    made.add_argument("--gpu", metavar="NAME", help="see --list")
    made.add_argument("--goal", choices=GOALS, help="the shortest step, the cheapest "
        "one, or the fewest devices on which it fits; default: time")  # fmt: skip
    names = [one.name for one in ENGINES]
    made.add_argument("--engine", nargs="+", choices=names, metavar="NAME", help="only "
        f"what these have, of {', '.join(names)}")  # fmt: skip
    made.add_argument("--optimizer", choices=OPTIMIZERS, help="sets --state; default: "
        "adam")  # fmt: skip
    made.add_argument("--json", action="store_true", help="print the plans as JSON")
    made.add_argument("--list", action="store_true", help="print the models, GPUs and "
        "links that have names, and prices")  # fmt: skip
    model = made.add_argument_group("the model, if it has no name")
    machine = made.add_argument_group("the machine")
    for name, (about, default, whole) in (NUMBERS | SEQUENCE).items():
        group = model if name in MODEL | BATCH | SEQUENCE else machine
        end = "" if name in SEQUENCE else "; needed"
        end = end if default is None else f"; default: {default:g}"
        kind = int if whole else float
        option = "--" + name.replace("_", "-")
        group.add_argument(option, type=kind, metavar="N", help=about + end)
    machine.add_argument("--inside", metavar="LINK", help="the link between devices "
        "of a machine, see --list; or SECONDS,BYTES_A_SECOND; default: the "
        "GPU's")  # fmt: skip
    machine.add_argument("--across", metavar="LINK", help="the same between machines; "
        "default: two usual ones are tried")  # fmt: skip


def asked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return names and values of a setting: the file's, and over them the options'.

    Raises:
        ValueError: a file that is none, or has names that are not known here; no model
            or GPU of this name.
    """
    said = {k: v for k, v in options.items() if k in (*NUMBERS, *TEXTS, "sequence")}
    said = {name: value for name, value in said.items() if value is not None}
    what, given = options.get("what"), {}
    if what and (what.endswith(".json") or Path(what).is_file()):
        given = read(Path(what))
    elif what:
        given = of_model(what, said.pop("sequence", None))
    if "sequence" in said:
        raise ValueError("sequence is of a model with a name: give --flops and --kept")
    how = dict(given.get("how", {}))
    if options.get("gpu"):
        row = tables.gpu(options["gpu"])
        devices = said.get("gpus", 1) * said.get("nodes", 1)
        machine = of_gpu(row, given.get("shape") is not None, devices)
        how |= machine.pop("how")
        given |= machine
    if options.get("optimizer"):
        given["state"] = OPTIMIZERS[options["optimizer"]]
    if options.get("engine"):
        given["engines"] = tuple(options["engine"])
    given["how"] = {name: note for name, note in how.items() if name not in said}
    return given | said


def of_model(name: str, sequence: float | None = None) -> dict[str, Any]:
    """Names and values of a model of the table."""
    row = tables.model(name)
    if sequence is not None and not (row.transformer and sequence >= 1):
        raise ValueError(f"sequence must be tokens of a transformer, got {sequence:g}")
    model = known_model(row, sequence and int(sequence))
    found = dataclasses.asdict(model)
    tokens = int(sequence or row.sequence) if row.transformer else None
    found["batch"] = max(1, TOKENS // tokens) if tokens else IMAGES
    each = f"sequences of {tokens:,} tokens" if tokens else "images"
    found["how"] = {"batch": f"{found['batch']} {each} a step are assumed"}
    return found


def of_gpu(row: tables.Gpu, transformer: bool, devices: int) -> dict[str, Any]:
    """Names and values of a machine with these GPUs."""
    reached, said = row.rate(transformer)
    found = {"memory": row.memory, "rate": reached, "bandwidth": row.bandwidth}
    found |= {"inside": row.inside, "how": {"rate": f"{reached:.3g} FLOP/s, {said}"}}
    price = row.price(devices)
    if price:
        found |= {"price": price.each, "at_once": price.devices}
        found["how"]["price"] = (
            f"${price.each:.2f} an hour for one, {price.devices} at once: "
            f"{price.provider}, {price.date}"
        )
    else:
        found["how"]["price"] = "no price is known: $1 an hour is assumed"
    return found


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
    strange = sorted(set(given) - {*NUMBERS, *TEXTS, *NOTES})
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
    known = tables.named(said, tables.links()) if isinstance(said, str) else None
    if known:
        return known.link
    try:
        if isinstance(said, Mapping):
            raise TypeError("an object has no order")
        link = Link(*map(float, said.split(",") if isinstance(said, str) else said))
    except (TypeError, ValueError, OverflowError) as wrong:
        raise ValueError(
            f"{name} must be one of {', '.join(LINKS)}, or seconds above or at 0 and "
            f"bytes a second above 0, got {str(said):.80}"
        ) from wrong
    _check_unit(name, link.bandwidth, 1e5, "seconds, bytes a second: 5e-6,64e9")
    return link


def _check_unit(name: str, value: float, least: float, asked: str) -> None:
    if 0 < value < least:
        raise ValueError(f"{name} must be in {asked}; got {value:g}")


def settings_of(given: Mapping[str, Any]) -> Iterator[tuple[str, Setting]]:
    """Settings from names and values: one, or one for each usual link across.

    Yields:
        The link between machines if it was not said, else an empty text; a setting.
    """
    if given.get("nodes", 1) == 1 or given.get("across") is not None:
        yield "", setting_of(given)
        return
    for name in USUAL:
        yield name, setting_of({**given, "across": name})


def setting_of(given: Mapping[str, Any]) -> Setting:
    """A setting from names and values, as a file or the options have them.

    Raises:
        TypeError, ValueError: names that miss, and what `Setting` and its parts
            refuse; the message names the option.
    """
    filled = {name: number.default for name, number in NUMBERS.items()}
    filled |= {"inside": None, "goal": GOALS[0], "name": "your model", "cut": True}
    filled |= {"shape": None, "engines": ()}
    filled |= {name: value for name, value in given.items() if value is not None}
    if not isinstance(filled["cut"], bool):
        raise TypeError(f"cut must be true or false, got {filled['cut']!r}")
    if not filled["cut"]:  # nobody cuts it, so nobody asks
        filled |= {name: filled[name] or 1 for name in ("layers", "handed")}
    _check_missing(filled)
    for name, number in NUMBERS.items():
        value = filled[name]
        if number.whole and isinstance(value, float) and value.is_integer():
            filled[name] = int(value)  # a file may say 1e3
    for name, (least, words) in LEAST.items():
        if isinstance(filled[name], float | int):
            _check_unit(name, filled[name], least, words)
    across = filled.get("across") or filled["inside"]
    wire = tables.named(str(filled.get("across")), tables.links())
    if wire and given.get("cards") is None:
        filled["cards"] = _cards(wire.cards or 1, filled["gpus"])
    cluster = Cluster(
        inside=link_of("inside", filled["inside"]),
        across=link_of("across", across),
        **_part(filled, CLUSTER),
    )
    names = [field.name for field in dataclasses.fields(Model)]
    model = Model(**{n: filled[n] for n in names if n in filled})
    machine = Machine(cluster, **_part(filled, MACHINE))
    return Setting(model, machine, filled["batch"], filled["goal"], filled["engines"])


def _cards(usual: int, gpus: Any) -> int:
    """As many network cards as usual, if these GPUs share them out evenly."""
    whole = isinstance(gpus, int) and gpus > 0
    return max(c for c in range(1, usual + 1) if whole and gpus % c == 0 or c == 1)


def _part(filled: Mapping[str, Any], numbers: Mapping[str, Number]) -> dict[str, Any]:
    return {name: filled[name] for name in numbers}


def _check_missing(filled: Mapping[str, Any]) -> None:
    """Refuse a setting in which something is not said; bench may have said why."""
    names = sorted(k for k in (*NUMBERS, "inside") if filled[k] is None)
    if names:
        why = filled.get("missing", {})
        said = [f"{name} ({why[name]})" if name in why else name for name in names]
        options = ", ".join("--" + name.replace("_", "-") for name in names)
        model, gpu = {*names} & {*MODEL}, {*names} & {"memory", "rate", "inside"}
        ways = [f"give {options}"]
        ways += ["or a model's name"] * bool(model) + ["or --gpu"] * bool(gpu)
        more = " (manygpu choose --list)" if len(ways) > 1 else ""
        raise ValueError(f"missing: {', '.join(said)}; {', '.join(ways)}{more}")


# The answer.


def answer(
    settings: Sequence[tuple[str, Setting]],
    choices: Sequence[Choice],
    how: Mapping[str, str] | None = None,
) -> str:
    """What was chosen for each of `settings_of`, and the question that is left."""
    parts = []
    for (link, setting), choice in zip(settings, choices, strict=True):
        parts.append(f"Machines joined by {link}:" if link else "")
        parts.append(told(setting, choice))
    if len(choices) > 1:
        parts.append("How are your machines joined? Say it with --across.")
    parts += [f"  {name}: {said}" for name, said in (how or {}).items()]
    return "\n".join(part for part in parts if part)


def told(setting: Setting, choice: Choice) -> str:
    """A choice in lines for a terminal."""
    cluster = setting.machine.cluster
    where = f"{cluster.gpus} in a machine" if cluster.count > 1 else "1 device"
    if cluster.nodes > 1:
        where = f"{cluster.nodes} machines of {cluster.gpus}"
    lines = [f"{setting.model.name}, batch {setting.batch}, {where}, {setting.goal}:"]
    for number, option in enumerate(choice.options, 1):
        lines += [f"{number}. {option.plan.words}", *_option_lines(option)]
    if not choice.options:
        lines.append("Nothing fits.")
    lines += [f"{r.question} {r.answer}." for r in choice.reasons]
    return "\n".join([*lines, f"See {', '.join(choice.chapters)}"])


def _option_lines(option: Option) -> list[str]:
    return [
        f"   {option.seconds:.3g} s a step ({option.low:.3g} to {option.high:.3g}), "
        f"{option.memory / 1e9:.3g} GB a device, {100 * option.dollars:.3g} cents a "
        "step",
        f"   {option.engine}: {option.line}",
    ]


def as_json(choice: Choice) -> dict[str, Any]:
    """A choice as JSON can hold it."""
    options = [
        option._asdict()
        | {"plan": option.plan._asdict() | {"words": option.plan.words}}
        for option in choice.options
    ]
    reasons = [reason._asdict() for reason in choice.reasons]
    return {"options": options, "reasons": reasons, "chapters": choice.chapters}
