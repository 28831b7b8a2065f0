"""How large each chapter is, measured on its rendered page.

python -m workshop.sizes HTML_FOLDER [CHAPTER...]   a table; exit status 1 over a limit
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat

from workshop import browser
from workshop.pages import ROOT, reading_order

MOST_CELLS = 50
MOST_CODE = 0.40  # of the height that a reader scrolls through
WINDOW = {"width": 1280, "height": 900}
# Folded code has no height but its fold's line, which counts as text.
MEASURE = """() => {
  const height = e => e.getBoundingClientRect().height;
  const article = document.querySelector("article");
  const cells = [...article.querySelectorAll("div.cell > div.cell_input")];
  return {
    code: cells.reduce((all, e) => all + height(e), 0) / height(article),
    screens: height(article) / window.innerHeight,
  };
}"""


def written(page: str) -> tuple[int, int]:
    """The code cells that a reader sees, and the words of prose, of a chapter."""
    cells = nbformat.read(ROOT / f"{page}.ipynb", as_version=4).cells
    seen = [c for c in cells if "remove-cell" not in c.metadata.get("tags", [])]
    words = [len(c.source.split()) for c in seen if c.cell_type == "markdown"]
    return len(seen) - len(words), sum(words)


def over(cells: int, code: float) -> list[str]:
    """The limits that a chapter breaks, in words."""
    many = f"{cells} code cells, at most {MOST_CELLS}"
    much = f"{code:.0%} of its height is code, at most {MOST_CODE:.0%}: fold it"
    return [many] * (cells > MOST_CELLS) + [much] * (code > MOST_CODE)


def main(html: str, *chapters: str) -> int:
    """Print a row a chapter; return 1 if one is over a limit."""
    from playwright.sync_api import sync_playwright

    names = chapters or reading_order()
    wide, status = max(map(len, names)), 0
    print(f"{'':{wide}} cells words  code screens")
    path = browser.ensure()  # before Playwright runs: it may be asked too
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=browser.QUIET)
        tab = running.new_page(viewport=WINDOW)
        for page in names:
            tab.goto((Path(html).resolve() / f"{page}.html").as_uri())
            tab.wait_for_load_state("networkidle")
            seen, (cells, words) = tab.evaluate(MEASURE), written(page)
            wrong = over(cells, seen["code"])
            status |= bool(wrong)
            row = f"{page:{wide}} {cells:5} {words:5} {seen['code']:5.0%}"
            print(f"{row} {seen['screens']:7.1f}  {', '.join(wrong)}")
        running.close()
    return status


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
