"""The commands of the package: `manygpu bench`, `report`, `choose` and `launch`.

They start at once and refuse bad arguments before TensorFlow is imported.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, TextIO

from manygpu import comparison as compared
from manygpu import records
from manygpu.choosing import command, measured, tree
from manygpu.comparison import BASE, LENET, NO_STRATEGY, WAYS, Comparison
from manygpu.processes import launch
from manygpu.processes.launch import STOPPING, visible_gpus

TRANSFORMER = "transformer"
DONE, FAILED, REFUSED = 0, 1, 2  # exit statuses; a signal's is 128 and its number
ROUNDS, STEPS, DEVICES = 10, 2, 2
PLOTS = (".svg", ".png", ".pdf")
WIDTH = 24  # of the progress bar, in letters


class RefusedError(Exception):
    """Arguments that can't be used; the message says which, and what to do."""


class Stopped(KeyboardInterrupt):
    """A signal asks the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def whole(text: str) -> int:
    """Return the number that an argument says; refuses what is below 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"must be a whole number of at least 1, got {text!r}"
        )
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Return what reads the commands' arguments."""
    made = argparse.ArgumentParser(
        prog="manygpu",
        description="Training on many GPUs: compare, report, choose, launch.",
    )
    commands = made.add_subparsers(required=True, metavar="command", dest="command")
    _add_bench(
        commands.add_parser(
            "bench",
            help="train one model under every strategy that this machine can run",
            description="Train one model under every strategy that fits this machine, "
            "in turns, and print what each takes and gives. Exit status: 0 done, 1 "
            "nothing could be measured, 2 bad arguments, 130 broken off by Ctrl-C.",
        ).add_argument
    )
    add = commands.add_parser(
        "report",
        help="write what bench kept as one HTML file",
        description="Write what `manygpu bench --json` kept as one HTML file that "
        "needs no network. Exit status: 0 written, 2 bad arguments.",
    ).add_argument
    add("file", type=Path, metavar="FILE.json", help="what bench --json wrote")
    add("-o", "--output", type=Path, metavar="FILE.html", help="default: beside it")
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
    return made


def _add_bench(add: Callable[..., Any]) -> None:
    """The arguments of `bench`."""
    add("--model", default=LENET, metavar="M", help="lenet, transformer, or your own: "
        "module:function, which returns a built Keras model and a batch, "
        "model, (X, y); default: lenet")  # fmt: skip
    add("--devices", type=whole, metavar="N", help="default: MANYGPU_DEVICES, else "
        f"all GPUs, else {DEVICES}")  # fmt: skip
    add("--batch", type=whole, metavar="N", help="samples; default: the model's own")
    add("--strategy", nargs="+", metavar="NAME", help=f"of {', '.join(WAYS)}; one "
        f"device is always among them; default: all but "
        f"{' and '.join(NO_STRATEGY)}")  # fmt: skip
    add("--rounds", type=whole, default=ROUNDS, metavar="N", help="in each, every "
        f"strategy takes its turn; default: {ROUNDS}")  # fmt: skip
    add("--steps", type=whole, default=STEPS, metavar="N", help="in a turn; default: "
        f"{STEPS}")  # fmt: skip
    add("--json", type=Path, metavar="FILE", help="keep the results, for report and "
        "choose; a second start with the same file and arguments goes on")  # fmt: skip
    add("--plot", type=Path, metavar="FILE", help="draw the times: .svg, .png or .pdf")


def main(words: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status."""
    given = parser().parse_args(words)  # exits with 2 for what it can't read
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # whatever the terminal's encoding
    try:
        return RUN[given.command](given)
    except RefusedError as wrong:
        message, status = wrong, REFUSED
    except OSError as broken:  # a disk that is full, say
        message, status = broken, FAILED
    print(visible(f"manygpu {given.command}: {message}"), file=sys.stderr)
    return status


def visible(text: object) -> str:
    """Return a text whose letters do nothing to a terminal but show."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode()
        for c in str(text)
    )


def bench(given: argparse.Namespace) -> int:
    """Compare; return the exit status.

    Raises:
        RefusedError: arguments that can't be used; nothing was written or measured.
    """
    asked = experiment(given)
    _check_place("--json", given.json)
    _check_place("--plot", given.plot, PLOTS)
    comparison = _to_fill(given.json, asked)
    failed = ""
    with _signals(), Progress(sys.stderr) as progress:
        try:
            failed = _survey(comparison, given, progress)
            status = FAILED if failed else DONE
        except KeyboardInterrupt as stopped:
            status = 128 + getattr(stopped, "number", signal.SIGINT)
    if failed:
        print(visible(f"manygpu bench: {failed}"), file=sys.stderr)
        return status
    if status == DONE and not comparison.rounds:
        status = FAILED
    _show(comparison, given, status)
    return status


def _survey(comparison: Comparison, given: Any, progress: Progress) -> str:
    """Measure; return why it failed as a whole, or nothing."""
    progress.tell("imports TensorFlow", 0, 0)
    with _unheard():
        from manygpu.bench.running import UnfitError
        from manygpu.bench.survey import survey

    def keep() -> None:
        if given.json:
            keep_for_choosing(comparison, given.json)

    try:
        survey(comparison, given.rounds, keep, progress.tell)
    except UnfitError as why:
        return str(why)
    return ""


def keep_for_choosing(comparison: Comparison, path: Path) -> None:
    """Write a comparison, and with it what `manygpu choose` is asked after it."""
    compared.keep(comparison, path, measured.question(comparison))


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """What a library writes as it is imported, TensorFlow's greetings, is not shown."""
    own = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def _to_fill(path: Path | None, asked: dict[str, Any]) -> Comparison:
    """What the file holds, to go on with, or a new comparison."""
    if path is None:
        return compared.begin(asked)
    try:
        return compared.resume(path, asked)
    except (OSError, ValueError) as wrong:
        raise RefusedError(f"--json: {wrong}") from wrong


def _show(comparison: Comparison, given: argparse.Namespace, status: int) -> None:
    """Print the table and draw the figure, of what there is."""
    from manygpu import report  # matplotlib

    comparison.cut()
    known = any(row.facts or row.cannot for row in comparison.rows.values())
    if known:
        print(visible(report.text(comparison)))
    if given.plot and not report.plot(comparison, given.plot):
        print("no round is complete, so nothing is drawn", file=sys.stderr)
    if status > 128:
        kept = "Stopped. Only what is above was measured"
        if given.json and given.json.exists():
            kept = f"Stopped. {given.json} has what was measured; start again to go on"
        elif not given.json:
            kept += "; with --json FILE a second start would go on"
        print(f"{kept}.", file=sys.stderr)


def experiment(given: argparse.Namespace) -> dict[str, Any]:
    """Return what is asked, see `manygpu.records.comparison`, without `about`.

    Raises:
        RefusedError: no such model, strategy, or number of devices.
    """
    return {
        "model": given.model,
        "source": digest(given.model),
        "devices": given.devices or default_devices(),
        "batch": given.batch or 0,
        "steps": given.steps,
        "kernels": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "TensorFlow's choice"),
        "strategies": strategies(given.strategy, given.model),
    }


def strategies(names: Sequence[str] | None, model: str) -> list[str]:
    """Return the strategies to be compared, one device first.

    Raises:
        RefusedError: a name that is none.
    """
    strange = [name for name in names or () if name not in WAYS]
    if strange:
        raise RefusedError(
            f"--strategy: no such strategy: {', '.join(strange)}; choose from "
            f"{', '.join(WAYS)}"
        )
    if names is None:
        mine = model == LENET
        return [n for n in WAYS if n not in NO_STRATEGY and (mine or not WAYS[n].lenet)]
    return [name for name in WAYS if name == BASE or name in names]


def default_devices() -> int:
    """Return MANYGPU_DEVICES, else how many GPUs there are, else 2.

    Raises:
        RefusedError: MANYGPU_DEVICES is no number.
    """
    said = os.environ.get("MANYGPU_DEVICES", "").strip()
    if said:
        try:
            return whole(said)
        except argparse.ArgumentTypeError as wrong:
            raise RefusedError(
                f"MANYGPU_DEVICES {wrong}: set it, or unset it"
            ) from wrong
    gpus = len(visible_gpus())
    return gpus if gpus > 1 else DEVICES


def digest(model: str) -> str:
    """Return a digest of the file that the reader's own model is in; else nothing.

    With it, a comparison is not gone on with after the model has changed.

    Raises:
        RefusedError: no model of ours, and no `module:function` that can be found.
    """
    if model in (LENET, TRANSFORMER):
        return ""
    module, colon, function = model.partition(":")
    if not colon or not function.isidentifier() or not module:
        raise RefusedError(
            f"--model must be {LENET}, {TRANSFORMER} or module:function, got {model!r}"
        )
    if module.endswith(".py"):
        name = module.removesuffix(".py").strip("./").replace("/", ".")
        raise RefusedError(
            f"--model takes a module, {name}, and no file: {name}:{function}"
        )
    origin = _origin(module)
    if origin is None or not Path(origin).is_file():
        raise RefusedError(
            f"--model: there is no module {module} here or on PYTHONPATH"
        )
    return hashlib.sha256(Path(origin).read_bytes()).hexdigest()


def _origin(module: str) -> str | None:
    """The file of a module. Its packages are searched, but none is imported here."""
    first, *parts = module.split(".")
    with _here_first(), contextlib.suppress(ImportError, ValueError):
        found = importlib.util.find_spec(first)
        for i in range(1, len(parts) + 1):
            places = found and found.submodule_search_locations
            name = ".".join([first, *parts[:i]])
            found = PathFinder.find_spec(name, places) if places else None
        return found and found.origin
    return None


@contextlib.contextmanager
def _here_first() -> Iterator[None]:
    """Modules of the current folder are found, as `python -m` finds them."""
    sys.path.insert(0, os.getcwd())
    try:
        yield
    finally:
        sys.path.remove(os.getcwd())


def _check_place(name: str, path: Path | None, kinds: Sequence[str] = ()) -> None:
    """Refuse a file that can't be written, before anything is measured."""
    if path is None:
        return
    if kinds and path.suffix not in kinds:
        raise RefusedError(
            f"{name} must end with one of {', '.join(kinds)}, got {path}"
        )
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise RefusedError(f"{name}: {path} is no file in a folder that exists")


def report(given: argparse.Namespace) -> int:
    """Write what bench kept as HTML; return the exit status.

    Raises:
        RefusedError: no such file, or another kind of file, or the page would take its
            place; nothing was written.
    """
    output = given.output or given.file.with_suffix(".html")
    _check_place("--output", output, (".html", ".htm"))
    if output.resolve() == given.file.resolve():
        raise RefusedError(
            f"--output: {output} holds what was measured: name another file"
        )
    try:
        comparison = compared.read(given.file)
    except (OSError, ValueError) as wrong:
        raise RefusedError(str(wrong)) from wrong
    from manygpu.report import page  # matplotlib

    comparison.cut()
    records.write_whole(page(comparison), output)
    print(output)
    return DONE


def choose(given: argparse.Namespace) -> int:
    """Choose a plan and print it; return the exit status.

    Raises:
        RefusedError: options, or a file, of which no setting can be made.
    """
    try:
        asked = command.asked(vars(given))
        setting = command.setting_of(asked)
    except (TypeError, ValueError) as wrong:
        first = str(wrong).partition(" ")[0]
        known = first in (*command.NUMBERS, *command.TEXTS, "file")
        raise RefusedError(f"{'--' * known}{wrong}") from wrong
    found = tree.choose(setting)
    if given.json:
        print(json.dumps(command.as_json(found)))
    else:
        print(visible(command.told(found, asked.get("how"))))
    return DONE if found.plan else FAILED


RUN = {"bench": bench, "report": report, "choose": choose, "launch": launch.run}


class Progress:
    """One line that says how far it is, on a terminal only, and is gone in the end."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.shown = stream, stream.isatty()
        self.start = time.monotonic()

    def tell(self, what: str, done: int, total: int) -> None:
        """Say what is under way, how many pieces are done, and of how many."""
        if not self.shown:
            return
        full = WIDTH * done // total if total else 0
        seconds = time.monotonic() - self.start
        bar = "#" * full + "." * (WIDTH - full)
        self._write(f"{bar} {done}/{total}  {seconds:.0f} s  {what}")

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(f"\r\x1b[K{line}")
            self.stream.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown:
            self._write("")


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """What would end the command at once is an interrupt: what was measured is kept.

    After the first, there are no others, up to the process's end.
    """

    def stop(number: int, _: Any) -> None:
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        raise Stopped(number)

    heeded = [n for n in STOPPING if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is stop:
                signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
