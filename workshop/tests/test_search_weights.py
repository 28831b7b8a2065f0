"""What the index of a small book holds for search-results.js."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from workshop import notebooks
from workshop.extensions.search_weights import spelled
from workshop.pages import ROOT
from workshop.tests import small_book

CONFIG = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
project = "small"
ours = ["chapters", "code_cells", "search_weights"]
extensions = ["myst_nb", *(f"workshop.extensions.{{name}}" for name in ours)]
html_theme = "basic"
nb_execution_mode = "off"
search_words = {{"ring": ["Early  stopping", "nn.DataParallel"]}}
"""
FILES = {
    "conf.py": CONFIG,
    "index.md": "# Small\n\nbucket\n\n```{toctree}\nring\nnames\n```\n",
    "names.md": "---\nnosearch: true\n---\n# Names & <parts>\n\nzebra\n",
}


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> dict:
    """The index: a page with a cell that fetches the package, one of names alone."""
    root = tmp_path_factory.mktemp("small")
    small_book.write(root, FILES)
    made = nbformat.v4.new_notebook(metadata={"language_info": {"name": "python"}})
    hidden = {"tags": ["hide-input"]}
    made.cells = [
        nbformat.v4.new_markdown_cell("# Ring\n\nA bucket travels."),
        nbformat.v4.new_code_cell(notebooks.FIRST_CELL, metadata=hidden),
        nbformat.v4.new_code_cell("giraffe = 1"),
    ]
    nbformat.write(made, root / "ring.ipynb")
    small_book.pages(root)
    return read(root)


def read(root: Path) -> dict:
    text = (root / "html" / "searchindex.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))


def pages_with(index: dict, word: str) -> set[str]:
    return {index["docnames"][k] for k in index["terms"].get(word, [])[::2]}


def test_each_page_has_a_title_also_one_that_is_left_out(index):
    titles = dict(zip(index["docnames"], index["titles"], strict=True))
    assert titles == {
        "index": "Small",
        "names": "Names &amp; &lt;parts&gt;",
        "ring": "Ring",
    }


def test_a_page_that_is_left_out_has_no_words(index):
    assert pages_with(index, "bucket") == {"index", "ring"}
    assert pages_with(index, "zebra") == pages_with(index, "name") == set()


def test_the_cell_that_fetches_the_package_counts_nowhere(index):
    assert "Colab" in notebooks.FIRST_CELL
    assert pages_with(index, "giraff") == {"ring"}  # other code does
    assert pages_with(index, "colab") == set()


def test_what_readers_type_is_there_as_the_search_compares_it(index):
    assert index["asked"] == {"ring": ["early stopping", "nn dataparallel"]}
    assert pages_with(index, "earli") == pages_with(index, "dataparallel") == {"ring"}


def test_words_are_spelled_in_small_letters_with_one_space_between():
    assert spelled(" nn.DataParallel,  steps_per_epoch ") == (
        "nn dataparallel steps_per_epoch"
    )
