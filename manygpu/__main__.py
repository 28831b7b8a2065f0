"""The commands of the package: bench, report, choose, launch, prove and grade.

They start at once and refuse bad arguments before TensorFlow is imported.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from manygpu import _streams, options, records
from manygpu.addresses import parts_of
from manygpu.bench import result
from manygpu.bench.run import survey
from manygpu.choosing import asking, command, search, tables
from manygpu.exercises import grading
from manygpu.processes import launch
from manygpu.processes.interrupts import heed_signals, status_of
from manygpu.processes.launch import visible_gpus
from manygpu.prove import command as judging
from manygpu.tables import visible
from manygpu.trainings import table

DONE, FAILED, REFUSED = 0, 1, 2  # exit statuses; a signal's is 128 and its number
ROUNDS, STEPS, DEVICES = 10, 2, 2
MOST_DEVICES, MOST_SAMPLES, MOST_TURNS = 1024, 10**9, 10**6  # of bench
CLEAR = "\r\x1b[K"  # a terminal's line begins anew


class RefusedError(Exception):
    """Arguments that can't be used; the message says which, and what to do."""


devices = options.whole(1, MOST_DEVICES)


def writable(text: str) -> Path:
    """Return the path of a file to be written; refuses what can't be one.

    A file takes the place of the old one whole. So a pipe, a device such as /dev/null,
    or a link that leads to no file would be lost.
    """
    path = Path(text)
    free = not os.path.lexists(path) or path.is_file()
    if not free or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"must be a file in a folder that exists, got {visible(text)}: name another"
        )
    return path


def parser() -> argparse.ArgumentParser:
    """Return what reads the commands' arguments."""
    made = argparse.ArgumentParser(
        prog="manygpu",
        description="Training on many GPUs: compare, report, choose, launch, prove, "
        "grade.",
    )
    turns = options.whole(1, MOST_TURNS)
    commands = made.add_subparsers(required=True, metavar="command", dest="command")
    add = commands.add_parser(
        "bench",
        help="train one model under every strategy that this machine can run",
        description="Train one model under every strategy that fits this machine, "
        "in turns, and print what each takes and gives. Exit status: 0 done, 1 "
        "nothing could be measured, 2 bad arguments, 130 broken off by Ctrl-C.",
    ).add_argument
    add("--model", default=table.LENET, metavar="M", help="lenet, transformer, or your "
        "own: module:function, which returns a Keras model and a batch, model, (X, y) "
        "or (X, y, weights) or a tf.data.Dataset of these; default: lenet")  # fmt: skip
    add("--devices", type=devices, metavar="N", help="default: MANYGPU_DEVICES, else "
        f"all GPUs, else {DEVICES}")  # fmt: skip
    add("--batch", type=options.whole(1, MOST_SAMPLES), metavar="N", help="samples; "
        "default: the model's own")  # fmt: skip
    add("--strategy", nargs="+", choices=table.known(), metavar="NAME",
        help=f"of {', '.join(table.known())}; one "
        "device is always among them; default: all but "
        f"{', '.join(table.known(table.NAMED))}")  # fmt: skip
    add("--rounds", type=turns, default=ROUNDS, metavar="N", help="in each, every "
        f"strategy takes its turn; default: {ROUNDS}")  # fmt: skip
    add("--steps", type=turns, default=STEPS, metavar="N", help="in a turn; default: "
        f"{STEPS}")  # fmt: skip
    add("--json", type=writable, metavar="FILE", help="keep the results, for report "
        "and choose; a second start with this file and these arguments goes "
        "on")  # fmt: skip
    add = commands.add_parser(
        "report",
        help="write what bench kept as one HTML file",
        description="Write what `manygpu bench --json` kept as one HTML file that "
        "needs no network. Exit status: 0 written, 2 bad arguments.",
    ).add_argument
    add("file", type=Path, metavar="FILE.json", help="what bench --json wrote")
    add("others", type=Path, nargs="*", metavar="OTHER.json", help="what it wrote "
        "elsewhere, to be shown beside")  # fmt: skip
    add("-o", "--output", type=writable, metavar="FILE.html", help="default: beside it")
    command.add_options(
        commands.add_parser(
            "choose",
            help="choose a plan for a model and a machine",
            description="Choose how many devices to take and how to cut the work, and "
            "say why; nothing is measured. Exit status: 0 a plan was found, 1 nothing "
            "fits, 2 bad arguments.",
        )
    )
    launch.add_options(
        commands.add_parser("launch", help="run a script on a cluster of this machine")
    )
    judging.add_options(
        commands.add_parser("prove", help="say whether a training step is right")
    )
    grading.add_options(
        commands.add_parser(
            "grade",
            help="grade learners' notebooks",
            description="Run each notebook of a folder in a process of its own, and "
            "check the functions of a chapter's exercises with cases that no page "
            "shows. Exit status: 0 all are graded, 2 bad arguments.",
        )
    )
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status."""
    _streams.ready()
    name = "manygpu"
    try:
        given = _parsed(words)
        name = f"manygpu {given.command}"
        if given.command == "launch":  # its processes end when nobody reads any more
            _streams.as_they_were()
        status = RUN[given.command](given)
        sys.stdout.flush()  # a disk may be full
        return status
    except (RefusedError, judging.NoStepError) as wrong:
        message, status = wrong, REFUSED
    except (OSError, table.UnfitError) as broken:  # such as a disk that is full
        message, status = broken, FAILED
    print(visible(f"{name}: {message}"), file=sys.stderr)
    return status


def _parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """What the words of a command say; exits with 2 for what it can't read."""
    try:
        return parser().parse_args(words)
    finally:
        sys.stdout.flush()  # help has been printed, and a disk may be full


def bench(given: argparse.Namespace) -> int:
    """Compare; return the exit status.

    Raises:
        RefusedError: arguments that can't be used; nothing was written or measured.
        table.UnfitError: a model that can't be had.
    """
    asked = experiment(given)
    try:
        comparison = result.resume(given.json, asked) if given.json else None
    except ValueError as wrong:
        raise RefusedError(f"--json: {wrong}") from wrong
    comparison = comparison or result.begin(asked)

    def keep() -> None:
        if given.json:
            result.keep(comparison, given.json)

    try:
        heed_signals()
        survey(comparison, given.rounds, keep, tell)
        status = DONE if comparison.rounds else FAILED
    except KeyboardInterrupt as stopped:
        status = status_of(stopped)
    finally:
        tell("")
    if comparison.experiment["about"] or any(r.facts for r in comparison.rows.values()):
        from manygpu.bench import report  # matplotlib

        print(visible(report.text(comparison)))
    if status > 128:
        more = "with --json FILE a second start would go on"
        if given.json:
            more = f"the same command goes on, from {given.json}"
        print(f"Stopped. Only what is above was measured; {more}.", file=sys.stderr)
    return status


def tell(what: str) -> None:
    """Say on a terminal what comes next, in a line that is gone in the end."""
    if sys.stderr.isatty():
        print(f"{CLEAR}{visible(what)}", end="", file=sys.stderr, flush=True)


def experiment(given: argparse.Namespace) -> dict[str, Any]:
    """Return what is asked, see `manygpu.records.comparison`, without `about`.

    Raises:
        RefusedError: no such model, or number of devices.
    """
    return {
        "model": given.model,
        "source": digest(given.model),
        "devices": given.devices or default_devices(),
        "batch": given.batch or 0,
        "steps": given.steps,
        "kernels": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "TensorFlow's choice"),
        "strategies": strategies(given.strategy),
    }


def strategies(names: Sequence[str] | None) -> list[str]:
    """Return the strategies to be compared, one device first."""
    if names is None:
        return table.known(table.ALWAYS)
    return [name for name in table.known() if name == table.BASE or name in names]


def default_devices() -> int:
    """Return MANYGPU_DEVICES, else how many GPUs there are, else 2.

    Raises:
        RefusedError: MANYGPU_DEVICES is no number.
    """
    said = os.environ.get("MANYGPU_DEVICES", "").strip()
    try:
        return devices(said) if said else max(DEVICES, len(visible_gpus()))
    except argparse.ArgumentTypeError as wrong:
        raise RefusedError(f"MANYGPU_DEVICES {wrong}, or unset it") from wrong


def digest(model: str) -> str:
    """Return a digest of the file that the reader's own model is in; else nothing.

    With it, a comparison is not gone on with after the model has changed.

    Raises:
        RefusedError: no model of ours, and no `module:function` that can be found.
    """
    if model in (table.LENET, table.TRANSFORMER):
        return ""
    module, function = parts_of(model)
    if not function.isidentifier() or not module:
        raise RefusedError(
            f"--model must be {table.LENET}, {table.TRANSFORMER} or module:function, "
            f"got {model!r}"
        )
    file = _file_of(module)
    if file is None:
        raise RefusedError(
            f"--model: there is no module {module} here or on PYTHONPATH"
        )
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _file_of(module: str) -> Path | None:
    """The file of a module. It may do anything when it runs, so none is imported."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` finds modules
    found, folders = None, None
    for name in module.split("."):
        found = PathFinder.find_spec(name, folders)
        folders = (found and found.submodule_search_locations) or []
    file = Path((found and found.origin) or "")
    return file if file.is_file() else None


def report(given: argparse.Namespace) -> int:
    """Write what bench kept as HTML; return the exit status.

    Raises:
        RefusedError: no such file, or another kind of file, or the page would take its
            place; nothing was written.
    """
    try:
        comparison = result.read(given.file)
        others = {file.stem: result.read(file) for file in given.others}
        output = given.output or writable(str(given.file.with_suffix(".html")))
    except ValueError as wrong:
        raise RefusedError(str(wrong)) from wrong
    except argparse.ArgumentTypeError as wrong:
        raise RefusedError(f"--output {wrong}") from wrong
    if output.suffix not in (".html", ".htm"):
        raise RefusedError(f"--output must end with .html, got {output}")
    if output.resolve() in [file.resolve() for file in (given.file, *given.others)]:
        raise RefusedError(
            f"--output: {output} holds what was measured: name another file"
        )
    if len(others) < len(given.others) or "yours" in others:
        raise RefusedError("the other files need names of their own, other than yours")
    from manygpu.bench.report import page  # matplotlib

    records.write_whole(page(comparison, others), output)
    print(output)
    return DONE


def choose(given: argparse.Namespace) -> int:
    """Choose a plan and print it; return the exit status.

    Raises:
        RefusedError: options, or a file, of which no setting can be made.
    """
    if given.list:
        print("\n".join(tables.listed()))
        return DONE
    try:
        asked = command.asked(vars(given))
        settings = list(asking.settings_of(asked))
    except (TypeError, ValueError) as wrong:
        first = str(wrong).partition(" ")[0]
        option = first in (*asking.NUMBERS, *asking.TEXTS, "sequence", "engine")
        raise RefusedError(f"--{wrong}" if option else str(wrong)) from wrong
    if given.json and len(settings) > 1:
        raise RefusedError("--across is needed with --json: how are machines joined?")
    found = [search.choose(setting) for _, setting in settings]
    if given.json:
        print(json.dumps(command.as_json(found[0])))
    else:
        print(visible(command.answer(settings, found, asked.get("how"))))
    return DONE if all(choice.options for choice in found) else FAILED


def grade(given: argparse.Namespace) -> int:
    """Grade a folder of notebooks; return the exit status.

    Raises:
        RefusedError: no such chapter, or no notebooks.
    """
    try:
        return grading.run(given)
    except ValueError as wrong:
        raise RefusedError(str(wrong)) from wrong


RUN: dict[str, Callable[[argparse.Namespace], int]] = {
    "bench": bench,
    "report": report,
    "choose": choose,
    "launch": launch.run,
    "prove": judging.run,
    "grade": grade,
}

if __name__ == "__main__":
    sys.exit(main())
