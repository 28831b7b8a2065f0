"""How long each chapter is, and how much of it is code, on its rendered page.

python -m workshop.sizes HTML_FOLDER [CHAPTER...]   a table; exit status 1 over a limit
"""

from __future__ import annotations

import sys
from pathlib import Path

from workshop import browser
from workshop.pages import reading_order

MOST_CODE = 0.46  # of the height that a reader scrolls through; prose is short
WINDOW = {"width": 1280, "height": 900}
# Folded code has no height but its fold's line, which counts as text. What waits for
# a guess (guess.js) is shown first.
MEASURE = """() => {
  const waiting = [...document.querySelectorAll(".guess-waits")];
  for (const output of waiting) output.classList.remove("guess-waits");
  const height = e => e.getBoundingClientRect().height;
  const article = document.querySelector("article");
  const cells = [...article.querySelectorAll("div.cell > div.cell_input")];
  return {
    code: cells.reduce((all, e) => all + height(e), 0) / height(article),
    screens: height(article) / window.innerHeight,
  };
}"""


def over(code: float) -> list[str]:
    """The limit that a chapter breaks, in words; nothing if it doesn't."""
    said = f"{code:.0%} of its height is code, at most {MOST_CODE:.0%}: fold it"
    return [said] * (code > MOST_CODE)


def main(html: str, *chapters: str) -> int:
    """Print a row a chapter; return 1 if one is over a limit."""
    from playwright.sync_api import sync_playwright

    names = chapters or reading_order()
    wide, status = max(map(len, names)), 0
    print(f"{'':{wide}}  code screens")
    path = browser.ensure()  # before Playwright runs: it may be asked too
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=browser.QUIET)
        tab = running.new_page(viewport=WINDOW)
        for page in names:
            tab.goto((Path(html).resolve() / f"{page}.html").as_uri())
            tab.wait_for_load_state("networkidle")
            seen = tab.evaluate(MEASURE)
            wrong = over(seen["code"])
            status |= bool(wrong)
            row = f"{page:{wide}} {seen['code']:5.0%} {seen['screens']:7.1f}"
            print(row, *wrong)
        running.close()
    return status


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
