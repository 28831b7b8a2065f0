"""Print the rendered book: a PDF of each chapter, and one of the whole book.

python -m workshop.pdf [CHAPTER...]    what is named, or all of it

A headless browser prints the pages as the print part of static/book.css says. Tags,
outline, title and language are those of the page; the head of each sheet names the
chapter. A chapter's file lies beside its page, where the page's download menu then has
it. The whole book, put together in one page first so that its tags stay whole, is
book/whole-book.pdf; it is printed twice, for only then its contents know the pages.
"""

from __future__ import annotations

import html
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup, Tag
from pypdf import PdfReader

from workshop.browser import QUIET, find
from workshop.pages import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Page

HTML = ROOT / "_build" / "html"
WHOLE = "whole-book"
PATIENCE_MS = 600_000  # the whole book is one long page
# The paper and its margins are in the style sheet, with the rest of what is printed.
PRINTED: dict[str, Any] = {
    "tagged": True,
    "outline": True,
    "prefer_css_page_size": True,
}
# A link to a file would say where this machine keeps it.
WITHOUT_FILES = """document.querySelectorAll('a[href]').forEach(a => {
    const here = a.href.split('#')[0] === location.href.split('#')[0];
    if (a.protocol === 'file:' && !here) a.removeAttribute('href');
})"""
TITLE = "document.querySelector('article:not(.whole-book) h1')?.textContent"
HEAD = '@page {name} {{ @top-right {{ content: "{said}"; font: 9pt sans-serif; }} }}'
MENU = re.compile(
    r'(<div class="dropdown dropdown-download-buttons">.*?<ul[^>]*>.*?)</ul>', re.S
)
ENTRY = "btn btn-sm dropdown-item"
WHOLE_PAGE = """<!DOCTYPE html>
<html lang="en" data-theme="light" data-mode="light"><head><meta charset="utf-8">
<title>{title}</title>{links}<style>{heads} @media print {{
.whole-book :is(h1.part, section.chapter) {{ break-before: page; }}
.whole-book h1.part + section.chapter {{ break-before: avoid; }}
.whole-book h2 {{ font-size: 2rem; }}
.whole-book h3 {{ font-size: 1.6rem; }}
.whole-book h4 {{ font-size: 1.2rem; }}
.whole-book .contents :is(ol, p) {{ list-style: none; margin: 0.6rem 0 0; padding: 0; }}
.whole-book .contents li {{ display: flex; justify-content: space-between; }}
}}</style></head><body>
<main class="bd-main"><div class="bd-content"><div class="bd-article-container">
<article class="bd-article whole-book"><h1>{title}</h1>
<nav class="contents">{contents}</nav>{body}</article>
</div></div></main></body></html>"""


@contextmanager
def printer() -> Iterator[Page]:
    """A tab that shows pages on white paper."""
    from playwright.sync_api import sync_playwright

    found = find()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=QUIET)
        tab = browser.new_context(color_scheme="light").new_page()
        tab.set_default_timeout(PATIENCE_MS)
        yield tab
        browser.close()


def print_page(tab: Page, page: Path, target: Path) -> None:
    """Print a page of the rendered book; only a whole file takes its place."""
    tab.goto(page.as_uri())
    tab.wait_for_load_state("networkidle")
    tab.evaluate(WITHOUT_FILES)
    if title := tab.evaluate(TITLE):
        tab.add_style_tag(content=head("", said(title)))
    part = target.with_suffix(".part")
    tab.pdf(path=part, **PRINTED)
    part.replace(target)


def head(name: str, title: str) -> str:
    """A rule for sheets of this name, or for all: a title stands in their heads."""
    return HEAD.format(name=name, said=title.replace('"', r"\""))


def said(title: str) -> str:
    """What a page's title says, with its number, without the link that it has."""
    return title.strip().removesuffix("#")


def offer(page: Path, target: Path) -> None:
    """Put a PDF into the download menu of its page, unless it is there."""
    text, link = page.read_text(encoding="utf-8"), f'href="{target.name}"'
    menu = MENU.search(text)
    if menu and link not in text:
        entry = f'<li><a {link} class="{ENTRY}">PDF with bookmarks</a></li>\n'
        text = text[: menu.end(1)] + entry + text[menu.end(1) :]
        page.write_text(text, encoding="utf-8")


def parts(html_root: Path) -> list[tuple[str, list[Path]]]:
    """Each part's caption and its pages, as far as they are rendered."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    found = []
    for part in toc["parts"]:
        pages = [html_root / f"{c['file']}.html" for c in part["chapters"]]
        found.append((part["caption"], [page for page in pages if page.is_file()]))
    return [(caption, pages) for caption, pages in found if pages]


# The whole book as one page


def whole_book(html_root: Path, sheets: dict[str, int] | None = None) -> str:
    """All pages in one, a part's chapters below its caption.

    Places get their page's name before them, links within the book lead to these. The
    contents say on which of the `sheets` a place is, as far as that is known.
    """
    html_root = html_root.resolve()
    index = html_root / "book" / "index.html"
    named = {page: place_of(page) for _, pages in parts(html_root) for page in pages}
    body, styles, heads, contents = [], {}, [], []
    for caption, pages in parts(html_root):
        caption = html.escape(caption)
        body.append(f'<h1 class="part" style="page: {named[pages[0]]}">{caption}</h1>')
        contents.append(f"<p><b>{caption}</b></p><ol>")
        for page in pages:
            soup, name = read(page), named[page]
            for link in soup.select("head link[rel=stylesheet]"):
                styles[moved(link["href"], page, index.parent, named)] = None
            title = said(soup.h1.get_text())
            heads.append(head(name, title))
            sheet = (sheets or {}).get(name, "000")  # as wide as most will be
            contents.append(
                f'<li><a href="#{name}">{html.escape(title)}</a> {sheet}</li>'
            )
            body.append(one_of_many(soup, page, index.parent, named))
        contents.append("</ol>")
    return WHOLE_PAGE.format(
        title=html.escape(said(read(index).h1.get_text())),
        links="".join(f'<link rel="stylesheet" href="{style}">' for style in styles),
        heads="".join(heads),
        contents="".join(contents),
        body="".join(body),
    )


def sheets_of(target: Path) -> dict[str, int]:
    """On which sheet of a PDF each place is that a link leads to, from 1; "/place"."""
    reader = PdfReader(target)
    places = reader.named_destinations.items()
    return {n[1:]: 1 + (reader.get_destination_page_number(d) or 0) for n, d in places}


def one_of_many(
    soup: BeautifulSoup, page: Path, folder: Path, named: dict[Path, str]
) -> str:
    """A page's article as a section of a page that lies in `folder`."""
    article = soup.select_one("article.bd-article")
    for script in article.select("script"):
        script.decompose()
    for place in article.select("[id]:not(svg *)"):  # a drawing's own are its own
        place["id"] = f"{named[page]}--{place['id']}"
    for tag in article.select("[href], [src]"):
        key = "href" if tag.has_attr("href") else "src"
        tag[key] = moved(tag[key], page, folder, named)
    for level in (5, 4, 3, 2, 1):  # below the part's caption
        for heading in article.find_all(f"h{level}"):
            heading.name = f"h{level + 1}"
    name = named[page]
    its = {"id": name, "class": "chapter", "style": f"page: {name}"}
    section = Tag(name="section", attrs=its)
    section.extend(list(article.children))
    return str(section)


def moved(link: str, page: Path, folder: Path, named: dict[Path, str]) -> str:
    """Where a link of a page leads on the page that holds them all."""
    address = urlsplit(link)
    if address.scheme:
        return link
    target = page
    if address.path:
        target = (page.parent / unquote(address.path)).resolve()
    place = f"--{address.fragment}" if address.fragment else ""
    if target in named:
        return f"#{named[target]}{place}"
    return Path(os.path.relpath(target, folder)).as_posix()


def place_of(page: Path) -> str:
    """A page's name in the whole book."""
    return f"{page.parent.name}-{page.stem}"


def read(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


def make(html_root: Path, names: list[str]) -> None:
    """Print the chapters of these names, or, without names, all and the whole book."""
    html_root = html_root.resolve()
    pages = [page for _, own in parts(html_root) for page in own]
    wanted = [page for page in pages if not names or page.stem in names]
    if not wanted:
        sys.exit(f"nothing to print: {html_root} has no page of {names or 'the book'}")
    with printer() as tab:
        for count, page in enumerate(wanted, 1):
            print_one(
                tab, page, page, page.with_suffix(".pdf"), f"{count}/{len(wanted)}"
            )
        if not names:
            index = html_root / "book" / "index.html"
            print_whole(tab, html_root, index.with_name(f"{WHOLE}.pdf"))


def print_whole(tab: Page, html_root: Path, target: Path) -> None:
    """Print the whole book, first for the places of its chapters, then with them."""
    source, sheets = target.with_suffix(".html"), {}
    for label in ("whole book, for its contents", "whole book"):
        source.write_text(whole_book(html_root, sheets), encoding="utf-8")
        print_one(tab, source, source.with_name("index.html"), target, label)
        sheets = sheets_of(target)
    source.unlink()


def print_one(tab: Page, source: Path, page: Path, target: Path, label: str) -> None:
    """Print, offer it in the page's menu, say how long it took and how big it is."""
    begun = time.monotonic()
    print_page(tab, source, target)
    offer(page, target)
    size = target.stat().st_size / 2**20
    spent = time.monotonic() - begun
    print(f"  {label} {target.name}: {size:.1f} MiB, {spent:.0f} s", flush=True)


if __name__ == "__main__":
    make(Path(os.environ.get("BOOK_HTML", HTML)), sys.argv[1:])
