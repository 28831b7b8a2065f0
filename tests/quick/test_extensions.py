"""The book's Sphinx extensions: formulas as MathML, exports as a quiet note.

A small book of one notebook is rendered with them, as Jupyter Book does it: MyST-NB
reads the notebook, nothing is executed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
CONFIG = f"""
import sys
sys.path.insert(0, {str(ROOT / "extensions")!r})
project = "small"
extensions = ["myst_nb", "mathml", "exported"]
html_math_renderer = "mathml"
html_theme = "basic"
nb_execution_mode = "off"
myst_enable_extensions = ["dollarmath"]
exclude_patterns = []
"""
MODULE = "made_up"
EXPORTED = """#| export
def one() -> int:
    return 1
#| export
# The line above stands within the code, so it stays."""


def page_with(module: str | None, root: Path) -> None:
    v4 = nbformat.v4
    code = v4.new_code_cell
    cells = [v4.new_markdown_cell("# Title\n\nHalf is $\\frac{1}{2}$.")]
    if module:
        directive = f"#| default_exp {module}"
        cells.append(code(directive, metadata={"tags": ["remove-cell"]}))
    cells += [
        code(EXPORTED),
        code("two = 1 + one()\n#| export is a comment here"),
        code("#|export\n#| export\nthree = 3"),
        v4.new_markdown_cell("$$\nx_i^2 \\le 4\n$$"),
    ]
    name = "exports" if module else "keeps"
    language = {"language_info": {"name": "python"}}
    notebook = v4.new_notebook(cells=cells, metadata=language)
    nbformat.write(notebook, root / f"{name}.ipynb")


@pytest.fixture(scope="module")
def html(tmp_path_factory) -> Path:
    """The rendered pages: `exports.html` exports, `keeps.html` names no module."""
    root = tmp_path_factory.mktemp("small")
    (root / "conf.py").write_text(CONFIG, encoding="utf-8")
    toctree = "# Small\n\n```{toctree}\nexports\nkeeps\n```\n"
    (root / "index.md").write_text(toctree, encoding="utf-8")
    page_with(MODULE, root)
    page_with(None, root)
    ran = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", ".", "html"],
        cwd=root,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return root / "html"


@pytest.fixture(scope="module")
def page(html) -> BeautifulSoup:
    return BeautifulSoup(
        (html / "exports.html").read_text(encoding="utf-8"), "html.parser"
    )


def blocks(page: BeautifulSoup) -> list[str]:
    return [block.get_text().strip("\n") for block in page.select("div.highlight pre")]


def test_an_inline_formula_is_mathml_in_its_sentence(page):
    sentence = page.find("p", string=None, class_=None)
    formula = sentence.find("math")
    assert formula.get("display") != "block"
    assert [n.get_text() for n in formula.find("mfrac").find_all("mn")] == ["1", "2"]
    assert sentence.get_text().startswith("Half is ")


def test_a_displayed_formula_is_a_block_of_mathml(page):
    formula = page.select_one("div.math-block > math")
    assert formula.get("display") == "block"
    assert formula.find("msubsup")
    assert "≤" in formula.get_text()


def test_no_script_is_needed_for_formulas(page):
    scripts = [script.get("src") or script.get_text() for script in page("script")]
    assert [s for s in scripts if "mathjax" in s.lower() or "katex" in s.lower()] == []
    assert "\\frac" not in page.find("p").get_text()


def test_each_exported_cell_gets_one_note_that_says_where_it_lives(page):
    notes = page.select("p.exported-note")
    assert [note.get_text() for note in notes] == [
        f"Kept in manygpu/scratch/{MODULE}.py, for later chapters to import"
    ] * 2


def test_the_note_stands_before_its_code(page):
    for note, start in zip(
        page.select("p.exported-note"), ("def one", "three"), strict=True
    ):
        code = note.find_next("pre").get_text()
        assert code.startswith(start)


def test_the_directive_is_gone_and_the_code_is_whole(page):
    assert blocks(page) == [
        EXPORTED.removeprefix("#| export\n"),
        "two = 1 + one()\n#| export is a comment here",
        "three = 3",
    ]


def test_the_code_is_still_highlighted(page):
    keywords = page.select("div.highlight pre span.k")
    assert "def" in [k.get_text() for k in keywords]


def test_a_page_that_exports_to_no_module_is_left_as_it_is(html):
    page = BeautifulSoup(
        (html / "keeps.html").read_text(encoding="utf-8"), "html.parser"
    )
    assert page.select("p.exported-note") == []
    assert blocks(page)[0] == EXPORTED


def test_the_book_uses_these_extensions():
    sphinx = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))[
        "sphinx"
    ]
    for name in ("exported", "mathml"):
        assert sphinx["local_extensions"][name] == "extensions/"
        assert (ROOT / "extensions" / f"{name}.py").is_file()
    assert sphinx["config"]["html_math_renderer"] == "mathml"
