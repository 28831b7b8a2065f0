"""Print the rendered book as one PDF, for paper or to read without a browser.

python -m workshop.pdf [CHAPTER...]    what is named, or all of it

All pages are put together in one first, so that the tags stay whole and links lead to
their places in the file. A headless browser prints it as the print part of
static/book.css says; the head of each sheet names the chapter.
"""

from __future__ import annotations

import html
import os
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup, Tag

from workshop.browser import QUIET, find
from workshop.pages import ROOT

HTML = ROOT / "_build" / "html"
WHOLE = "whole-book"
PATIENCE_MS = 600_000  # the whole book is one long page
HEAD = '@page {name} {{ @top-right {{ content: "{said}"; font: 9pt sans-serif; }} }}'
WHOLE_PAGE = """<!DOCTYPE html>
<html lang="en" data-theme="light" data-mode="light"><head><meta charset="utf-8">
<title>{title}</title>{links}<style>{heads} @media print {{
.whole-book :is(h1.part, section.chapter) {{ break-before: page; }}
.whole-book h1.part + section.chapter {{ break-before: avoid; }}
.whole-book h2 {{ font-size: 2rem; }}
.whole-book h3 {{ font-size: 1.6rem; }}
.whole-book h4 {{ font-size: 1.2rem; }}
.whole-book .contents :is(ol, p) {{ list-style: none; margin: 0.6rem 0 0; padding: 0; }}
}}</style></head><body>
<main class="bd-main"><div class="bd-content"><div class="bd-article-container">
<article class="bd-article whole-book"><h1>{title}</h1>
<nav class="contents">{contents}</nav>{body}</article>
</div></div></main></body></html>"""


def parts(html_root: Path, names: list[str]) -> dict[str, list[Path]]:
    """The pages of each part, by its caption, of these names if there are any."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    found = {}
    for part in toc["parts"]:
        pages = [html_root.resolve() / f"{c['file']}.html" for c in part["chapters"]]
        pages = [p for p in pages if p.is_file() and (not names or p.stem in names)]
        found |= {part["caption"]: pages} if pages else {}
    return found


def whole_book(html_root: Path, names: list[str]) -> str:
    """All pages in one, a part's chapters below its caption.

    Places get their page's name before them, links within the book lead to these.
    """
    index = html_root.resolve() / "book" / "index.html"
    listed = parts(html_root, names)
    named = {p: f"{p.parent.name}-{p.stem}" for pages in listed.values() for p in pages}
    body, styles, heads, contents = [], {}, [], []
    for caption, pages in listed.items():
        caption = html.escape(caption)
        body.append(f'<h1 class="part" style="page: {named[pages[0]]}">{caption}</h1>')
        contents.append(f"<p><b>{caption}</b></p><ol>")
        for page in pages:
            soup, name = read(page), named[page]
            for sheet in soup.select("head link[rel=stylesheet]"):
                place = moved(sheet["href"], page, index.parent, named)
                styles[f'<link rel="stylesheet" href="{place}">'] = None
            title = title_of(soup)
            heads.append(HEAD.format(name=name, said=title.replace('"', r"\"")))
            contents.append(f'<li><a href="#{name}">{html.escape(title)}</a></li>')
            body.append(one_of_many(soup, page, index.parent, named))
        contents.append("</ol>")
    return WHOLE_PAGE.format(
        title=html.escape(title_of(read(index))),
        links="".join(styles),
        heads="".join(heads),
        contents="".join(contents),
        body="".join(body),
    )


def title_of(soup: BeautifulSoup) -> str:
    """What a page's title says, with its number, without the link that it has."""
    return soup.h1.get_text().strip().removesuffix("#")


def one_of_many(
    soup: BeautifulSoup, page: Path, folder: Path, named: dict[Path, str]
) -> str:
    """A page's article as a section of a page that lies in `folder`."""
    article, name = soup.select_one("article.bd-article"), named[page]
    for script in article.select("script"):
        script.decompose()
    for place in article.select("[id]:not(svg *)"):  # a drawing's own are its own
        place["id"] = f"{name}--{place['id']}"
    for tag in article.select("[href], [src]"):
        key = "href" if tag.has_attr("href") else "src"
        tag[key] = link = moved(tag[key], page, folder, named)
        inside = link.startswith("#") or urlsplit(link).scheme
        if tag.name == "a" and not inside:  # it would say where this machine keeps it
            del tag[key]
    for heading in article.find_all(re.compile("^h[1-5]$")):  # below the part's caption
        heading.name = f"h{int(heading.name[1]) + 1}"
    its = {"id": name, "class": "chapter", "style": f"page: {name}"}
    section = Tag(name="section", attrs=its)
    section.extend(list(article.children))
    return str(section)


def moved(link: str, page: Path, folder: Path, named: dict[Path, str]) -> str:
    """Where a link of a page leads on the page that holds them all."""
    address, target = urlsplit(link), page
    if address.scheme:
        return link
    if address.path:
        target = (page.parent / unquote(address.path)).resolve()
    place = f"--{address.fragment}" if address.fragment else ""
    if target in named:
        return f"#{named[target]}{place}"
    return Path(os.path.relpath(target, folder)).as_posix()


def read(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


def make(html_root: Path, names: list[str], target: Path) -> None:
    """Print the chapters of these names or, without names, the whole book."""
    from playwright.sync_api import sync_playwright

    if not parts(html_root, names):
        sys.exit(f"nothing to print: {html_root} has no page of {names or 'the book'}")
    source = html_root / "book" / f"{WHOLE}.html"
    source.write_text(whole_book(html_root, names), encoding="utf-8")
    path = find()  # before Playwright runs: it may be asked too
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=QUIET)
        tab = browser.new_context(color_scheme="light").new_page()
        print_page(tab, source, target)
        browser.close()
    source.unlink()
    print(f"{target}: {target.stat().st_size / 2**20:.1f} MiB")


def print_page(tab, source: Path, target: Path) -> None:
    """Print a page with tags and an outline; only a whole file takes its place."""
    tab.set_default_timeout(PATIENCE_MS)
    tab.goto(source.as_uri())
    tab.wait_for_load_state("networkidle")
    part = target.with_suffix(".part")
    # The paper and its margins are in the style sheet.
    tab.pdf(path=part, tagged=True, outline=True, prefer_css_page_size=True)
    part.replace(target)


if __name__ == "__main__":
    make(HTML, sys.argv[1:], HTML / "book" / f"{WHOLE}.pdf")
