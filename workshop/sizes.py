"""How much of the code that a chapter shows teaches, and how long its page is.

python -m workshop.sizes HTML_FOLDER [CHAPTER...]   a table

The first two columns are counted in the notebook, the others measured on the rendered
page, if there is one and a browser to open it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from workshop import browser, visible
from workshop.pages import ROOT, reading_order

GOAL = 0.6  # of the visible lines teach; no test holds a page at it
WINDOW = {"width": 1280, "height": 900}
# Folded code has no height but its fold's line, which counts as text. What waits for
# a guess (guess.js) is shown first.
MEASURE = """() => {
  const waiting = [...document.querySelectorAll(".guess-waits, .guess-hides")];
  for (const output of waiting) output.classList.remove("guess-waits", "guess-hides");
  const height = e => e.getBoundingClientRect().height;
  const article = document.querySelector("article");
  const cells = [...article.querySelectorAll("div.cell > div.cell_input")];
  return {
    code: cells.reduce((all, e) => all + height(e), 0) / height(article),
    screens: height(article) / window.innerHeight,
  };
}"""


def taught(page: str) -> str:
    """A row's part that needs no page: visible lines, and how many of them teach."""
    teach, shown = visible.teaching(visible.cells(ROOT / f"{page}.ipynb"))
    return f"{shown:7} {teach / max(1, shown):8.0%}"


def measured(html: Path, pages: list[str]) -> Iterator[str]:
    """The other part of each row; nothing for a page that isn't rendered."""
    there = [page for page in pages if (html / f"{page}.html").is_file()]
    if not there or not browser.find():
        yield from ["" for _ in pages]
        return
    from playwright.sync_api import sync_playwright

    path = browser.ensure()  # before Playwright runs: it may be asked too
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=browser.QUIET)
        tab = running.new_page(viewport=WINDOW)
        for page in pages:
            if page not in there:
                yield ""
                continue
            tab.goto((html.resolve() / f"{page}.html").as_uri())
            tab.wait_for_load_state("networkidle")
            seen = tab.evaluate(MEASURE)
            yield f" {seen['code']:5.0%} {seen['screens']:7.1f}"
        running.close()


def main(html: str, *chapters: str) -> int:
    """Print a row per chapter."""
    pages = list(chapters) or reading_order()
    wide = max(map(len, pages))
    print(f"{'':{wide}} visible teaching  code screens")
    for page, size in zip(pages, measured(Path(html), pages), strict=True):
        print(f"{page:{wide}} {taught(page)}{size}", flush=True)
    print(
        "visible: lines of code that a reader sees, without exercises. teaching: the\n"
        "share that is no docstring, check of arguments, assert or report; its goal\n"
        f"is {GOAL:.0%}. code: of the rendered page's height."
    )
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
