"""How large each chapter is, measured on its rendered page.

python -m workshop.sizes HTML_FOLDER [CHAPTER...]   a table; exit status 1 over a limit
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

from workshop import browser
from workshop.pages import ROOT, reading_order

MOST_CELLS = 50
MOST_CODE = 0.40  # of the height that a reader scrolls through
WINDOW = {"width": 1280, "height": 900}
# Folded code has no height but its fold's line, which counts as text.
MEASURE = """() => {
  const height = e => e.getBoundingClientRect().height;
  const article = document.querySelector("article");
  const sum = (found) => found.reduce((all, e) => all + height(e), 0);
  const cells = [...article.querySelectorAll("div.cell > div.cell_input")];
  const printed = [...article.querySelectorAll("div.cell_output > div.output.stream, "
    + "div.cell_output > div.output.text_plain")];
  const text = e => e.querySelector("pre").innerText;
  const lines = e => text(e).split("\\n").filter(line => line.trim()).length;
  return {
    code: sum(cells) / height(article),
    figures: article.querySelectorAll("figure").length,
    tables: article.querySelectorAll("table").length,
    printed: printed.map(lines),
    screens: height(article) / window.innerHeight,
  };
}"""


class Size(NamedTuple):
    """What a chapter asks of its reader; `code` is the share of the page's height."""

    cells: int
    words: int
    code: float
    figures: int
    tables: int
    printed: int
    longest: int
    screens: float


def written(page: str) -> tuple[int, int]:
    """The code cells that a reader sees, and the words of prose, of a chapter."""
    cells = json.loads((ROOT / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    seen = [c for c in cells if "remove-cell" not in c["metadata"].get("tags", [])]
    prose = ["".join(c["source"]) for c in seen if c["cell_type"] == "markdown"]
    code = [c for c in seen if c["cell_type"] == "code"]
    return len(code), len(" ".join(prose).split())


def measured(tab, html: Path, page: str) -> Size:
    """Open the page of a chapter in `tab` and measure it."""
    tab.goto((html / f"{page}.html").as_uri())
    tab.wait_for_load_state("networkidle")
    seen = tab.evaluate(MEASURE)
    cells, words = written(page)
    return Size(
        cells=cells,
        words=words,
        code=seen["code"],
        figures=seen["figures"],
        tables=seen["tables"],
        printed=sum(seen["printed"]),
        longest=max(seen["printed"], default=0),
        screens=seen["screens"],
    )


def over(size: Size) -> list[str]:
    """The limits that a chapter breaks, in words."""
    limits = [
        (size.cells > MOST_CELLS, f"{size.cells} code cells, at most {MOST_CELLS}"),
        (
            size.code > MOST_CODE,
            f"{size.code:.0%} of its height is code, at most {MOST_CODE:.0%}: fold it",
        ),
    ]
    return [said for broken, said in limits if broken]


def main(html: str, *chapters: str) -> int:
    """Print a row a chapter; return 1 if one is over a limit."""
    from playwright.sync_api import sync_playwright

    names = chapters or reading_order()
    wide = max(map(len, names))
    print(f"{'':{wide}} cells words  code figures tables printed longest screens")
    broken = 0
    path = browser.ensure()  # before Playwright runs: it may be asked too
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=browser.QUIET)
        tab = running.new_page(viewport=WINDOW)
        for page in names:
            size = measured(tab, Path(html).resolve(), page)
            found = over(size)
            broken += bool(found)
            print(
                f"{page:{wide}} {size.cells:5} {size.words:5} {size.code:5.0%}"
                f" {size.figures:7} {size.tables:6} {size.printed:7} {size.longest:7}"
                f" {size.screens:7.1f}  {', '.join(found)}"
            )
        running.close()
    return int(broken > 0)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
