"""`manygpu choose`: the question, read from names, options and a file; its answer.

The command itself is in `manygpu.__main__`, as all are.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from manygpu import options, records
from manygpu.chapters import reference
from manygpu.choosing import tables, words
from manygpu.choosing.asking import (
    BATCH,
    MODEL,
    NOTES,
    NUMBERS,
    SEQUENCE,
    SHAPE,
    TEXTS,
    check_board,
    of_gpu,
    of_model,
    of_sizes,
)
from manygpu.choosing.engines import ENGINES
from manygpu.choosing.question import GOALS, OPTIMIZERS, Setting
from manygpu.choosing.search import LARGE, NEAREST, Choice, Option, Reason

NAMES = ("model", "sequence", "gpu", "optimizer", "engine", *SHAPE)  # a file has them
WIDE = 79  # letters of a line, but for those to copy


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
    names = ", ".join(one.name for one in ENGINES)
    made.add_argument("--engine", nargs="+", metavar="NAME", help="only what these "
        f"have, of {names}")  # fmt: skip
    made.add_argument("--optimizer", choices=OPTIMIZERS, help="sets --state; default: "
        "adam")  # fmt: skip
    made.add_argument("--json", action="store_true", help="print the plans as JSON")
    made.add_argument("--list", action="store_true", help="print the models, GPUs and "
        "links that have names, and prices")  # fmt: skip
    model = made.add_argument_group("the model, if it has no name")
    machine = made.add_argument_group("the machine")
    for name, (about, default, whole) in (NUMBERS | SEQUENCE | SHAPE).items():
        group = model if name in MODEL | BATCH | SEQUENCE | SHAPE else machine
        end = "" if name in SEQUENCE | SHAPE else "; needed"
        end = end if default is None else f"; default: {default:g}"
        kind = options.plain(int if whole else float)
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
        ValueError: a file that is none, or has names that are not known here; no model,
            GPU or engine of this name.
    """
    said = {name: value for name, value in options.items() if value is not None}
    what, given = said.pop("what", None), {}
    if what and (what.endswith(".json") or Path(what).is_file()):
        given = read(Path(what))
        said = {name: given.pop(name) for name in NAMES if name in given} | said
    else:
        said |= {"model": what} if what else {}
    filed = dict(given) if options.get("gpu") is None else {}  # its own numbers stay
    sizes = {name: said.pop(name) for name in SHAPE if name in said}
    if "model" in said:
        if sizes:
            name = next(iter(sizes))
            raise ValueError(f"{name} is of a model without a name: leave out one")
        given = _known(of_model(said["model"], said.pop("sequence", None)), given)
    elif sizes:
        names = {"layers", "sequence", "parameters", "flops", "handed", "kept"}
        beside = {n: v for n, v in (given | said).items() if n in names}
        given = _known(of_sizes(sizes | beside), given)
        said = {n: v for n, v in said.items() if n not in names}
    elif "sequence" in said:
        raise ValueError("sequence is of a model with a name: give --flops and --kept")
    how = dict(given.get("how", {}))
    if "gpu" in said:
        row, both = tables.gpu(said["gpu"]), given | said
        gpus, nodes = both.get("gpus", 1), both.get("nodes")
        strange = check_board(row, gpus, nodes)
        machine = of_gpu(row, both, gpus, nodes or 1)
        notes = machine.pop("how") | ({"gpus": strange} if strange else {})
        how |= {name: note for name, note in notes.items() if name not in filed}
        how |= {"gpus": strange} if strange else {}
        given |= machine | {n: filed[n] for n in machine if n in filed}
    if "optimizer" in said:
        if said["optimizer"] not in OPTIMIZERS:
            names = ", ".join(OPTIMIZERS)
            raise ValueError(
                f"optimizer must be one of {names}, got {said['optimizer']!r:.80}"
            )
        given["state"] = OPTIMIZERS[said["optimizer"]]
        how.pop("state", None)
    if "engine" in said:
        given["engines"] = tuple(map(engine_named, said["engine"]))
    kept = {name: note for name, note in how.items() if name not in said}
    given["how"] = kept | {"gpus": how["gpus"]} if "gpus" in how else kept
    return given | {k: v for k, v in said.items() if k in (*NUMBERS, *TEXTS)}


def _known(found: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a model, and over it what a file says; notes as well."""
    notes = {name: said for name, said in found["how"].items() if name not in given}
    return {**found, **given, "how": notes | dict(given.get("how", {}))}


def engine_named(name: str) -> str:
    """An engine's name, however it is written; ValueError if there is none."""
    found = tables.named(name, ENGINES)
    if not found:
        names = ", ".join(one.name for one in ENGINES)
        raise ValueError(f"engine must be one of {names}, got {name!r}")
    return found.name


def read(path: Path) -> dict[str, Any]:
    """What a file says of a setting; errors: see `asked`."""
    given = records.read_json(path)
    given = given.get("choose", given) if isinstance(given, dict) else given
    if not isinstance(given, dict):
        raise ValueError(f"file {path} must hold an object, got {given!r:.80}")
    strange = sorted(set(given) - {*NUMBERS, *TEXTS, *NOTES, *NAMES})
    if strange:
        raise ValueError(f"file {path} has names that mean nothing here: {strange}")
    for note in NOTES:
        said = given.get(note, {})
        texts = said.values() if isinstance(said, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"file {path}: {note} must be an object of texts")
    return given


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
    first = [r for r in choice.reasons if r == LARGE or r.question == NEAREST]
    lines += _filled(first)  # before the first of the plans is read
    ranked = not first
    for number, option in enumerate(choice.options, 1):
        sign = f"{number}." if ranked else "-"
        lines += [f"{sign} {option.plan.words}", *_option_lines(option)]
    if not choice.options:
        lines.append("Nothing fits.")
    lines += _filled([reason for reason in choice.reasons if reason not in first])
    lines += [f"Read {reference(path)}" for path in choice.chapters]
    return "\n".join(lines)


def _filled(reasons: Sequence[Reason]) -> list[str]:
    """Questions and answers, no wider than a terminal."""
    return [
        textwrap.fill(f"{r.question} {r.answer}.", WIDE, subsequent_indent="   ")
        for r in reasons
    ]


def _option_lines(option: Option) -> list[str]:
    cost = f", {words.money(option.dollars)} a step" * (option.dollars > 0)
    taken, *ends = map(words.seconds, (option.seconds, option.low, option.high))
    held, *most = map(words.size, (option.memory, option.least, option.most))
    tight = ", tight" * option.tight
    return [
        f"   {taken} a step ({ends[0]} to {ends[1]}){cost}",
        f"   {held} a device ({most[0]} to {most[1]}{tight})",
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
