"""nbmake as we run it: what is red, what is said, what is left when it breaks off."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest

from workshop import build, forked_kernels
from workshop.notebook_runs import SHOWN_LINES
from workshop.tests.small_book import notebook

ROOT = build.ROOT
# Each fault, and what is said of it first.
FAILING = "def f(n):\n    assert n, 'no'\n    f(n - 1)\nf(9)"
FAULTS = {
    "failing": (FAILING, "cell 1: AssertionError: no"),
    "endless": ("while True:\n    pass", "cell 1: A cell timed out"),
    "dying": ("import os\nos.write(2, b'last words')\nos._exit(3)", "cell 1: DeadKern"),
    "leaving": ("open('left.txt', 'w').close()", "it left ['left.txt']"),
    "threads": (
        "import threading\nthread = threading.Thread(target=lambda: 1 / 0)\n"
        "thread.start()\nthread.join()",
        "cell 1: a thread failed",
    ),
}
GOOD = """
import multiprocessing
import os
assert os.listdir() == ["good.ipynb"]
print(os.environ["X"], multiprocessing.parent_process() is not None)
"""


def run(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess:
    """What `pytest --nbmake` says of the notebooks in a folder of the project."""
    command = [sys.executable, "-m", "pytest", "--nbmake", "-q", *options, str(folder)]
    environment = {**os.environ, **variables}
    told = {"capture_output": True, "text": True, "env": environment, "cwd": ROOT}
    return subprocess.run(command, check=False, **told)


@pytest.fixture(scope="module")
def faults(tmp_path_factory) -> tuple[Path, str]:
    """A folder with a good notebook and each fault, and what was said of them."""
    folder = tmp_path_factory.mktemp("book")
    for name, (cell, _) in FAULTS.items():
        notebook(folder / f"{name}.ipynb", "x = 1", cell)
    # The others get far more than they need: a busy machine is none of their faults.
    endless = nbformat.read(folder / "endless.ipynb", as_version=4)
    endless.metadata.execution = {"timeout": 10}
    nbformat.write(endless, folder / "endless.ipynb")
    notebook(folder / "good.ipynb", "x = 1", GOOD)
    (folder / "strange.ipynb").write_text("no notebook", encoding="utf-8")
    plugins = ["-p", "workshop.notebook_runs", "-p", "workshop.forked_kernels"]
    options = ["-c", "pyproject.toml", "--nbmake-timeout=120", "--overwrite", "-n", "2"]
    done = run(folder, *plugins, *options, X="42")
    assert done.returncode == 1
    return folder, done.stdout


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_red_and_named_and_the_others_go_on(faults, name):
    _, said = faults
    lines = said.splitlines()
    at = next(i for i, line in enumerate(lines) if f"/{name} " in line)
    assert lines[at].endswith("FAILED")
    assert lines[at + 1].strip().startswith(FAULTS[name][1])
    assert "6 failed, 1 passed" in said


def test_what_is_no_notebook_is_red_and_a_dying_kernels_last_words_are_told(faults):
    _, said = faults
    assert re.search(r"/strange .* FAILED$", said, flags=re.M)
    assert "does not appear to be JSON" in said
    assert "last words" in said


def test_a_good_one_has_a_line_and_all_keep_their_outputs(faults):
    folder, said = faults
    assert re.search(r"/good .* s$", said, flags=re.M)
    executed = nbformat.read(folder / "good.ipynb", as_version=4)
    assert executed.cells[1].outputs[0].text == f"42 {forked_kernels.can_fork()}\n"
    failed = nbformat.read(folder / "failing.ipynb", as_version=4)
    assert failed.cells[1].outputs[0].ename == "AssertionError"


def test_the_end_of_the_trace_is_shown(faults):
    lines = faults[1].splitlines()
    at = next(i for i, x in enumerate(lines) if "/failing " in x)
    said = [x.strip() for x in lines[at + 2 : at + 3 + SHOWN_LINES]]
    assert said[0] == "the end of the trace:"
    assert said[-1] == "AssertionError: no"


def test_nothing_is_left_in_the_folder(faults):
    names = {f"{name}.ipynb" for name in [*FAULTS, "good", "strange"]}
    assert {p.name for p in faults[0].iterdir()} == names


def test_a_python_without_asserts_is_refused(tmp_path):
    notebook(tmp_path / "wrong.ipynb", "assert False")
    done = run(tmp_path, "-p", "workshop.notebook_runs", PYTHONOPTIMIZE="1")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "PYTHONOPTIMIZE" in done.stderr


def test_the_book_has_all_of_this_without_an_option():
    """`pytest --nbmake book`, as any user of nbmake types it."""
    done = run(ROOT / "book", "--collect-only")
    assert f"{len(build.reading_order())} tests collected" in done.stdout
    assert "workshop.notebook_runs" in (ROOT / "conftest.py").read_text(
        encoding="utf-8"
    )


# How make runs them


def test_each_one_that_is_right_is_told_of_as_it_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]")
    good = notebook(tmp_path / "good.ipynb", "import os\nassert os.environ['X'] == '7'")
    bad = notebook(tmp_path / "bad.ipynb", "assert False")
    ran = []
    with pytest.raises(SystemExit) as stopped:
        build.execute([bad, good], then=ran.append, X="7")
    assert stopped.value.code == 1
    assert ran == [good] and "X" not in os.environ


SLEEP = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
with open(os.environ["PIDS"] + ".part", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(os.environ["PIDS"] + ".part", os.environ["PIDS"])
time.sleep(120)
"""


def alive(pid: int) -> bool:
    """Whether a process still runs; one that waits to be collected does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("plugins", [[], ["workshop.forked_kernels"]])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_broken_off_it_leaves_no_process(tmp_path, number, plugins):
    """Neither the kernel nor what a cell has started."""
    pids = tmp_path / "pids"
    source = notebook(tmp_path / "sleep.ipynb", SLEEP)
    code = "import sys; from pathlib import Path; from workshop import build\n"
    code += f"build.execute([Path(sys.argv[1])], plugins={plugins})"
    running = subprocess.Popen(
        [sys.executable, "-c", code, str(source)],
        cwd=ROOT,
        env={**os.environ, "PIDS": str(pids)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    for _ in range(600):
        if pids.exists() or running.poll() is not None:
            break
        time.sleep(0.1)
    started = [int(pid) for pid in pids.read_text(encoding="utf-8").split()]
    assert all(map(alive, started))
    running.send_signal(number)
    assert running.wait(60) != 0
    for _ in range(50):
        if not any(map(alive, started)):
            break
        time.sleep(0.1)
    assert not any(map(alive, started))
