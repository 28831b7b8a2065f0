"""The book's Sphinx extensions: formulas, exports, folds, captions, a chapter's box.

A small book of a few notebooks is rendered with them, as Jupyter Book does it: MyST-NB
reads the notebook, nothing is executed.
"""

from __future__ import annotations

import html
import subprocess
from pathlib import Path

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup

from workshop import notebooks
from workshop.extensions import code_cells, markup, table_columns
from workshop.pages import ROOT
from workshop.tests import small_book

CONFIG = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
project = "small"
ours = ["markup", "captions", "chapters", "code_cells", "table_columns"]
extensions = ["myst_nb", *(f"workshop.extensions.{{name}}" for name in ours)]
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
        code("#|export\n#| exporti\nthree = 3"),
        code("four = [\n    4]  # fmt: skip\n"),  # which isn't shown
        v4.new_markdown_cell("$$\nx_i^2 \\le 4\n$$"),
    ]
    name = "exports" if module else "keeps"
    language = {"language_info": {"name": "python"}}
    notebook = v4.new_notebook(cells=cells, metadata=language)
    nbformat.write(notebook, root / f"{name}.ipynb")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict[str, BeautifulSoup]:
    """The rendered pages: "exports" exports, "keeps" names no module."""
    root = tmp_path_factory.mktemp("small")
    (root / "conf.py").write_text(CONFIG, encoding="utf-8")
    toctree = "# Small\n\n```{toctree}\nexports\nkeeps\npart/chapter\n```\n"
    (root / "index.md").write_text(toctree, encoding="utf-8")
    page_with(MODULE, root)
    page_with(None, root)
    chapter(root, BOX)
    return small_book.pages(root)


BOX = """- **Needs:** [exports](../exports.ipynb)
- **Time:** 20 minutes
- **Devices:** one is enough
- **You build:** a *small* page"""
FOLDED = {
    notebooks.FIRST_CELL: "Set-up: fetches the package where it is missing",
    "# How the arrows\n# are drawn. Twice.\nx = 1": "Show: how the arrows are drawn",
    "# A check: no cut is better.\nx = 1": "Show a check: no cut is better",
    "# Check, and the table: two links.\nx = 1": (
        "Show the check, and the table: two links"
    ),
    'def draw():\n    """`LeNet`\'s layers."""': "Show: LeNet's layers",
    "# Check: both runs learn. And how.\nx = 1": "Show the check: both runs learn",
    "figures.show(fig, alt)": "Show: how this is drawn",
    "x = 1\n# not first": "Show the code",
}


def captioned(tag: str, kind: str, words: str, name: str = "") -> str:
    """HTML as manygpu.figures makes it, which their own tests pin."""
    inner = f'<{tag} class="manygpu-caption">{html.escape(words)}</{tag}>'
    named = f' data-name="{name}"' if name else ""
    outer = "div" if kind == "table" else "figure"
    return f'<{outer} class="manygpu-{kind}"{named}>{inner * bool(words)}</{outer}>'


def chapter(root: Path, box: str, name: str = "chapter") -> None:
    """part/NAME.ipynb: a box, folds of code, captions in one cell's outputs."""
    v4 = nbformat.v4
    outputs = [
        v4.new_output("display_data", data={"text/html": page, "text/plain": "plain"})
        for page in (
            captioned("figcaption", "figure", "First."),
            captioned("caption", "table", "A <b>table</b>.", "costs"),
            captioned("caption", "table", ""),
            captioned("figcaption", "figure", "Second.", "loss"),
            captioned("figcaption", "figure manygpu-film", "Third.", "film"),
        )
    ]
    hidden = {"tags": ["hide-input"]}
    links = "See [Figure](#figure-loss), [Table](#table-costs), [this](#figure-1)."
    table = "Table: What `x` is.\n\n| x | y |\n|---|---|\n| 1 | 2 |\n"
    table += f"| 3 | {'some words ' * 4} |"
    cells = [
        v4.new_markdown_cell(f"# Title\n\n> What for?\n\n{box}\n\n{links}"),
        *[v4.new_code_cell(code, metadata=hidden) for code in FOLDED],
        v4.new_code_cell("x", outputs=outputs, execution_count=1, id="0123abcd"),
        v4.new_markdown_cell(table),
    ]
    (root / "part").mkdir(exist_ok=True)
    language = {"language_info": {"name": "python"}}
    notebook = v4.new_notebook(cells=cells, metadata=language)
    nbformat.write(notebook, root / "part" / f"{name}.ipynb")


@pytest.fixture(scope="module")
def page(built) -> BeautifulSoup:
    return built["exports"]


def blocks(page: BeautifulSoup) -> list[str]:
    return [block.get_text().strip("\n") for block in page.select("div.highlight pre")]


def test_a_formula_is_mathml_in_its_sentence_or_a_block(page):
    block = page.select_one("div.math-block > math")
    assert block.get("display") == "block"
    assert block.find("msubsup") and "≤" in block.get_text()
    sentence = page.select_one("p:has(math)")
    formula = sentence.find("math")
    assert formula.get("display") != "block"
    assert [n.get_text() for n in formula.find("mfrac").find_all("mn")] == ["1", "2"]
    assert sentence.get_text().startswith("Half is ")


def test_an_exported_cell_says_where_it_lives_before_its_whole_code(page):
    notes = page.select("p.exported-note")
    said = f"Kept in manygpu/scratch/{MODULE}.py, for later chapters to import"
    assert [note.get_text() for note in notes] == [said, said]
    codes = [note.find_next("pre").get_text().strip() for note in notes]
    assert codes[0].startswith("def one") and codes[1].startswith("three")
    assert blocks(page) == [
        EXPORTED.removeprefix("#| export\n"),
        "two = 1 + one()\n#| export is a comment here",
        "three = 3",
        "four = [\n    4]",
    ]


def test_a_page_that_exports_to_no_module_is_left_as_it_is(built):
    assert built["keeps"].select("p.exported-note") == []
    assert blocks(built["keeps"])[0] == EXPORTED


@pytest.fixture(scope="module")
def parts(built) -> BeautifulSoup:
    """The page with a box, folds and captions."""
    return built["part/chapter"]


def words(tags) -> list[str]:
    return [" ".join(tag.get_text().split()) for tag in tags]


def test_a_fold_says_what_it_holds_and_the_set_up_cell_alone_looks_different(parts):
    (cell,) = parts.select("div.cell.set-up")
    assert "Nothing to do where the book is installed" in cell.find("pre").get_text()
    said = words(parts.select("details > summary > p.collapsed"))
    assert said == list(FOLDED.values())
    hide = [s.replace("Show", "Hide", 1) for s in said]
    assert words(parts.select("details > summary > p.expanded")) == hide
    assert parts.select("summary[aria-label]") == []  # it is called aloud what it says


def spaces(tex: str) -> str:
    """A formula's texts, with an underscore for each thin space."""
    found = BeautifulSoup(markup.formula(tex), "html.parser")
    for space in found("mspace"):
        space.string = "_"
    return "".join(found.get_text().replace("\u2061", "").split())


@pytest.mark.parametrize(
    ("tex", "right"),
    [
        (r"2 \log_2 n", "2_log2_n"),
        (r"\ln 10", "ln_10"),
        (r"2 \sin (x)", "2_sin(x)"),
        (r"\eta_{\max} x", "ηmaxx"),
    ],
)
def test_the_name_of_a_function_has_a_space(tex, right):
    assert spaces(tex) == right


def test_formulas_in_a_row_are_several():
    assert markup.side_by_side(r"a = 1, \qquad b = 2") == ["a = 1,", "b = 2"]
    one = r"\left(a \qquad b\right)"
    assert markup.side_by_side(one) == [one]


def test_a_formula_and_its_comma_are_bound():
    tex = markup.formula("x")
    bound = '<span class="bound">{}</span>'
    assert markup.plain(f"<p>({tex}), {tex} and {tex}-th</p>") == (
        f"<p>{bound.format(f'({tex}),')} {tex} and {bound.format(f'{tex}-th')}</p>"
    )
    apart = markup.formula("x", as_block=True) + ", y"
    assert markup.plain(apart) == apart


def test_captions_are_numbered_by_kind_in_the_order_of_the_page(parts):
    assert words(parts.select(".manygpu-caption")) == [
        "Figure 1: First.",
        "Table 1: A <b>table</b>.",
        "Figure 2: Second.",
        "Figure 3: Third.",
        "Table 2: What x is.",
    ]


def test_a_markdown_tables_caption_stood_in_the_paragraph_before_it(parts):
    (table,) = parts.select("table:has(td)")
    assert words(table.select("caption.manygpu-caption code")) == ["x"]
    assert not [p for p in parts.find_all("p") if "Table: " in p.get_text()]


def test_a_markdown_tables_columns_of_prose_have_a_name(parts):
    cells = parts.select("table:has(td) td")
    assert [cell.get("class", []) for cell in cells] == [[], ["prose"]] * 2


def test_a_table_of_sentences_stacks_and_its_style_has_its_headers():
    row = "<td><code>a_name_of_parts</code></td>"
    shown = table_columns.with_headers(
        table_columns.STACKED.match(
            '<table class="table stacks"><thead><tr><th><p>it said</p></th>'
            f"<th>page's</th></tr></thead><tbody><tr>{row}</tr></tbody></table>"
        )
    )
    assert """ style="--head-1:&#x27;it said&#x27;;--head-2:""" in shown


@pytest.mark.parametrize(
    ("text", "prose"),
    [
        ("two GPUs take 2.04 times as long, in 235 steps each\nfewer", True),
        ("lenet, batch 112:\n1. 1 device\n   138 ms a step", True),
        ("CPU        1.0 (printed 1.0)\n1 GPU     22.5", False),
        ("[[1. 2.]\n [3. 4.]]", False),
        ("+-----+\n| GPU |", False),
        ("a\tb", False),
        ("def step(x):\n    return x", False),
        ("mine: right in 6 trials: all\n    copies alike", False),
    ],
)
def test_printed_columns_are_told_from_printed_prose(text, prose):
    assert markup.columns(text) == (not prose)


def test_a_number_leads_to_what_it_belongs_to(parts):
    numbers = parts.select("a.caption-number")
    places = [number["href"] for number in numbers]
    right = "#figure-1 #table-costs #figure-loss #figure-film #table-2"
    assert places == right.split()
    for number, place in zip(numbers, places, strict=True):
        target = parts.select_one(place)
        assert target.find_next(class_="manygpu-caption").a == number


def test_a_page_of_which_nothing_ran_says_so(page, parts):
    assert words(page.select("h1 + .note > p:last-child")) == [code_cells.PENDING]
    assert parts.select(".note") == []


def test_a_cell_that_ran_has_a_place_to_link_to_and_no_other_has(parts):
    (cell,) = parts.select("[id^=cell-]")
    assert cell["id"] == "cell-0123abcd"
    assert cell.find("pre").get_text().strip() == "x"


def test_prose_links_to_a_caption_by_name_and_gets_its_number(parts):
    links = [a for a in parts.select("p a.reference") if "#" in a["href"]]
    assert {a["href"]: a.get_text() for a in links} == {
        "#figure-loss": "Figure 2",
        "#table-costs": "Table 1",
        "#figure-1": "this",
    }


def test_a_chapters_box_holds_its_points_and_the_download(parts):
    box = parts.select_one("dl.chapter-box")
    terms = ["Needs", "Time", "Devices", "You build", "Download"]
    assert words(box.find_all("dt")) == terms
    needs, time, devices, builds, download = box.find_all("dd")
    assert words([time, devices]) == ["20 minutes", "one is enough"]
    assert builds.find("em").get_text() == "small"
    assert needs.a["href"] == "../exports.html"
    assert download.a["href"] == "../_sources/part/chapter.ipynb"


REFUSED = {  # a chapter's box, and what the build says of it
    "unknown": (BOX.replace("Time", "Tome"), "got Needs, Tome, Devices, You build"),
    "not-bold": (
        BOX.replace("**Time:** ", ""),
        "got Needs, one without a term in bold",
    ),
    "missing": (BOX.rpartition("\n")[0], "You build, got Needs, Time, Devices\n"),
    "no-chapter": (BOX.replace("exports.", "exits."), "not found: '../exits.ipynb'"),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory) -> subprocess.CompletedProcess:
    """What Sphinx said of a book that has these chapters."""
    root = tmp_path_factory.mktemp("refused")
    (root / "conf.py").write_text(CONFIG, encoding="utf-8")
    listed = "".join(f"part/{name}\n" for name in REFUSED)
    index = f"# Small\n\n```{{toctree}}\nexports\n{listed}```\n"
    (root / "index.md").write_text(index, encoding="utf-8")
    page_with(MODULE, root)
    for name, (box, _) in REFUSED.items():
        chapter(root, box, name)
    return small_book.rendered(root)


@pytest.mark.parametrize("name", REFUSED)
def test_a_box_that_says_too_little_fails_the_build(refused, name):
    assert refused.returncode != 0
    about = [w for w in refused.stderr.splitlines(True) if f"{name}.ipynb" in w]
    assert any(REFUSED[name][1] in warning for warning in about)


def test_the_book_uses_these_extensions():
    text = (ROOT / "_config.yml").read_text(encoding="utf-8")
    sphinx = yaml.safe_load(text)["sphinx"]
    there = {file.stem for file in (ROOT / "workshop" / "extensions").glob("*.py")}
    names = {
        f"workshop.extensions.{name}" for name in there - {"slides"}
    }  # they add it
    assert sphinx["local_extensions"] == dict.fromkeys(names, ".")
    for kind in ("css", "js"):
        files = sorted((ROOT / "workshop" / "static").glob(f"*.{kind}"))
        listed = sphinx["config"][f"html_{kind}_files"]
        assert sorted(listed) == [file.name for file in files]
    assert sphinx["config"]["html_math_renderer"] == "mathml"
