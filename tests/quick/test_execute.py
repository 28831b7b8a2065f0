"""Executing notebooks: what is said, what is kept, what is left when it breaks off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest

from tools import execute, pages
from tools.execute import Executor, Job, Keys, key, modules
from tools.needs import Package

ROOT = execute.ROOT


def job(folder: Path, name: str, *cells: str) -> Job:
    """A notebook of these code cells, executed into a file beside it."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    source = folder / f"{name}.ipynb"
    nbformat.write(notebook, source)
    return Job(name, source, folder / "out" / source.name, folder)


def test_good_and_bad_notebooks_are_told_apart(tmp_path, capsys):
    bad = "x = 1", "def check():\n    assert x == 2, 'x must be 2'\n\ncheck()"
    given = [
        job(tmp_path, "good", "print(6 * 7)"),
        job(tmp_path, "bad", *bad),
        job(tmp_path, "dead", "import os\nos._exit(3)"),
    ]
    before = given[0].source.read_bytes()
    with Executor(2) as executor:
        results = {r.job.name: r for r in executor.run(given)}
    assert results["good"].wrong == ""
    executed = nbformat.read(given[0].target, as_version=4)
    assert executed.cells[0].outputs[0].text == "42\n"
    assert given[0].source.read_bytes() == before
    # The cell and the message come first, then the end of the trace.
    first, second, *_ = results["bad"].wrong.splitlines()
    assert first == "cell 1: AssertionError: x must be 2"
    assert second == "    | def check():"
    assert "died" in results["dead"].wrong
    said = capsys.readouterr().out
    assert all(f"{n}/3 " in said for n in (1, 2, 3))
    assert said.count("FAILED") == 2


@pytest.mark.parametrize(("more", "cut"), [(-1, False), (0, False), (1, True)])
def test_a_long_cell_that_failed_is_cut(more, cut):
    lines = [f"x = {i}" for i in range(execute.SHOWN_LINES + more)]
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell("\n".join(lines))]
    notebook.cells[0].outputs = [nbformat.v4.new_output("error")]
    failed = execute.CellExecutionError("the end", "ValueError", "wrong")
    said = execute.failure(notebook, failed).splitlines()
    assert ("    | ..." in said) == cut
    assert sum(row.startswith("    | x") for row in said) == len(lines) - cut


def test_the_environment_of_a_notebook_can_be_set(tmp_path):
    look = job(tmp_path, "look", "import os\nassert os.environ['MANYGPU_X'] == '7'")
    look.variables["MANYGPU_X"] = "7"
    with Executor() as executor:
        assert executor.run([look])[0].wrong == ""


def test_without_a_folder_it_runs_in_an_empty_one_and_leaves_nothing(tmp_path):
    clean = job(tmp_path, "clean", "import os\nassert not os.listdir()")
    litters = job(tmp_path, "litters", "open('left.txt', 'w').close()")
    with Executor() as executor:
        results = executor.run([replace(j, folder=None) for j in (clean, litters)])
    assert [r.wrong for r in results][0] == ""
    assert "left ['left.txt']" in results[1].wrong


def test_a_variable_can_be_taken_away(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYGPU_X", "7")
    look = job(tmp_path, "look", "import os\nassert 'MANYGPU_X' not in os.environ")
    look.variables["MANYGPU_X"] = None
    with Executor() as executor:
        assert executor.run([look])[0].wrong == ""


BROKEN_OFF = """
import sys
from pathlib import Path
from tests.quick.test_execute import job
from tools.execute import Executor

folder = Path(sys.argv[1])
sleep = "import subprocess, sys, time\\n"
sleep += "code = 'import time; time.sleep(120)'\\n"
sleep += "child = subprocess.Popen([sys.executable, '-c', code])\\n"
sleep += "import os; from pathlib import Path\\n"
sleep += "part = Path('pids.part'); part.write_text(f'{os.getpid()} {child.pid}')\\n"
sleep += "part.rename('pids'); time.sleep(120)"
with Executor() as executor:
    executor.run([job(folder, "sleep", sleep)])
"""


def alive(pid: int) -> bool:
    """Whether a process still runs; one that waits to be collected does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[2]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_broken_off_it_leaves_no_process(tmp_path, number):
    """Neither the kernel nor what a cell has started."""
    running = subprocess.Popen(
        [sys.executable, "-c", BROKEN_OFF, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    pids = tmp_path / "pids"
    for _ in range(600):
        if pids.exists() or running.poll() is not None:
            break
        time.sleep(0.1)
    started = [int(pid) for pid in pids.read_text(encoding="utf-8").split()]
    assert all(map(alive, started))
    running.send_signal(number)
    assert running.wait(30) != 0
    for _ in range(50):
        if not any(map(alive, started)):
            break
        time.sleep(0.1)
    assert not any(map(alive, started))


def test_the_reading_order_is_that_of_the_contents():
    order = pages.reading_order()
    assert order[0] == "book/start/devices"
    files = [p.relative_to(ROOT) for p in ROOT.glob("book/*/*.ipynb")]
    assert sorted(order) == sorted(p.with_suffix("").as_posix() for p in files)
    assert [page for part in pages.parts() for page in part] == order


# What makes a chapter run again


@pytest.fixture
def package(tmp_path) -> Package:
    """A package of two modules that chapters built, one on the other."""
    scratch = tmp_path / "manygpu" / "scratch"
    scratch.mkdir(parents=True)
    (scratch.parent / "__init__.py").write_text("", encoding="utf-8")
    lines = "from manygpu.scratch.a import fa\nfrom manygpu.scratch.b import fb\n"
    (scratch / "__init__.py").write_text(lines, encoding="utf-8")
    a = "def fa():\n    return 1\n"
    (scratch / "a.py").write_text(a, encoding="utf-8")
    b = "from manygpu.scratch.a import fa\nfb = lambda: fa()\n"
    (scratch / "b.py").write_text(b, encoding="utf-8")
    return Package(tmp_path)


@pytest.mark.parametrize(
    ("code", "changed", "again"),
    [
        ("from manygpu.scratch import fa", "a", True),
        ("from manygpu.scratch import fa", "b", False),
        ("from manygpu.scratch import fb", "a", True),
        ("from manygpu import scratch\nscratch.fb()", "a", True),
        ("from manygpu import scratch\nscratch.fa()", "b", False),
        ("import math", "a", False),
    ],
)
def test_a_chapter_runs_again_if_what_it_uses_changed(
    tmp_path, package, code, changed, again
):
    source = job(tmp_path, "chapter", code).source
    before = key(source, {}, package)
    assert key(source, {}, Package(package.root)) == before
    file = package.root / "manygpu" / "scratch" / f"{changed}.py"
    file.write_text(file.read_text(encoding="utf-8") + "# more\n", encoding="utf-8")
    assert (key(source, {}, Package(package.root)) != before) == again


def test_a_chapter_runs_again_if_it_or_its_surroundings_changed(
    tmp_path, package, monkeypatch
):
    source = job(tmp_path, "chapter", "1 + 1").source
    before = key(source, {}, package)
    assert key(source, {"MANYGPU_DEVICES": "3"}, package) != before
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    off = key(source, {}, package)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    assert key(source, {}, package) != off
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS")
    assert key(job(tmp_path, "chapter", "1 + 2").source, {}, package) != before


def test_outputs_alone_change_nothing(tmp_path, package):
    made = job(tmp_path, "chapter", "print(1)")
    before = key(made.source, {}, package)
    notebook = nbformat.read(made.source, as_version=4)
    notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text="1\n")]
    nbformat.write(notebook, made.source)
    assert key(made.source, {}, package) == before


def test_the_chapters_of_the_book_need_what_they_import():
    package = Package()
    needed = modules(ROOT / "book" / "data-parallel" / "collectives.ipynb", package)
    assert "manygpu.scratch.data_parallel.all_reduce" in needed
    assert "manygpu.scratch.splitting.pipeline" not in needed


def test_keys_are_kept_from_one_run_to_the_next(tmp_path):
    assert not Keys(tmp_path).fresh("a", "1")
    Keys(tmp_path).note("a", "1")
    assert Keys(tmp_path).fresh("a", "1")
    assert not Keys(tmp_path).fresh("a", "2")
    assert not Keys(tmp_path).fresh("b", "1")
    assert [p.name for p in tmp_path.iterdir()] == ["keys.json"]
