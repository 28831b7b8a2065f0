"""Pages ask for what `check` knows, word by word, and for bugs that are there."""

from __future__ import annotations

import json
import re

import pytest

from manygpu.exercises import KNOWN
from manygpu.exercises.checking import answer_name
from manygpu.exercises.flaws import FLAWS
from manygpu.exercises.hunts import hunts
from workshop.notebooks import is_asked
from workshop.pages import ROOT

PAGES = {path.stem: path for path in (ROOT / "book").glob("*/*.ipynb")}
PAGES |= {path.stem: path for path in (ROOT / "book").glob("*/*.md")}
ASKED = [name for name, each in KNOWN.items() if not each.hunted]


def cells_of(path) -> list[str]:
    """A notebook's code cells, a text's blocks of Python."""
    if path.suffix == ".md":
        blocks = r"```python\n(.*?)\n```"
        return re.findall(blocks, path.read_text(encoding="utf-8"), re.DOTALL)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("name", ASKED)
def test_an_exercise_stands_on_its_page_as_check_knows_it(name):
    asked = KNOWN[name]
    cell = f'{asked.stub}\n\ncheck("{name}", {answer_name(asked)})'
    there = [code for code in cells_of(PAGES[name.partition("/")[0]]) if is_asked(code)]
    found = [code for code in there if code.endswith(cell)]
    assert len(found) == 1, f"its page must end with this cell:\n{cell}"
    assert found[0].removesuffix(cell) in {
        "",
        "from manygpu.exercises import check\n\n\n",
    }


@pytest.mark.parametrize("page", FLAWS)
def test_a_page_with_small_bugs_shows_one(page):
    shown = [code for code in cells_of(PAGES[page]) if f'hunt("{page}", ' in code]
    assert len(shown) == 1
    assert is_asked(shown[0])


HUNTED = [
    page
    for page, path in PAGES.items()
    if any(f'hunt("{page}", ' in code for code in cells_of(path))
]
SAID = re.compile(r'`hunt\(\\?"([\w-]+)\\?", 1\)` (?:to|and) `(\d+)`')


@pytest.mark.parametrize("page", HUNTED)
def test_a_page_says_how_many_bugs_it_has(page):
    said = SAID.findall(PAGES[page].read_text(encoding="utf-8"))
    assert said == [(page, str(len(hunts(page))))], f"{page}: write {len(hunts(page))}"


def test_each_page_with_small_bugs_is_asked_for_its_count():
    assert {*FLAWS} <= {*HUNTED}
