"""`make chapter`, `make unit` and `make serve`: what they refuse, run and say."""

from __future__ import annotations

import pytest

from tools import build

PAGE = "book/data-parallel/gradient-accumulation"


def test_a_chapter_that_breaks_a_rule_is_refused_before_anything_is_written(
    monkeypatch,
):
    written = []
    monkeypatch.setattr(build.notebooks, "told", lambda path: [f"{path.stem}: wrong"])
    monkeypatch.setattr(build.notebooks, "export", lambda: written.append("export"))
    with pytest.raises(SystemExit, match="gradient-accumulation: wrong"):
        build.chapter("gradient-accumulation")
    assert written == []


def test_a_chapter_outside_the_contents_is_found_and_told_so(monkeypatch, capsys):
    """Its notebook is there: a list of all other names would help nobody."""
    contents = [page for page in build.reading_order() if page != PAGE]
    monkeypatch.setattr(build.notebooks, "reading_order", lambda root: contents)
    monkeypatch.setattr(build, "reading_order", lambda: contents)
    with pytest.raises(SystemExit, match=f"not in _toc.yml: .* `- file: {PAGE}`"):
        build.chapter("gradient-accumulation")


@pytest.mark.parametrize("names", [(), ("nonsense",), ("pipeline", "network")])
def test_what_is_no_chapter_is_told_which_there_are(names):
    with pytest.raises(SystemExit, match="NAME is one of devices, one-device, "):
        build.page_of(*names)


def test_the_tests_of_what_uses_a_chapter_are_found():
    found = {path.relative_to(build.ROOT).as_posix() for path in build.dependents(PAGE)}
    assert {
        "tests/unit/scratch/data_parallel/test_gradient_accumulation.py",
        "tests/unit/bench/test_strategies.py",  # it makes a strategy of it
    } <= found
    assert "tests/unit/scratch/start/test_one_device.py" not in found


def test_tests_run_without_tensorflows_greetings(monkeypatch):
    asked = []
    monkeypatch.setattr(build, "pytest_on", lambda *_, **given: asked.append(given))
    monkeypatch.setattr(build, "run_chapter", lambda page: None)
    build.test_and_run(PAGE, ["test.py"])
    assert asked == [{"TF_CPP_MIN_LOG_LEVEL": "3"}]


@pytest.mark.parametrize("left", [[], ["_static/book.css"], ["book/index.html"]])
def test_a_build_that_was_broken_off_is_not_served(monkeypatch, tmp_path, left):
    monkeypatch.setattr(build, "BUILD", tmp_path)
    for name in left:
        (tmp_path / "html" / name).parent.mkdir(parents=True)
        (tmp_path / "html" / name).touch()
    monkeypatch.setattr(build.http.server, "ThreadingHTTPServer", None)
    with pytest.raises(SystemExit, match="no rendered book yet: run `make book` first"):
        build.serve()
