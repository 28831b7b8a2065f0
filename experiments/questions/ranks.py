"""Search the rendered book for what people ask, and write each answer's rank.

questions.csv has 40 of the threads of threads.csv, drawn by chance, and again.csv has
20 others. Run it with `.venv/bin/python experiments/questions/ranks.py`, after
`make book`, or with BOOK_HTML=FOLDER, the folder of a rendered book.
"""

from __future__ import annotations

import csv
import os
import sys
import urllib.parse
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))
from workshop.browser import QUIET, find  # noqa: E402

TABLES = "questions.csv", "again.csv"


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a table of this folder."""
    with open(HERE / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def found(tab: Page, html: Path, words: str) -> list[str]:
    """Return the addresses that a search leads to, best first, without places."""
    tab.goto(f"{(html / 'search.html').as_uri()}?q={urllib.parse.quote_plus(words)}")
    tab.wait_for_selector("#search-results p.search-summary:not(:empty)")
    links = tab.locator("#search-results ul.search > li > a:first-child").all()
    return [link.get_attribute("href").partition("#")[0] for link in links]


def rank(places: list[str], pages: str) -> int | None:
    """Return the place of the first of some pages, None if none is found."""
    wanted = {f"book/{page}.html" for page in pages.split("|")}
    return next((k for k, place in enumerate(places, 1) if place in wanted), None)


def measure(tab: Page, html: Path, name: str) -> None:
    """Search for the questions of a table, print what was found, write the ranks."""
    table = rows(name)
    for row in table:
        places = found(tab, html, row["search"])
        row["rank"] = "" if row["pages"] == "none" else rank(places, row["pages"])
        best = ", ".join(place.removeprefix("book/") for place in places[:3])
        print(f"{row['rank'] or '-':>3}  {row['search']}: {best}")
    with open(HERE / name, "w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, [*table[0]], lineterminator="\n")
        out.writeheader()
        out.writerows(table)
    ranks = [row["rank"] for row in table if row["pages"] != "none"]
    good = sum(rank is not None and rank <= 2 for rank in ranks)
    print(f"{name}: {good} of {len(ranks)} among the first two\n")


def main() -> None:
    """Search for the questions of both tables."""
    html = Path(os.environ.get("BOOK_HTML", ROOT / "_build" / "html")).resolve()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=QUIET)
        for name in TABLES:
            measure(browser.new_page(), html, name)
        browser.close()


if __name__ == "__main__":
    main()
