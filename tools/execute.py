"""Execute notebooks, in reading order, and say how each one went as it ends.

What is executed is kept with a key: a hash of the notebook, of the modules of the
package that it uses, and of what it runs in. A notebook whose key has not changed need
not run again, so a broken-off `make book` is taken up where it was.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import json
import os
import platform
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tools.needs import Package

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 600  # for one cell, also on a machine that is busy with other notebooks
SHOWN_LINES = 12
# What a notebook's outputs depend on, beside its own text and the package's.
VARIABLES = re.compile(r"MANYGPU_|TF_|XLA_|KERAS_|CUDA_|OMP_")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Job:
    """A notebook to execute.

    Attributes:
        name: what it is called in what is printed.
        source: the notebook; it is left as it is.
        target: where the executed one goes; None if nobody wants it.
        folder: in which it runs; None for an empty one, in which nothing may be left.
        variables: of the environment, beside this process's own; None takes one away.
        python: whose kernel runs it; None for this Python.
    """

    name: str
    source: Path
    target: Path | None
    folder: Path | None
    variables: dict[str, str | None] = field(default_factory=dict)
    python: Path | None = None


@dataclass(frozen=True)
class Result:
    """How a job went: seconds, and what went wrong, "" if nothing did."""

    job: Job
    seconds: float
    wrong: str = ""


class Executor:
    """Runs jobs, several at a time, in kernels of their own.

    Use it in a `with` statement: however that ends, no kernel is left.
    """

    def __init__(self, at_once: int = 1) -> None:
        self.at_once = at_once
        self._kernels: list[AsyncKernelManager] = []
        self._stopped = threading.Event()

    def __enter__(self) -> Executor:
        # What ends this process ends the kernels too, not only Ctrl-C.
        self._before = signal.signal(signal.SIGTERM, _interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        signal.signal(signal.SIGTERM, self._before)

    def run(
        self, jobs: Sequence[Job], then: Callable[[Result], None] | None = None
    ) -> list[Result]:
        """Execute the jobs; print a line for each as it ends. Returns all results.

        Args:
            jobs: started in this order.
            then: called with each result as soon as it is there.
        """
        results: list[Result] = []
        width = max((len(job.name) for job in jobs), default=0)
        with ThreadPoolExecutor(self.at_once) as pool:
            waiting: list[Future] = [pool.submit(self._one, job) for job in jobs]
            try:
                for done in as_completed(waiting):
                    results.append(done.result())
                    if then:
                        then(results[-1])
                    print(line(results, len(jobs), width), flush=True)
            except BaseException:
                for future in waiting:
                    future.cancel()
                self.stop()
                raise
        return results

    def stop(self) -> None:
        """End every kernel and what it has started."""
        self._stopped.set()
        for manager in list(self._kernels):
            _kill(manager)

    def _one(self, job: Job) -> Result:
        start = time.monotonic()
        if self._stopped.is_set():
            return Result(job, 0.0, "not run")
        notebook = nbformat.read(job.source, as_version=4)
        wrong = asyncio.run(self._execute(job, notebook))
        seconds = time.monotonic() - start
        if job.target and not (wrong and self._stopped.is_set()):
            write_whole(job.target, nbformat.writes(notebook) + "\n")
        return Result(job, seconds, wrong)

    async def _execute(self, job: Job, notebook: nbformat.NotebookNode) -> str:
        """Run one notebook; return what went wrong."""
        with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryFile() as log:
            specs = _Kernels(job.python)
            manager = AsyncKernelManager(
                kernel_name="python3", kernel_spec_manager=specs
            )
            self._kernels.append(manager)
            place = {"metadata": {"path": str(job.folder or empty)}}
            client = NotebookClient(
                notebook, timeout=TIMEOUT_S, km=manager, resources=place
            )
            said = {"stdout": log, "stderr": log}  # greetings, and a crash's last words
            environment = {**os.environ, **job.variables}
            environment = {k: v for k, v in environment.items() if v is not None}
            try:
                await client.async_execute(env=environment, cleanup_kc=True, **said)
            except CellExecutionError as failed:
                return failure(notebook, failed)
            except Exception as failed:  # the kernel died, or a cell took too long
                log.seek(0)
                end = log.read().decode("utf-8", "replace").strip()[-1500:]
                return f"{type(failed).__name__}: {str(failed).strip()[:1500]}\n{end}"
            finally:
                _kill(manager)
                self._kernels.remove(manager)
            left = sorted(p.name for p in Path(empty).iterdir())
            return f"it left {left} in the folder it ran in" if left else ""


def failure(notebook: nbformat.NotebookNode, failed: CellExecutionError) -> str:
    """The cell and the message first, then the end of the trace."""
    number, source = "?", ""
    for i, cell in enumerate(notebook.cells):
        outputs = cell.get("outputs", [])
        if any(output.output_type == "error" for output in outputs):
            number, source = i, cell.source
    shown = source.splitlines()[:SHOWN_LINES]
    more = ["..."] if len(source.splitlines()) > SHOWN_LINES else []
    trace = [row[:200] for row in ANSI.sub("", failed.traceback).splitlines()]
    return "\n".join(
        [
            f"cell {number}: {failed.ename}: {ANSI.sub('', failed.evalue)[:1000]}",
            *(f"    | {row[:200]}" for row in [*shown, *more]),
            "the end of the trace:",
            *(f"    {row}" for row in trace[-SHOWN_LINES:]),
        ]
    )


def line(results: list[Result], count: int, width: int) -> str:
    """How the last result went: n/N, name, seconds, and what went wrong."""
    last = results[-1]
    text = f"  {len(results):{len(str(count))}}/{count}  {last.job.name:{width}}"
    text += f" {last.seconds:5.0f} s"
    if not last.wrong:
        return text
    return f"{text}  FAILED\n{_indented(last.wrong)}"


def _indented(text: str) -> str:
    return "\n".join(f"      {row}" for row in text.splitlines())


class _Kernels(KernelSpecManager):
    """Knows one kernel: that of a given Python, whatever else is installed."""

    def __init__(self, python: Path | None) -> None:
        super().__init__()
        self.argv = [str(python or sys.executable), "-m", "ipykernel_launcher"]

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """How that kernel is started."""
        argv = [*self.argv, "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name=kernel_name, language="python")


def _kill(manager: AsyncKernelManager) -> None:
    """End a kernel and all processes of its session, at once."""
    provisioner = manager.provisioner
    pid = getattr(provisioner, "pid", None)
    if not pid:
        return
    try:
        if os.name == "nt":
            os.kill(pid, signal.SIGTERM)
        else:
            os.killpg(pid, signal.SIGKILL)  # a kernel leads a session of its own
    except (ProcessLookupError, PermissionError, OSError):
        pass  # it is gone already


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


class Keys:
    """Which executed notebook was made from what: one small file beside them."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "keys.json"
        self.known: dict[str, str] = {}
        if self.file.is_file():
            self.known = json.loads(self.file.read_text(encoding="utf-8"))

    def fresh(self, page: str, key: str) -> bool:
        """Whether the page was executed from just this."""
        return self.known.get(page) == key

    def note(self, page: str, key: str) -> None:
        """Keep that the page was executed from this."""
        self.known[page] = key
        write_whole(self.file, json.dumps(self.known, indent=1))


def modules(source: Path, package: Package) -> list[str]:
    """The package's modules that a notebook needs, directly or through others."""
    cells = nbformat.read(source, as_version=4).cells
    code = "\n\n".join(c.source for c in cells if c.cell_type == "code")
    return package.needed(ast.parse(code))


def key(source: Path, variables: dict[str, str], package: Package) -> str:
    """What an executed notebook depends on, as one hash."""
    cells = nbformat.read(source, as_version=4).cells
    machine = [sys.version, platform.machine(), os.cpu_count()]
    own = {k: v for k, v in os.environ.items() if VARIABLES.match(k)} | variables
    texts = [[cell.cell_type, cell.source] for cell in cells]
    found = hashlib.sha256(json.dumps([texts, machine, sorted(own.items())]).encode())
    found.update((ROOT / "requirements.txt").read_bytes())
    for module in modules(source, package):
        found.update(package.file(module).read_bytes())
    return found.hexdigest()
