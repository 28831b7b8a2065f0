"""The checked claims: a row without evidence is refused, and evidence can fail."""

import ast
import csv
import io
from pathlib import Path

import nbformat
import pytest

from manygpu import sources
from manygpu.sources import Claim, Evidence, page
from tests.quick import test_source_numbers as source_numbers
from workshop import evidence

ROOT = evidence.ROOT
CHAPTER = "choosing/sources-checked"
NUMBERS = "tests/quick/test_source_numbers.py"
CELLS = evidence.code_cells(ROOT / "book" / f"{CHAPTER}.ipynb")
ROW = {
    "name": "guide-01",
    "source": "guide",
    "section": "Overview",
    "lines": "3",
    "quote": "2 <GPUs> | 2",
    "claim": "Two <GPUs> are two.",
    "verdict": "held",
    "finding": "They are.",
    "evidence": "start/devices#ae07baa9",
}


def read(*changes: dict[str, str]) -> tuple[Claim, ...]:
    """The claims of a CSV file with a row for each of these changes of ROW."""
    file = io.StringIO()
    writer = csv.DictWriter(file, Claim._fields)
    writer.writeheader()
    writer.writerows({**ROW, **change} for change in changes)
    return sources.read(file.getvalue().splitlines())


def test_claims_of_all_three_sources_stand_in_the_order_of_their_names():
    found = sources.counts(sources.claims())
    assert len(found) == 3 and all(sum(of_one.values()) for of_one in found.values())
    wanted = []
    for source, of_one in found.items():
        wanted += [f"{source}-{i + 1:02}" for i in range(sum(of_one.values()))]
    assert [claim.name for claim in sources.claims()] == wanted


def test_the_evidence_of_every_claim_is_there_and_can_fail():
    assert evidence.wrong(sources.claims()) == []


def test_a_row_is_read():
    two = {"evidence": "start/devices#ae07baa9 tests/unit/test_a.py::test_b"}
    (claim,) = read(two)
    assert claim.quote == "2 <GPUs> | 2"
    assert claim.evidence == (
        Evidence("start/devices", "ae07baa9"),
        Evidence("tests/unit/test_a.py", "test_b"),
    )
    assert [piece.is_cell for piece in claim.evidence] == [True, False]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({}, "guide-01 is there twice"),
        ({"name": "guide-02", "evidence": ""}, "guide-02 has no evidence"),
        ({"finding": "", "lines": ""}, "has no lines, no finding"),
        ({"name": ""}, "a row without a name has no name"),
        ({"name": "guide-1"}, "two digits"),
        ({"name": "slides-01"}, "must be called guide-"),
        ({"source": "a friend"}, "source must be of"),
        ({"verdict": "true"}, "verdict must be of"),
        ({"lines": "page 3"}, "lines must be like"),
        ({"quote": " "}, "guide-01 has no quote"),
        ({"quote": "word " * 21}, "quote 20 words at most, got 21"),
        ({"finding": "they are."}, "must be a sentence"),
        ({"finding": "They are"}, "must be a sentence"),
        ({"evidence": "believe me"}, "got 'believe'"),
        ({"evidence": "start/devices#xyz"}, "evidence must be"),
        ({"evidence": "start/devices#ae07baa9,"}, "evidence must be"),
        ({"evidence": "tests/unit/test_a.py"}, "evidence must be"),
        ({"evidence": "tests/unit/test_a.py::helper"}, "evidence must be"),
    ],
)
def test_a_bad_row_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        read({}, changes)


def test_other_columns_are_refused():
    with pytest.raises(ValueError, match="columns must be"):
        sources.read(["claim,verdict", "a,held"])


# Whether evidence is there, and can fail.


@pytest.mark.parametrize(
    "code, said",
    [
        ("assert x == 1", True),
        ("for x in y:\n    with z:\n        assert x", True),
        ("try:\n    assert x\nexcept ValueError:\n    pass", True),
        ("print('assert x')  # assert x", False),
        ("assert True", False),
        ("assert 'words'", False),
        ("if x:\n    assert y", False),
        ("def f():\n    assert y", False),
        ("try:\n    f()\nexcept ValueError:\n    assert x", False),
        ("assert x or y", True),
        ("assert x == x == y", True),
        ("for i in [1]:\n    assert x", True),
    ],
)
def test_an_assert_counts_only_where_it_is_reached(code, said):
    assert evidence.proves(code) == said


@pytest.fixture
def book(tmp_path) -> Path:
    """A book of one chapter, with a test beside it."""
    v4 = nbformat.v4
    (tmp_path / "book" / "part").mkdir(parents=True)
    toc = "root: book/index\nparts:\n- chapters:\n  - file: book/part/chapter\n"
    (tmp_path / "_toc.yml").write_text(toc, encoding="utf-8")
    cells = [
        v4.new_code_cell("assert 1 + 1 == 2", id="00000001"),
        v4.new_code_cell("print(1 + 1)", id="00000002"),
        v4.new_markdown_cell("assert 1 + 1 == 2", id="00000004"),
    ]
    for name in ("chapter", "draft"):
        path = tmp_path / "book" / "part" / f"{name}.ipynb"
        nbformat.write(v4.new_notebook(cells=cells), path)
    (tmp_path / "tests").mkdir()
    tests = (
        "import pytest\n\ndef test_a(): ...\n\n@pytest.mark.skip\ndef test_b(): ...\n"
        "def test_d():\n    return\n    assert False\n"
    )
    (tmp_path / "tests" / "test_it.py").write_text(tests, encoding="utf-8")
    marked = f"{tests}\npytestmark = pytest.mark.skipif(True, reason='no')\n"
    (tmp_path / "tests" / "test_off.py").write_text(marked, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "file, place, said",
    [
        ("part/chapter", "00000001", ""),
        ("part/chapter", "00000002", "no assert"),
        ("part/chapter", "00000004", "no code cell"),
        ("part/chapter", "00000005", "no code cell"),
        ("part/draft", "00000001", "no chapter"),
        ("part/gone", "00000001", "no chapter"),
        ("tests/test_it.py", "test_a", ""),
        ("tests/test_it.py", "test_b", "marked ['skip']"),
        ("tests/test_it.py", "test_d", "returns before its end"),
        ("tests/test_it.py", "test_c", "no test of that file"),
        ("tests/test_off.py", "test_a", "marked ['skipif']"),
        ("tests/test_gone.py", "test_a", "no file of tests"),
    ],
)
def test_evidence_that_is_not_there_or_does_not_run_is_told(book, file, place, said):
    found = evidence.missing(Evidence(file, place), book)
    assert said in found and bool(said) == bool(found)


def test_a_claim_with_bad_evidence_is_named(book):
    (sentence,) = evidence.wrong(read({"evidence": "part/chapter#00000002"}), book)
    assert sentence.startswith("guide-01: part/chapter, 00000002, has no assert")


# The chapter's own evidence: it runs here, too, and one wrong number turns it red.


def numbers(tree: ast.Module) -> list[ast.Constant]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [node for node in found if type(node.value) in (int, float)]


def turns_red(source: str, names: dict) -> bool:
    """Whether some wrong number in a cell makes it fail by an assert."""
    for which, _ in enumerate(numbers(ast.parse(source))):
        tree = ast.parse(source)
        wrong = numbers(tree)[which]
        wrong.value = wrong.value * 1.5 + 0.01
        try:
            exec(compile(tree, "cell", "exec"), dict(names))
        except AssertionError:
            return True
        except (ValueError, TypeError, KeyError, StopIteration):
            pass  # the number is an index or a format: try the next one
    return False


def test_the_chapters_own_evidence_holds_and_fails_with_a_wrong_number(monkeypatch):
    for room in ("IPython.display", "manygpu.figures"):
        monkeypatch.setattr(f"{room}.display", lambda *_, **__: None)
    cited = {e.place for c in sources.claims() for e in c.evidence if e.file == CHAPTER}
    names: dict = {"__name__": "cells"}
    stuck = []
    for place, source in CELLS.items():
        if place in cited and not turns_red(source, names):
            stuck.append(place)
        exec(source, names)
    assert len(cited) > 10
    assert stuck == []


def test_the_arithmetic_beside_the_chapter_fails_with_a_wrong_number():
    cited = {e.place for c in sources.claims() for e in c.evidence if e.file == NUMBERS}
    body = ast.parse((ROOT / NUMBERS).read_text(encoding="utf-8")).body
    tests = [node for node in body if getattr(node, "name", "").startswith("test_")]
    assert {test.name for test in tests} == cited  # each shows a claim
    constants = [ast.unparse(node) for node in body if isinstance(node, ast.Assign)]
    stuck = []
    for test in tests:
        called = "\n".join([*constants, ast.unparse(test), f"{test.name}()"])
        if not turns_red(called, vars(source_numbers)):
            stuck.append(test.name)
    assert stuck == []


def test_the_table_has_a_row_with_links_for_each_claim():
    shown = page.to_html(sources.claims(), "All.", "all").replace("<wbr>", "")
    for claim in sources.claims():
        assert f'<tr id="{claim.name}" class="{claim.verdict}">' in shown
        for piece in claim.evidence:
            place = f"../{piece.file}.html#cell-{piece.place}"
            assert (place if piece.is_cell else f"<code>{piece.place}") in shown


def test_no_two_links_of_a_row_read_alike():
    two = "start/devices#ae07baa9 start/devices#9678976c tests/unit/test_a.py::test_b"
    shown = page.to_html(read({"evidence": two}), "A.", "a")
    assert '#cell-ae07baa9">devices (1)</a>, ' in shown
    assert '#cell-9678976c">devices (2)</a>, <code>test_b</code>' in shown


@pytest.mark.parametrize(
    ("lines", "said"), [("3", "line 3"), ("3-4", "lines 3-4"), ("3, 9", "lines 3, 9")]
)
def test_what_a_claim_says_is_escaped_and_a_terminal_gets_text(lines, said):
    claims = read({"lines": lines})
    shown = page.to_html(claims, "One.", "one")
    assert "Two &lt;GPUs&gt; are two." in shown
    assert f"“2 &lt;GPUs&gt; | 2” (Overview, {said})<" in shown
    assert "<GPUs>" not in shown
    assert '">devices</a>' in shown  # one link has no number
    assert page.to_text(claims) == (
        f"guide-01 (Overview, {said}): Two <GPUs> are two.\n"
        "  “2 <GPUs> | 2”\n"
        "  held: They are. (start/devices#ae07baa9)"
    )


def test_the_filter_offers_the_verdicts_that_there_are():
    verdicts = {"guide-01": "held", "guide-02": "held", "guide-03": "outdated"}
    rows = [{"name": name, "verdict": verdict} for name, verdict in verdicts.items()]
    shown = page.to_html(read(*rows), "Three.", "three")
    for offered in ("all (3)", "held (2)", "outdated (1)"):
        assert offered in shown
    assert "corrected (" not in shown
