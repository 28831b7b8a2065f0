"""AGENTS.md: hints for each chapter's exercises, and nothing of a solution."""

import ast
import re

import pytest
import yaml

from manygpu.exercises import KNOWN
from workshop.pages import ROOT

TEXT = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
PLAIN = " ".join(TEXT.split())
NAMED = dict(re.findall(r"^- `([\w-]+)`: (.+)$", TEXT, flags=re.M))
LEAST = 12  # letters of a piece of code that says something


def chapters() -> list[str]:
    """The pages that have exercises, in the book's order."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    pages = [c["file"].rpartition("/")[2] for p in toc["parts"] for c in p["chapters"]]
    return [page for page in pages if any(n.startswith(f"{page}/") for n in KNOWN)]


def pieces(code: str) -> set[str]:
    """The expressions of a solution that are long enough to say something."""
    found = [n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.expr)]
    texts = {ast.unparse(n) for n in found if not isinstance(n, ast.Constant)}
    return {text for text in texts if len(text) >= LEAST}


def test_each_chapter_is_there_in_order_with_a_question():
    more, fewer = set(chapters()) - set(NAMED), set(NAMED) - set(chapters())
    said = "AGENTS.md must have a line for each page with checked exercises, and for no"
    assert not more | fewer, f"{said} other page: add {more}, take out {fewer}"
    assert list(NAMED) == chapters(), f"{said} other page, in the order of _toc.yml"
    assert [name for name, said in NAMED.items() if "Ask: " not in said] == []
    assert [name for name, said in NAMED.items() if not said.endswith("?")] == []


@pytest.mark.parametrize(
    "file", sorted((ROOT / "solutions").glob("*.py")), ids=lambda file: file.stem
)
def test_nothing_of_a_solution_is_told(file):
    code = pieces(file.read_text(encoding="utf-8"))
    assert code
    assert [piece for piece in code if piece in PLAIN] == []


def test_it_has_no_code():
    assert "```" not in TEXT
    assert re.findall(r"\b(def|return|lambda|np\.)\b", TEXT) == []


def test_it_says_what_to_leave_alone():
    for place in ("solutions/", "tests/", "manygpu/prove/planted.csv"):
        assert f"`{place}`" in TEXT
        assert (ROOT / place).exists()
