"""One notebook's grading: what was judged counts, and nothing is left behind."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from manygpu.exercises import grading, in_time, landlock, namespaces, one_notebook
from manygpu.exercises.checking import WRITTEN, Checked
from manygpu.exercises.gradebook import Book, Grade, outcome, page_name, plain
from manygpu.exercises.handed_in import HandedIn, as_handed_out, first_line
from manygpu.exercises.one_notebook import graded, unjudged

NAMES = ["pipeline/bubble", "mesh-layout/groups"]


class Dying:
    """A process that a call ends, and whose time is over when it starts anew."""

    def __init__(self, *given):
        self.gone, self.at, self.failed, self.tried = False, None, {}, {}
        self.refused = []

    def start(self):
        raise one_notebook.OverError("its whole time is over")

    def prepare(self):
        """Nothing takes time here."""

    def close(self):
        """Nothing is left."""

    def call(self, function, in_place, given):
        if function == "my_bubble":
            return (given[0] - 1) / (given[0] + given[1] - 1)
        self.gone = True
        raise one_notebook.GoneError("its process has ended")


def test_what_was_judged_in_time_counts(monkeypatch):
    """The second answer ends its process, and there is no time for a third."""
    monkeypatch.setattr(one_notebook, "Pupil", Dying)
    said = []
    names = [*NAMES, "pipeline/bubble"]
    tell = lambda **each: said.append(each)  # noqa: E731
    graded({1: "x"}, names, 3, 4, 9, "/x", {1}, tell)
    first, second, third = [
        Checked(*each["checked"]) for each in said if "checked" in each
    ]
    assert first and not second
    assert second.broken == "it runs"
    assert outcome(third) == "not judged: the notebook took more than 9 s"
    assert {"remark": "the notebook took more than 9 s"} in said


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (
            "raise ImportError('no module of limits')",
            "ImportError: no module of limits",
        ),
        ("print('half a li', end='')", "grading it has ended early"),
        ("import time; print(flush=True); time.sleep(900)", "grading it has ended"),
    ],
)
def test_what_stops_the_grading_of_one_is_its_own_remark(
    monkeypatch, tmp_path, code, why
):
    """Whatever ends the process that judges."""
    popen = subprocess.Popen
    started = []

    def start(command, **given):
        started.append(popen([sys.executable, "-c", code], **given))
        return started[0]

    monkeypatch.setattr(grading.subprocess, "Popen", start)
    one = HandedIn("one.ipynb", {1: "x = 1"})
    found = grading.grade(one, NAMES, 3, tmp_path)
    assert found.points == 0 and why in found.remarks[0]
    assert [each.broken for each in found.checked] == [one_notebook.UNJUDGED] * 2
    assert started[0].returncode is not None


def test_judging_without_an_end_is_stopped_and_what_was_told_counts(
    monkeypatch, tmp_path
):
    told = '{"checked": ["pipeline/bubble", 9, "", "", true]}'
    code = f"import time; print('''{told}''', flush=True); time.sleep(900)"
    popen = subprocess.Popen
    monkeypatch.setattr(
        grading.subprocess,
        "Popen",
        lambda c, **g: popen([sys.executable, "-c", code], **g),
    )
    monkeypatch.setattr(grading, "GRACE", 3)
    found = grading.grade(HandedIn("one", {1: ""}), NAMES, 3, tmp_path, whole=0)
    assert found.points == 1
    assert found.remarks == ("judging it took too long",)


def test_broken_off_no_process_goes_on(monkeypatch, tmp_path):
    started, answers = [], []
    popen, answer = subprocess.Popen, grading._next

    def start(command, **given):
        started.append(popen(command, **given))
        return started[-1]

    def heard(*given):
        answers.append(answer(*given))
        return answers[-1]

    monkeypatch.setattr(grading.subprocess, "Popen", start)
    monkeypatch.setattr(grading, "_next", heard)
    quick = HandedIn("quick", "no cells")
    endless = HandedIn("endless", {1: "import time\ntime.sleep(30)"})
    grades = grading.grade_all([endless, quick], NAMES, 3, tmp_path, seconds=30)
    assert next(grades).notebook == "quick"
    while not started:
        time.sleep(0.01)
    grades.close()
    assert [process.returncode for process in started] == [-signal.SIGKILL]
    assert {"done": True} not in answers  # nobody has waited for its end


def test_a_property_that_takes_too_long_is_broken():
    def slow(found):
        yield "a quick one", ""
        while found:
            pass
        yield "never", ""

    assert list(in_time.each_in_time(1, slow)(False)) == [
        ("a quick one", ""),
        ("never", ""),
    ]
    with pytest.raises(TimeoutError, match="more than 1 s"):
        list(in_time.each_in_time(1, slow)(True))


def test_a_run_that_is_broken_off_leaves_the_table_before_it(tmp_path):
    (tmp_path / "grades.csv").write_text("of the run before")
    book = Book(tmp_path, NAMES)
    for name in ("b.ipynb", "a.ipynb"):
        book.keep(Grade(name, tuple(unjudged(n, "x") for n in NAMES), 1.0))
    assert (tmp_path / "grades.csv").read_text() == "of the run before"
    rows = [*csv.DictReader(io.StringIO(book.part.read_text(encoding="utf-8")))]
    assert [row["notebook"] for row in rows] == ["b.ipynb", "a.ipynb"]
    book.close()
    rows = [*csv.DictReader(io.StringIO(book.table.read_text(encoding="utf-8")))]
    assert [row["notebook"] for row in rows] == ["a.ipynb", "b.ipynb"]
    assert not book.part.exists()


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("a.ipynb", "a.html"),
        ("Ada/mine.ipynb", "Ada/mine.html"),
        ("x" * 250 + ".ipynb", None),
        ("../up.ipynb", None),
        ("/".join("abcdefgh") + ".ipynb", None),
    ],
)
def test_a_page_is_called_like_its_notebook_if_a_file_can_be(name, page):
    found = page_name(name)
    assert found == page or (page is None and found.startswith("page "))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("=1+1", "'=1+1"),
        (" @a", " '@a"),
        ("a;=1", "a;'=1"),
        ("a\n-1", "a\n'-1"),
        ("\uff1d1", "'\uff1d1"),
        ("\t=1", " '=1"),
        ("1 - 1 = 0", "1 - 1 = 0"),
    ],
)
def test_a_spreadsheet_computes_no_text(text, shown):
    assert plain(text) == shown


def test_an_alarm_that_was_set_goes_on():
    def late(*given):
        raise ZeroDivisionError

    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 900)
        assert in_time.in_time(5, len, "four") == 4
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 800
        assert signal.getsignal(signal.SIGALRM) is late
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_in_a_thread_a_job_has_no_limit_and_no_error():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(in_time.in_time, 1, len, "four").result() == 4


def test_words_of_the_table():
    assert outcome(Checked("x", 3)) == "yes"
    assert outcome(Checked("x", 0, WRITTEN, "How?")) == "not written yet"
    assert outcome(Checked("x", 0, "it ends", "no")) == "broken: it ends"
    assert outcome(unjudged("x", "no time")) == "not judged: no time"


def test_where_processes_cannot_start_nobody_gets_zero(monkeypatch, tmp_path):
    command = [sys.executable, "-c", "raise ImportError('no limits here')"]
    monkeypatch.setattr(grading, "command_of_a_pupil", lambda home: command)
    with pytest.raises(ValueError, match="must start here, .*: ImportError: no limits"):
        grading.refuse_what_cannot_start(tmp_path)
    given = SimpleNamespace(chapter="pipeline", seconds=9, folder=tmp_path, seed=5)
    given.handout, given.output = None, tmp_path / "grades"
    (tmp_path / "one.ipynb").write_text('{"cells": []}')
    with pytest.raises(ValueError, match="nothing was graded"):
        grading.run(given)
    assert not given.output.exists()


@pytest.mark.parametrize(
    ("way", "version", "kept", "open_"),
    [
        ("bubblewrap", 0, ("changing", "the network", "leaving"), ()),
        ("user namespaces", 7, ("changing", "the network", "leaving"), ()),
        ("user namespaces", 0, ("the network", "leaving"), ("changing",)),
        ("", 7, ("changing", "the network"), ("leaving",)),
        ("", 3, ("changing",), ("the network", "leaving")),
        ("", 0, (), ("changing", "the network", "leaving")),
    ],
)
def test_it_is_said_which_walls_there_are(way, version, kept, open_):
    said = namespaces.held(way, version)
    first, _, last = said.partition("no wall of the system")
    assert all(word in first for word in kept) and all(word in last for word in open_)
    assert ("run this as a user of its own" in said) == bool(open_)


WALLED = """import os, socket
try:
    socket.create_connection(("192.0.2.1", 9), 0.2)
except TimeoutError:
    print("there is a network")
except OSError:
    print(os.getpid())
"""


@pytest.mark.parametrize("way", namespaces.WAYS)
def test_behind_a_wall_there_is_no_network_and_no_other_process(way, tmp_path):
    if sys.platform != "linux" or not namespaces.works(way):
        pytest.skip(f"{way} can't be had here")
    command = [*namespaces.words(way, str(tmp_path)), sys.executable, "-c", WALLED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert int(done.stdout) < 9, done.stderr  # the first numbers of a new space


def test_where_no_wall_can_be_had_notebooks_run_all_the_same(monkeypatch):
    def refused(*given, **more):
        raise FileNotFoundError("no such program")

    monkeypatch.setattr(namespaces.subprocess, "run", refused)
    namespaces.way.cache_clear()
    try:
        assert namespaces.walled(["x"], "/home") == ["x"]
    finally:
        namespaces.way.cache_clear()


def test_windows_is_refused_with_a_way_out(monkeypatch):
    monkeypatch.setattr(grading.sys, "platform", "win32")
    with pytest.raises(ValueError, match="got Windows: run grade in WSL2"):
        grading.run(SimpleNamespace())


def test_a_cell_is_named_by_its_first_line():
    assert first_line("\n\n  # Mine\nx = 1") == "# Mine"
    assert first_line("x" * 100) == "x" * 57 + "..."
    assert first_line("") == ""


def test_neither_blanks_nor_directives_make_a_cell_ones_own():
    cells = {1: "x = 1 \ny = 2\n", 2: "x = 1\n y = 2"}
    assert as_handed_out(cells, ["#| export\nx = 1\ny = 2"]) == {1}


def test_the_books_own_notebook_is_what_was_handed_out(tmp_path):
    assert "raise NotImplementedError" in "".join(
        grading.handed_out_cells(None, "pipeline")
    )
    with pytest.raises(ValueError, match="--handout must be a notebook"):
        grading.handed_out_cells(tmp_path / "nowhere", "pipeline")


def test_all_that_is_beside_a_closed_folder_stays_open(tmp_path):
    for name in ("a/closed/x", "a/beside", "b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "closed")
    found = {*landlock.beside([str(tmp_path / "a" / "closed")])}
    assert {str(tmp_path / "a" / "beside"), str(tmp_path / "b")} <= found
    shut = {str(tmp_path / name) for name in ("", "a", "a/closed", "link")}
    assert not found & shut


ENCLOSED = """import ctypes, os, sys
from manygpu.exercises.landlock import enclose
own, closed, outside = sys.argv[1:]
if not enclose(own, [closed]):
    sys.exit(77)
c = ctypes.CDLL(None)
results = [
    c.open(f"{own}/new".encode(), os.O_CREAT | os.O_WRONLY, 0o600) >= 0,
    c.open(f"{outside}/there".encode(), os.O_RDONLY) >= 0,
    c.open(b"/dev/null", os.O_WRONLY) >= 0,
    c.open(f"{closed}/secret".encode(), os.O_RDONLY) < 0,
    c.open(f"{outside}/there".encode(), os.O_WRONLY) < 0,
    c.unlink(f"{outside}/there".encode()) < 0,
    c.truncate(f"{outside}/there".encode(), 0) < 0,
    c.mkdir(f"{outside}/folder".encode(), 0o700) < 0,
    os.system(f"cat {closed}/secret 2>/dev/null") != 0,
]
print(results)
"""


def test_the_kernel_keeps_a_process_in_whatever_it_calls(tmp_path):
    own, closed, outside = (tmp_path / name for name in ("own", "closed", "outside"))
    for each in (own, closed, outside):
        each.mkdir()
    (closed / "secret").write_text("secret")
    (outside / "there").write_text("there")
    command = [sys.executable, "-c", ENCLOSED, str(own), str(closed), str(outside)]
    root = Path(__file__).parents[3]
    given = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=given
    )
    if done.returncode == 77:
        pytest.skip("this kernel has no Landlock")
    assert done.stdout == f"{[True] * 9}\n", done.stderr
    assert (outside / "there").read_text() == "there"
