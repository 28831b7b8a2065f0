"""The page of solutions: what it has, and the book without it."""

from __future__ import annotations

import pytest
import yaml

from manygpu.exercises import KNOWN
from manygpu.exercises.checking import answer_name
from workshop import build
from workshop.extensions import solutions
from workshop.pages import ROOT
from workshop.tests import small_book

FILES = sorted((ROOT / "solutions").glob("*.py"))
CONFIG = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
project = "small"
extensions = ["myst_nb", "workshop.extensions.solutions"]
root_doc = "book/index"
html_theme = "basic"
nb_execution_mode = "off"
exclude_patterns = EXCLUDED
"""
PAGES = ["back/page", "back/solutions"]
BOOK = {
    "book/index.md": "# Small\n\n```{toctree}\n:glob:\nback/*\n```\n",
    "book/back/page.md": "# Page\n\nAll [the answers](solutions.md) are there.\n",
    "book/back/solutions.md": "# Solutions\n\n```{solutions}\n```\n",
}


def pages_listed(toc: str) -> set[str]:
    """The pages that a _toc.yml names."""
    parts = yaml.safe_load(toc)["parts"]
    return {each["file"] for part in parts for each in part["chapters"]}


@pytest.mark.parametrize(
    ("asked", "there"), [(None, True), ("yes", True), ("no", False)]
)
def test_a_copy_has_the_solutions_unless_told_otherwise(
    monkeypatch, tmp_path, asked, there
):
    monkeypatch.delenv("SOLUTIONS", raising=False)
    if asked:
        monkeypatch.setenv("SOLUTIONS", asked)
    build.copy_pages(tmp_path)
    all_ = pages_listed((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    listed = pages_listed((tmp_path / "_toc.yml").read_text(encoding="utf-8"))
    assert build.SOLUTIONS in all_
    assert all_ - listed == (set() if there else {build.SOLUTIONS})
    assert (tmp_path / f"{build.SOLUTIONS}.md").is_file() == there
    assert (ROOT / f"{build.SOLUTIONS}.md").is_file()


def test_what_is_no_answer_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("SOLUTIONS", "No")
    with pytest.raises(SystemExit, match="SOLUTIONS must be yes or no, got 'No'"):
        build.copy_pages(tmp_path)


@pytest.mark.parametrize("there", [True, False])
def test_links_go_with_the_page(tmp_path, there):
    excluded = "[]" if there else f"['{build.SOLUTIONS}.md']"
    conf = CONFIG.replace("EXCLUDED", excluded)
    small_book.write(tmp_path, BOOK | {"conf.py": conf})
    pages = small_book.pages(tmp_path)
    body = pages["book/back/page"].select_one("div.body")
    assert "All the answers are there." in body.get_text()
    assert len(body.select("a[href*=solutions]")) == there
    assert ("book/back/solutions" in pages) == there


def test_the_page_has_each_file_folded(tmp_path):
    small_book.write(tmp_path, BOOK | {"conf.py": CONFIG.replace("EXCLUDED", "[]")})
    page = small_book.pages(tmp_path)["book/back/solutions"]
    folds = page.select("div.cell > details.above-input:not([open])")
    assert len(folds) == len(FILES)
    shown = {fold.pre.get_text().strip() for fold in folds}
    assert shown == {file.read_text(encoding="utf-8").strip() for file in FILES}
    assert folds[0].summary.get_text().split(":")[0].strip() == "Show"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_is_a_pages_and_has_its_functions(file):
    wanted = {
        answer_name(one)
        for name, one in KNOWN.items()
        if name.startswith(f"{file.stem}/")
    }
    text = file.read_text(encoding="utf-8")
    found = {
        line.removeprefix("def ").partition("(")[0]
        for line in text.splitlines()
        if line.startswith("def my_")
    }
    assert found
    assert found <= wanted
    assert file.stem in {
        page.rpartition("/")[2] for _, own in solutions.solved() for page in own
    }
