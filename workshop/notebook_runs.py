"""What we want of nbmake beyond what it does: a small pytest plugin.

Each notebook runs as a copy in an empty folder, so nothing can be left beside the book,
and `--overwrite` writes whole files only. A line says how each one went as it ends. No
process that a notebook has started outlives it, however the run ends.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import nbformat
import psutil
import pytest

RUN = "NOTEBOOK_RUN"  # in the environment of all that a run starts
SHOWN_LINES = 12
ANSI = re.compile(r"\x1b\[[0-9;]*m")
IN_A_THREAD = "Exception in thread"


class NotebookError(Exception):
    """A notebook ran to its end, and still something is wrong with it."""


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a Python without asserts; look after notebooks if they are to run."""
    if not __debug__:
        message = "PYTHONOPTIMIZE (or -O) is set: no assert would run. Unset it."
        raise pytest.UsageError(message)
    if getattr(config.option, "nbmake", False):
        config.pluginmanager.register(Runs())
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Teller(config))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run notebooks beside this process: nbclient would take Ctrl-C from it."""
    option = config.option
    worker = hasattr(config, "workerinput")
    if getattr(option, "nbmake", False) and option.numprocesses is None and not worker:
        option.numprocesses, option.dist, option.tx = 1, "load", ["popen"]


class Runs:
    """Runs each notebook by itself, in whatever process it is to run."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Let nbmake execute a copy; keep it if that is wanted; end what it started."""
        if not getattr(item, "nbmake", False):
            return (yield)
        option, source = item.config.option, Path(item.filename)
        wanted, option.overwrite = option.overwrite, True
        outer, mark = os.environ.get(RUN, ""), f"{os.environ.get(RUN)}/{uuid.uuid4()}"
        with tempfile.TemporaryDirectory() as empty:
            copy = Path(shutil.copy(source, empty))
            item.filename, os.environ[RUN] = str(copy), mark
            try:
                return look_at(copy, (yield))
            finally:
                end_all(mark)
                item.filename, option.overwrite = str(source), wanted
                os.environ[RUN] = outer
                if wanted:
                    part = source.with_suffix(".part")
                    os.replace(shutil.copyfile(copy, part), source)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo
    ) -> Iterator[None]:
        """One line for pytest's summary, and all that helps for the line of now."""
        report = yield
        if not getattr(item, "nbmake", False):
            return report
        if call.when == "call":
            report.user_properties.append(("notebook", item.filename))
        if report.failed:
            said = failure(call.excinfo)
            if "died" in said:  # its last words
                said += "\n" + "\n".join(text for _, text in report.sections)[-1500:]
            report.longrepr, report.sections = said.split("\n")[0], []
            report.user_properties.append(("wrong", said))
        return report


class Teller:
    """Says n/N, name and seconds as each notebook ends; ends all when the run does."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.count, self.done = config, 0, 0
        os.environ[RUN] = self.mark = str(uuid.uuid4())
        self.before = signal.signal(signal.SIGTERM, _interrupt)

    def pytest_keyboard_interrupt(self) -> None:
        """Broken off: don't wait for what runs."""
        end_all(self.mark)

    def pytest_unconfigure(self) -> None:
        """However the run ended, nothing of it goes on."""
        end_all(self.mark)
        os.environ.pop(RUN, None)
        signal.signal(signal.SIGTERM, self.before)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Count the notebooks: they run beside this process."""
        self.count = len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple | None:
        """No dot for a notebook: it gets a line."""
        failed = "FAILED" if report.failed else ""
        return (report.outcome, "", failed) if notebook_of(report) else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Say how a notebook went."""
        if not (file := notebook_of(report)):
            return
        self.done += 1
        name = "/".join(file.with_suffix("").parts[-2:])
        number = f"{self.done:{len(str(self.count))}}/{self.count}"
        text = f"  {number}  {name:35} {report.duration:5.0f} s"
        if report.failed:
            said = dict(report.user_properties)["wrong"].splitlines()
            text = "\n      ".join([f"{text}  FAILED", *said])
        self.config.pluginmanager.get_plugin("terminalreporter").write_line(text)


def at_once() -> int:
    """How many notebooks run at once where nobody reads their times."""
    return min(4, os.cpu_count() or 1)


def notebook_of(report: pytest.TestReport) -> Path | None:
    """The notebook whose run a report is about, if it is about one."""
    name = dict(report.user_properties).get("notebook")
    return Path(name) if name else None


def look_at(executed: Path, result: object) -> object:
    """Refuse what no cell's failure shows: files left behind, a thread's exception."""
    left = sorted({p.name for p in executed.parent.iterdir()} - {executed.name})
    if left:
        raise NotebookError(f"it left {left} in the folder it ran in")
    for number, cell in enumerate(nbformat.read(executed, as_version=4).cells):
        for output in cell.get("outputs", []):
            if IN_A_THREAD in output.get("text", ""):
                said = output.text[-1500:]
                raise NotebookError(f"cell {number}: a thread failed\n{said}")
    return result


def failure(found: pytest.ExceptionInfo) -> str:
    """What went wrong: the cell and the message first, then the end of the trace."""
    error = found.value
    if isinstance(error, NotebookError):
        return str(error)
    result = getattr(error.args[0] if error.args else "", "error", None)
    if not result:  # the kernel died, or it is no notebook
        seen = [e.locals for e in found.traceback if "cell_index" in e.locals]
        where = f"cell {seen[0]['cell_index']}: " if seen else ""
        return f"{where}{type(error).__name__}: {str(error).strip()[:1500]}"
    said = f"cell {result.failing_cell_index}: {result.summary[:1000]}"
    trace = [f"    {row[:200]}" for row in result.trace.splitlines()[-SHOWN_LINES:]]
    return ANSI.sub("", "\n".join([said, "the end of the trace:", *trace]))


def end_all(mark: str) -> None:
    """End every other process whose environment has this mark, at once."""
    for process in psutil.process_iter():
        try:
            marked = process.environ().get(RUN, "").startswith(mark)
            if marked and process.pid != os.getpid():
                process.kill()
        except (psutil.Error, OSError):
            pass  # it is gone already, or somebody else's


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
