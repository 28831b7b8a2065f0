"""`manygpu bench` and `manygpu report`: arguments, files, interrupts, exit statuses."""

from __future__ import annotations

import io
import re
import signal
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from manygpu import __main__ as command
from manygpu.bench import result as compared
from manygpu.processes.launch import STOPPING
from manygpu.trainings.table import NAMED, UnfitError, known
from tests.quick.test_result import FACTS, filled


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, with a module that holds a model; signals as before, after."""
    (tmp_path / "mine.py").write_text("def make(): ...\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("MANYGPU_DEVICES", raising=False)
    monkeypatch.setattr(command, "visible_gpus", list)
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    yield tmp_path
    for number, handler in handlers.items():
        signal.signal(number, handler)


def fill(comparison, rounds, keep, tell):
    """In place of what measures."""
    for row in comparison.running.values():
        tell(f"compares: {row.title}")
        row.facts = dict(FACTS)
        row.times += [2.0] * (rounds - len(row.times))
    keep()


@pytest.fixture
def survey(monkeypatch: pytest.MonkeyPatch) -> list:
    """What was measured, by `fill`."""
    calls: list = []

    def record(comparison, *arguments):
        calls.append(comparison)
        fill(comparison, *arguments)

    monkeypatch.setattr(command, "survey", record)
    return calls


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"mine.py", "__pycache__"}


def status(words: str) -> int:
    """The exit status of a command, also of one that can't be read."""
    try:
        return command.main(words.split())
    except SystemExit as ended:
        return ended.code


# Arguments


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--rounds 0", "--rounds: must be a whole number from 1 to 1,000,000, got '0'"),
        ("--devices two", "--devices: must be a whole number from 1 to 1,024, got"),
        ("--devices 1025", "from 1 to 1,024, got '1025'"),
        ("--devices \u0663", "got '\u0663': write it in digits 0 to 9"),
        ("--batch -4", "--batch"),
        ("--steps 1.5", "--steps: must be a whole number"),
        ("--strategy one fast", "--strategy: invalid choice: 'fast' (choose from"),
        ("--model big", "--model must be lenet, transformer or module:function"),
        ("--model :make", "module:function, got ':make'"),
        ("--model mine:", "module:function"),
        ("--model mine:a.b", "module:function"),
        ("--model .mine:make", "there is no module .mine here"),
        ("--model no.such:make", "there is no module no.such here"),
        ("--model none.py:make", "there is no module none here or on PYTHONPATH"),
        ("--json away/b.json", "--json: must be a file in a folder that exists, got"),
        ("--json .", "in a folder that exists, got .: name another"),
        ("--json /dev/null", "exists, got /dev/null: name another"),
    ],
)
def test_what_can_not_be_used_is_refused(words, message, survey, capsys, here):
    words += "" if "--json" in words else " --json a.json"
    assert status(f"bench {words}") == 2
    assert message in capsys.readouterr().err
    assert not survey and not files(here)


@pytest.mark.parametrize(
    ("said", "gpus", "devices"),
    [("", 0, 2), ("", 1, 2), ("", 4, 4), ("3", 4, 3)],
)
def test_devices_are_those_there_are(said, gpus, devices, survey, monkeypatch, capsys):
    monkeypatch.setenv("MANYGPU_DEVICES", said)
    monkeypatch.setattr(command, "visible_gpus", lambda: ["GPU"] * gpus)
    assert status("bench --strategy data") == 0
    assert status("bench --strategy data --devices 7") == 0
    monkeypatch.setenv("MANYGPU_DEVICES", "many")
    assert status("bench") == 2
    assert "MANYGPU_DEVICES must be a whole number" in capsys.readouterr().err
    assert [made.rows["data"].devices for made in survey] == [devices, 7]


def test_the_book_s_model_is_trained_in_every_way_and_yours_in_all_it_can_be():
    named = {*known(NAMED)}
    assert {"threads", "gpipe", "ring", "zero-3", "hsdp", "mesh-3d", "local"} <= named
    assert {*known()} - {*command.strategies(None)} == named
    assert command.strategies(["data", "apart"]) == ["one", "data", "apart"]
    assert command.strategies(["pipeline", "one"]) == ["one", "pipeline"]


def test_what_leaves_is_in_a_line_with_its_reason(survey, capsys):
    """As `import` names the file, and as the shell does."""
    assert status("bench --model mine.py:make") == 0
    said = [one for one in capsys.readouterr().out.splitlines() if "can't" in one]
    lenet = "can't run here: the book has it for its own LeNet"
    assert said == [
        f"data, by hand, eager; data, DTensor {lenet} only",
        f"layerwise {lenet} and chain only",
    ]
    assert command.digest("mine.py:make") == command.digest("mine:make") != ""


def test_a_package_is_found_without_running_it(survey, here):
    """It runs where it is measured, in a process of its own."""
    (here / "pkg" / "inner").mkdir(parents=True)
    for folder in ("pkg", "pkg/inner"):
        body = "import sys; sys.exit(0)"
        (here / folder / "__init__.py").write_text(body, encoding="utf-8")
    (here / "pkg" / "inner" / "m.py").write_text("", encoding="utf-8")
    assert status("bench --model pkg.inner.m:make") == 0
    assert survey[0].experiment["source"] == command.digest("pkg.inner.m:make") != ""
    assert command.digest("pkg:make") == command.digest("pkg.inner:make")
    assert status("bench --model pkg.none:make") == 2


def test_a_model_that_has_changed_is_another_one(here):
    before = command.digest("mine:make")
    assert before == command.digest("mine:other") and len(before) == 64
    (here / "mine.py").write_text("def make(): return 1\n", encoding="utf-8")
    assert command.digest("mine:make") != before
    assert command.digest("lenet") == command.digest("transformer") == ""


# What is printed and written


def test_it_prints_the_table_and_writes_what_was_asked(survey, capsys, here):
    assert status("bench --json a.json --rounds 3 --model mine:make") == 0
    printed = capsys.readouterr()
    assert "data, MirroredStrategy" in printed.out and "speedup" in printed.out
    assert printed.err == ""  # this is no terminal
    assert files(here) == {"a.json"}
    assert len(compared.read(here / "a.json").rows["data"].times) == 3


def test_a_second_start_goes_on_and_a_changed_one_is_refused(survey, capsys, here):
    words = "bench --json a.json --strategy data"
    assert status(f"{words} --rounds 1") == status(f"{words} --rounds 3") == 0
    assert len(compared.read(here / "a.json").rows["one"].times) == 3
    before = (here / "a.json").read_bytes()
    assert status(f"{words} --batch 8") == 2
    assert "batch is the model's own there and 8 here" in capsys.readouterr().err
    assert len(survey) == 2 and (here / "a.json").read_bytes() == before


def test_a_terminal_is_told_what_comes_next_in_a_line_that_is_gone(survey, monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="")
    terminal.isatty = lambda: True
    monkeypatch.setattr(command.sys, "stderr", terminal)
    assert status("bench --strategy data") == 0
    terminal.seek(0)
    told = ["compares: one device", "compares: data, by hand"]
    assert terminal.read().split("\r\x1b[K") == ["", *told, ""]


@pytest.mark.parametrize("number", [None, *STOPPING])
def test_what_was_measured_before_an_interrupt_is_shown(
    number, monkeypatch, capsys, here
):
    """Whoever is impatient must not keep it from ending its processes."""
    ended = []

    def broken_off(comparison, rounds, keep, tell):
        fill(comparison, 1, keep, tell)
        comparison.rows["one"].times.append(2.0)
        if number is None:
            raise KeyboardInterrupt
        try:
            signal.raise_signal(number)  # to this thread: it arrives before the next
        finally:
            for one in STOPPING:
                signal.raise_signal(one)
            ended.append("all")

    monkeypatch.setattr(command, "survey", broken_off)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert status("bench --json a.json") == 128 + (number or signal.SIGINT)
    printed = capsys.readouterr()
    assert "devices: 2, rounds: 1" in printed.out
    assert "the same command goes on, from a.json" in printed.err
    assert ended == ([] if number is None else ["all"])


FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("error", "ended", "message"),
    [
        (
            UnfitError("mine:make failed: \x1b[2Jno"),
            1,
            "manygpu bench: mine:make failed: \\x1b[2Jno\n",
        ),
        (FULL, 1, "manygpu bench: [Errno 28] No space left on device\n"),
        (KeyboardInterrupt(), 130, "with --json FILE a second start"),
    ],
)
def test_what_breaks_all_off_says_why_and_shows_nothing(
    error, ended, message, monkeypatch, capsys
):
    monkeypatch.setattr(command, "survey", Mock(side_effect=error))
    assert status("bench --model mine:make") == ended
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize(
    ("away", "ended"), [(["pipeline"], 0), (["one", "data", "pipeline"], 1)]
)
def test_who_can_not_run_says_why_below_the_table(away, ended, monkeypatch, capsys):
    def some(comparison, *arguments):
        fill(comparison, *arguments)
        for name in away:
            comparison.rows[name].cannot = "it has one \x1b layer"

    monkeypatch.setattr(command, "survey", some)
    assert status("bench --strategy pipeline data") == ended
    said = "pipeline can't run here: it has one \\x1b layer"
    assert said in capsys.readouterr().out


# The report


LINK = re.compile("(href|src)$")


def parts(page: str) -> list[ET.Element]:
    """All elements of a page. It is XML: what isn't closed in its place is refused."""
    return list(ET.fromstring(page).iter())


def tag(one: ET.Element) -> str:
    return one.tag.rpartition("}")[2]


@pytest.fixture
def kept(here: Path) -> Path:
    made = filled(model="<b>:make\ud800")
    made.rows["engine"].cannot = "no <room>"
    compared.keep(made, here / "a.json")
    return here / "a.json"


def test_a_report_is_one_page_that_asks_no_server(kept, capsys, here):
    assert status("report a.json -o r.html") == 0
    assert capsys.readouterr().out == "r.html\n"
    text = (here / "r.html").read_text(encoding="utf-8")
    links = [v for one in parts(text) for k, v in one.items() if LINK.search(k)]
    assert links and all(link.startswith("#") for link in links)
    assert not re.search(r"@import|url\((?!#)|<script|<link", text)
    assert {"table", "svg", "figure", "h1"} <= {tag(one) for one in parts(text)}
    assert "prefers-color-scheme: dark" in text and "color-scheme: light dark" in text


def test_a_report_says_what_the_terminal_said_and_without_times_draws_nothing(
    kept, here
):
    assert status("report a.json") == 0
    page = "".join(ET.parse(here / "a.html").getroot().itertext())
    made = compared.read(kept)
    assert "data, MirroredStrategy can't run here: no <room>" in page
    assert "<b>:make\\ud800 under several strategies" in page  # half a letter
    assert made.machine["cpu"] in page
    assert all(note in page for note in compared.notes(made))
    assert "2.00 (2.00–2.00)" in page
    for row in made.rows.values():
        row.times.clear()
    compared.keep(made, kept)
    assert status("report a.json") == 0
    text = (here / "a.html").read_text(encoding="utf-8")
    assert "svg" not in {tag(one) for one in parts(text)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("none.json", "none.json"),
        ("mine.py", "file must be one of JSON, got mine.py (Expecting value"),
        ("deep.json", "nested too deep"),
        ("a.json -o away/r.html", "exists, got away/r.html: name another"),
        (".", "file must be one of JSON, got . (no regular file): name another"),
        ("/dev/zero", "got /dev/zero (no regular file)"),
        ("a.json /dev/zero", "got /dev/zero (no regular file)"),
        ("a.json -o a.json", "--output must end with .html"),
        ("r.html", "holds what was measured: name another"),
        ("r.html -o ./r.html", "holds what was measured: name another"),
        ("link.html", "holds what was measured: name another"),
        ("r.html -o link.html", "holds what was measured: name another"),
    ],
)
def test_a_report_of_nothing_or_over_what_was_measured_is_refused(
    words, message, kept, capsys, here
):
    (here / "r.html").write_bytes(kept.read_bytes())
    (here / "link.html").symlink_to(here / "r.html")
    (here / "deep.json").write_text("[" * 10**6 + "]" * 10**6, encoding="utf-8")
    assert status(f"report {words}") == 2
    assert message in capsys.readouterr().err
    assert files(here) == {"a.json", "r.html", "link.html", "deep.json"}
    assert (here / "r.html").read_bytes() == kept.read_bytes()


def test_a_report_is_written_whole(kept, here, monkeypatch):
    assert status("report a.json") == 0
    old = (here / "a.html").read_text(encoding="utf-8")
    monkeypatch.setattr("os.replace", Mock(side_effect=FULL))
    assert status("report a.json") == 1
    assert (here / "a.html").read_text(encoding="utf-8") == old
    assert files(here) == {"a.json", "a.html"}


# Launching


def test_a_cluster_is_launched_and_its_status_is_the_command_s(here, capfd):
    (here / "own.py").write_text("import sys; sys.exit(int(sys.argv[2]))")
    own = "launch --workers 1 own.py"
    assert status(f"{own} --workers 0") == 0  # these are the script's
    assert status(f"{own} --port 7") == 7
    assert status("launch --workers 1 away.py") == 2
    said = capfd.readouterr().err
    assert "manygpu launch: worker 0 failed with exit code 7" in said
    assert "manygpu launch: script 'away.py' is no file: name one" in said
