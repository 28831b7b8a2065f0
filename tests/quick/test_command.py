"""`manygpu bench` and `manygpu report`: arguments, files, interrupts, exit statuses."""

from __future__ import annotations

import io
import json
import os
import re
import signal
from html.parser import HTMLParser
from pathlib import Path

import pytest

from manygpu import __main__ as command
from manygpu import comparison as compared
from manygpu.comparison import WAYS
from tests.quick.test_comparison import FACTS, filled


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, with a module that holds a model."""
    (tmp_path / "mine.py").write_text("def make(): ...\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MANYGPU_DEVICES", raising=False)
    monkeypatch.setattr(command, "visible_gpus", list)
    return tmp_path


@pytest.fixture
def survey(monkeypatch: pytest.MonkeyPatch) -> list:
    """In place of what measures: fills each row; what it was given is in the list."""
    calls: list = []

    def fill(comparison, given, progress):
        calls.append(comparison)
        for row in comparison.running.values():
            row.facts = dict(FACTS)
            progress.tell("compares", 1, 2)
            row.times += [2.0] * (given.rounds - len(row.times))
        if given.json:
            command.keep_for_choosing(comparison, given.json)
        return ""

    monkeypatch.setattr(command, "_survey", fill)
    return calls


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"mine.py"}


# Arguments


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--rounds 0", "--rounds: must be a whole number of at least 1, got '0'"),
        ("--devices two", "--devices: must be a whole number"),
        ("--batch -4", "--batch"),
        ("--steps 1.5", "--steps: must be a whole number"),
        ("--strategy", "--strategy: expected at least one argument"),
        ("--speed 3", "unrecognized arguments"),
    ],
)
def test_what_can_not_be_read_is_refused(words, message, survey, capsys, here):
    with pytest.raises(SystemExit) as ended:
        command.main(["bench", *words.split(), "--json", "a.json"])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert not survey and not files(here)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--strategy one fast", "no such strategy: fast; choose from one, acc"),
        ("--model big", "--model must be lenet, transformer or module:function"),
        ("--model :make", "module:function, got ':make'"),
        ("--model mine:", "module:function"),
        ("--model mine:a.b", "module:function"),
        ("--model yours:make", "there is no module yours here"),
        ("--model no.such:make", "there is no module no.such here"),
        (
            "--model mine.py:make",
            "--model takes a module, mine, and no file: mine:make",
        ),
        ("--plot a.txt", "--plot must end with one of .svg, .png, .pdf"),
        ("--plot away/a.svg", "--plot: away/a.svg is no file in a folder that exists"),
        ("--json away/b.json", "--json: away/b.json is no file"),
        ("--json .", "--json: . is no file"),
    ],
)
def test_what_can_not_be_used_is_refused(words, message, survey, capsys, here):
    asked = [*words.split()]
    asked += [] if "--json" in words else ["--json", "a.json"]
    assert command.main(["bench", *asked]) == 2
    assert message in capsys.readouterr().err
    assert not survey and not files(here)


@pytest.mark.parametrize(
    ("said", "gpus", "devices"),
    [(None, 0, 2), (None, 1, 2), (None, 4, 4), ("3", 4, 3)],
)
def test_devices_are_those_there_are(said, gpus, devices, survey, monkeypatch):
    if said:
        monkeypatch.setenv("MANYGPU_DEVICES", said)
    monkeypatch.setattr(command, "visible_gpus", lambda: ["GPU"] * gpus)
    assert command.main(["bench", "--strategy", "data"]) == 0
    assert survey[0].rows["data"].devices == devices
    assert command.main(["bench", "--strategy", "data", "--devices", "7"]) == 0
    assert survey[1].rows["data"].devices == 7


def test_a_count_of_devices_that_is_none_is_refused(survey, monkeypatch, capsys):
    monkeypatch.setenv("MANYGPU_DEVICES", "many")
    assert command.main(["bench"]) == 2
    assert "MANYGPU_DEVICES must be a whole number" in capsys.readouterr().err


def test_the_book_s_model_is_trained_in_every_way_and_yours_in_all_it_can_be():
    lenet = command.strategies(None, "lenet")
    assert set(WAYS) - set(lenet) == {"apart", "threads"}
    assert "layerwise" not in command.strategies(None, "mine:make")
    assert command.strategies(["data", "apart"], "lenet") == ["one", "data", "apart"]
    assert command.strategies(["pipeline", "one"], "x:y") == ["one", "pipeline"]


@pytest.mark.parametrize("body", ["import sys; sys.exit(0)", "raise RuntimeError"])
def test_a_package_is_found_without_running_it(body, survey, here):
    """It runs where it is measured, in a process of its own."""
    (here / "pkg" / "inner").mkdir(parents=True)
    for folder in ("pkg", "pkg/inner"):
        (here / folder / "__init__.py").write_text(body, encoding="utf-8")
    (here / "pkg" / "inner" / "m.py").write_text("", encoding="utf-8")
    assert command.main(["bench", "--model", "pkg.inner.m:make"]) == 0
    assert survey[0].experiment["source"] == command.digest("pkg.inner.m:make") != ""
    assert command.digest("pkg:make")  # what is in its __init__
    assert command.main(["bench", "--model", "pkg.none:make"]) == 2


def test_a_model_that_has_changed_is_another_one(here):
    before = command.digest("mine:make")
    assert before == command.digest("mine:other") and len(before) == 64
    (here / "mine.py").write_text("def make(): return 1\n", encoding="utf-8")
    assert command.digest("mine:make") != before
    assert command.digest("lenet") == command.digest("transformer") == ""


# What is printed and written


def test_it_prints_the_table_and_writes_what_was_asked(survey, capsys, here):
    words = [
        "--json",
        "a.json",
        "--plot",
        "a.svg",
        "--rounds",
        "3",
        "--model",
        "mine:make",
    ]
    assert command.main(["bench", *words]) == 0
    printed = capsys.readouterr()
    assert "data, MirroredStrategy" in printed.out and "speedup" in printed.out
    assert printed.err == ""  # no bar: this is no terminal
    assert files(here) == {"a.json", "a.svg"}
    assert len(compared.read(here / "a.json").rows["data"].times) == 3
    assert "data, by hand" in (here / "a.svg").read_text(encoding="utf-8")


def test_a_second_start_goes_on_and_a_changed_one_is_refused(survey, capsys, here):
    words = ["bench", "--json", "a.json", "--strategy", "data"]
    assert command.main([*words, "--rounds", "1"]) == 0
    assert command.main([*words, "--rounds", "3"]) == 0
    assert len(compared.read(here / "a.json").rows["one"].times) == 3
    before = (here / "a.json").read_bytes()
    assert command.main([*words, "--batch", "8"]) == 2
    assert "batch is 0 there and 8 here" in capsys.readouterr().err
    assert len(survey) == 2 and (here / "a.json").read_bytes() == before


def test_a_file_that_is_no_comparison_is_refused_and_kept(survey, capsys, here):
    (here / "a.json").write_text("{", encoding="utf-8")
    assert command.main(["bench", "--json", "a.json"]) == 2
    assert "'a' is not JSON" in capsys.readouterr().err
    assert (here / "a.json").read_text(encoding="utf-8") == "{"


@pytest.mark.parametrize(
    ("stop", "status"),
    [(KeyboardInterrupt, 130), (lambda: command.Stopped(signal.SIGTERM), 143)],
)
def test_what_was_measured_before_an_interrupt_is_shown(
    stop, status, monkeypatch, capsys, here
):
    def broken_off(comparison, given, progress):
        for row in comparison.running.values():
            row.facts, row.times = dict(FACTS), [2.0]
        comparison.rows["one"].times.append(2.0)
        if given.json:
            compared.keep(comparison, given.json)
        raise stop()

    monkeypatch.setattr(command, "_survey", broken_off)
    assert command.main(["bench", "--json", "a.json"]) == status
    printed = capsys.readouterr()
    assert "2 devices, 1 round of 2 steps." in printed.out
    assert "a.json has what was measured; start again to go on" in printed.err
    assert command.main(["bench"]) == status
    assert "with --json FILE a second start would go on" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="no such signals there")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_several_signals_are_as_one(number, monkeypatch, capsys, here):
    """Someone who is impatient must not keep it from ending its processes."""
    ends = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    before, cleared = {one: signal.getsignal(one) for one in ends}, []
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def broken_off(*_):
        try:
            os.kill(os.getpid(), number)
        finally:
            for one in ends:
                os.kill(os.getpid(), one)
            cleared.append("all")

    def impatient(*_):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(command, "_survey", broken_off)
    monkeypatch.setattr(command, "_show", impatient)
    try:
        assert command.main(["bench"]) == 128 + number
        os.kill(os.getpid(), signal.SIGINT)  # up to the end of the process
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert cleared == ["all"]


def test_without_a_signal_the_handlers_are_as_before(monkeypatch, capsys, here):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(command, "_survey", lambda *_: "it failed")
    assert command.main(["bench"]) == 1
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_an_interrupt_before_anything_is_known_shows_nothing(monkeypatch, capsys, here):
    def at_once(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_survey", at_once)
    assert command.main(["bench", "--json", "a.json", "--plot", "a.svg"]) == 130
    assert capsys.readouterr().out == ""
    assert not files(here)


def test_a_model_that_can_not_be_had_is_a_failure_that_says_why(
    monkeypatch, capsys, here
):
    monkeypatch.setattr(command, "_survey", lambda *_: "mine:make failed: no data")
    assert command.main(["bench", "--model", "mine:make"]) == 1
    printed = capsys.readouterr()
    assert printed.err == "manygpu bench: mine:make failed: no data\n"
    assert printed.out == ""


def test_a_strategy_that_can_not_run_says_why_below_the_table(monkeypatch, capsys):
    def fill(comparison, given, progress):
        for row in comparison.rows.values():
            row.facts, row.times = dict(FACTS), [2.0]
        comparison.rows["pipeline"].cannot = "it has one layer"
        return ""

    monkeypatch.setattr(command, "_survey", fill)
    assert command.main(["bench", "--strategy", "pipeline", "data"]) == 0
    printed = capsys.readouterr().out
    assert "pipeline can't run here: it has one layer" in printed


def test_a_file_that_can_not_be_written_any_more_is_a_failure(monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "_survey", full)
    assert command.main(["bench"]) == 1
    assert "No space left on device" in capsys.readouterr().err


def test_where_nothing_can_run_that_is_a_failure(monkeypatch, capsys):
    def none(comparison, given, progress):
        for row in comparison.rows.values():
            row.cannot = "it doesn't fit"
        return ""

    monkeypatch.setattr(command, "_survey", none)
    assert command.main(["bench", "--strategy", "data"]) == 1
    assert "one device can't run here: it doesn't fit" in capsys.readouterr().out


# The bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_that_is_gone_in_the_end():
    terminal = Terminal()
    with command.Progress(terminal) as progress:
        progress.tell("looks", 0, 0)
        progress.tell("round 1: data", 6, 12)
    first, second, last = terminal.getvalue().split("\r\x1b[K")[1:]
    assert "looks" in first
    assert second.startswith("#" * 12 + "." * 12) and "6/12" in second
    assert "round 1: data" in second and last == ""


def test_what_is_no_terminal_gets_none():
    stream = io.StringIO()
    with command.Progress(stream) as progress:
        progress.tell("looks", 0, 0)
    assert stream.getvalue() == ""


# The report


class Page(HTMLParser):
    """Tags that open and close, the addresses they name, and the text."""

    EMPTY = {"meta", "br", "path", "use", "rect", "line"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.links += [v for k, v in attributes if k in ("href", "src", "xlink:href")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)
        self.links += [v for k, v in attributes if k in ("href", "src", "xlink:href")]

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def kept(here: Path) -> Path:
    made = filled(model="<b>:make")
    made.rows["engine"].cannot = "no <room>"
    compared.keep(made, here / "a.json")
    return here / "a.json"


def test_a_report_is_one_page_that_asks_no_server(kept, capsys, here):
    assert command.main(["report", "a.json", "-o", "r.html"]) == 0
    assert capsys.readouterr().out == "r.html\n"
    text = (here / "r.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert all(link.startswith("#") for link in page.links)
    assert not re.search(r"@import|url\((?!#)|<script|<link", text)
    assert {"table", "svg", "figure", "h1", "dl"} <= set(page.seen)
    assert "prefers-color-scheme: dark" in text and "color-scheme: light dark" in text


def test_a_report_says_what_the_terminal_said(kept, here):
    assert command.main(["report", "a.json"]) == 0
    page = Page((here / "a.html").read_text(encoding="utf-8"))
    made = compared.read(kept)
    assert "data, MirroredStrategy: no <room>" in page.text
    assert "<b>:make under several strategies" in page.text
    assert made.machine["cpu"] in page.text
    for note in compared.notes(made):
        assert note in page.text
    assert "2.00 (2.00–2.00)" in page.text


def test_a_report_of_rows_without_times_has_no_figure(here):
    made = filled()
    for row in made.rows.values():
        row.times.clear()
    compared.keep(made, here / "a.json")
    assert command.main(["report", "a.json"]) == 0
    assert "svg" not in Page((here / "a.html").read_text(encoding="utf-8")).seen


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("none.json", "none.json"),
        ("mine.py", "is not JSON"),
        ("a.json -o away/r.html", "--output: away/r.html is no file"),
        ("a.json -o r.txt", "--output must end with one of .html"),
    ],
)
def test_a_report_of_nothing_is_refused(words, message, kept, capsys, here):
    assert command.main(["report", *words.split()]) == 2
    assert message in capsys.readouterr().err
    assert files(here) == {"a.json"}


def test_a_report_never_takes_the_place_of_what_was_measured(kept, capsys, here):
    kept.rename(here / "r.html")
    before = (here / "r.html").read_bytes()
    (here / "link.html").symlink_to(here / "r.html")
    for words in (["r.html"], ["r.html", "-o", "./r.html"], ["link.html"]):
        assert command.main(["report", *words]) == 2
        assert "holds what was measured: name another" in capsys.readouterr().err
    assert (here / "r.html").read_bytes() == before


def test_a_report_can_hold_any_text_and_is_written_whole(here, capsys, monkeypatch):
    made = filled(model="mine\ud800:make")
    compared.keep(made, here / "a.json")
    assert command.main(["report", "a.json"]) == 0
    old = (here / "a.html").read_text(encoding="utf-8")
    assert "mine\\ud800:make" in old

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    assert command.main(["report", "a.json"]) == 1
    assert (here / "a.html").read_text(encoding="utf-8") == old
    assert files(here) == {"a.json", "a.html"}


@pytest.mark.parametrize(
    "about", [{"parameters": "x"}, {"samples": [4]}, {"samples": "4"}, {"bytes": None}]
)
def test_a_report_of_what_nobody_counted_is_refused(about, capsys, here):
    made = filled(strategies=["one", "fit"])
    compared.keep(made, here / "a.json")
    text = (here / "a.json").read_text(encoding="utf-8")
    spoiled = text.replace('"about": {}', f'"about": {json.dumps(about)}')
    assert spoiled != text
    (here / "a.json").write_text(spoiled, encoding="utf-8")
    assert command.main(["report", "a.json"]) == 2
    assert f"about.{next(iter(about))} must be" in capsys.readouterr().err


def test_a_file_nested_too_deep_is_refused(here, capsys):
    (here / "a.json").write_text("[" * 10**6 + "]" * 10**6, encoding="utf-8")
    assert command.main(["report", "a.json"]) == 2
    assert "nested too deep" in capsys.readouterr().err


def test_what_a_model_s_error_says_is_printed_as_text(monkeypatch, capsys):
    monkeypatch.setattr(command, "_survey", lambda *_: "failed: \x1b[2Jno")
    assert command.main(["bench", "--model", "mine:make"]) == 1
    assert "failed: \\x1b[2Jno" in capsys.readouterr().err


def test_the_commands_need_no_tensorflow_to_be_read():
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    assert ended.value.code == 0


# Launching


def test_a_cluster_is_launched_and_its_status_is_the_command_s(here, capfd):
    (here / "own.py").write_text("import sys; sys.exit(int(sys.argv[2]))")
    words = ["launch", "--workers", "1", "own.py"]
    handlers = {number: signal.getsignal(number) for number in command.STOPPING}
    try:
        assert command.main([*words, "--workers", "0"]) == 0  # these are the script's
        assert command.main([*words, "--port", "7"]) == 7
        assert command.main(["launch", "--workers", "1", "away.py"]) == 2
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    said = capfd.readouterr().err
    assert "manygpu launch: worker 0 failed with exit code 7" in said
    assert "manygpu launch: script 'away.py' is no file: name one" in said
