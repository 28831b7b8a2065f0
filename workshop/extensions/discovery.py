"""Tell those who find the book what each page is about: searchers, chats, lost readers.

A page's description is its question, or else its first sentences. Its title says the
book's name once. Who follows a link that leads nowhere gets a page that helps. Where
the book has an address (`make address`), pictures and pages have full ones, and
sitemap.xml lists all of them.
"""

from __future__ import annotations

import html
import re
import textwrap
from pathlib import Path
from xml.sax.saxutils import escape

from docutils import nodes

PROMISE = "from scratch to the cluster"  # what the front page adds to the book's name
# Titles that the theme gives in its templates.
OTHERS = {"search": "Search", "genindex": "Index", "py-modindex": "Modules"}
CARD = "_static/card.png"
SITEMAP = """<?xml version="1.0" encoding="utf-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
{listed}
</urlset>
"""
MOST_LETTERS = 160  # what a page of results shows of a description
BEFORE_THE_BUNDLE = 940


def description(doctree: nodes.document | None) -> str:
    """What a page is about, in a sentence or two: its question, or its beginning."""
    for kind in (nodes.block_quote, nodes.paragraph) if doctree else ():
        for node in doctree.findall(kind):
            if said := " ".join(node.astext().split()):
                return textwrap.shorten(said, MOST_LETTERS, placeholder="…")
    return ""


def full_title(title: str, book: str) -> str:
    """The words of a page's tab: the page's first, then the book's, each once."""
    if title == book:
        return f"{book}: {PROMISE}"
    return title if book in title else f"{title} — {book}"


def describe(app, pagename, templatename, context, doctree) -> None:
    """Give a page its title, its description and its picture."""
    book = app.config.html_title or app.config.project
    root = app.config.html_baseurl
    title = without_markup(context.get("title") or "") or OTHERS.get(pagename, book)
    context["full_title"] = full_title(title, book)
    context["description"] = description(doctree)
    context["card"] = f"{root}{CARD}" if root else context["pathto"](CARD, 1)


def without_markup(title: str) -> str:
    """A title as it is read."""
    return html.unescape(re.sub(r"<[^>]+>", "", title)).strip()


def lost(app):
    """The page for who followed a link that leads nowhere."""
    yield "404", {"title": "This page isn't here"}, "404.html"


def put_door(app, failed: Exception | None) -> None:
    """Let the root's index.html lead to the front page, with the book's name and icon.

    Browsers ask a page without an icon's address for /favicon.ico, which isn't there.
    """
    first, door = app.config.root_doc, Path(app.outdir) / "index.html"
    if failed or app.builder.format != "html" or first == "index":
        return
    place, icon = app.builder.get_target_uri(first), app.config.html_favicon
    name = escape(app.config.html_title or app.config.project)
    door.write_text(
        f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name}</title>
<meta http-equiv="refresh" content="0; url={place}">
<link rel="icon" href="_static/{Path(icon).name}">
</head><body><a href="{place}">{name}</a></body></html>
""",
        encoding="utf-8",
    )


def put_sitemap(app, failed: Exception | None) -> None:
    """List all pages by their addresses, where the book has one."""
    root = app.config.html_baseurl
    if failed or app.builder.format != "html" or not root:
        return
    places = [root + app.builder.get_target_uri(p) for p in sorted(app.env.found_docs)]
    listed = "\n".join(f"<url><loc>{escape(place)}</loc></url>" for place in places)
    text = SITEMAP.format(listed=listed)
    (Path(app.outdir) / "sitemap.xml").write_text(text, encoding="utf-8")


def setup(app) -> None:
    """Run on each page once the theme has its title, and at the end."""
    app.connect("html-collect-pages", lost)
    app.connect("html-page-context", describe, priority=BEFORE_THE_BUNDLE)
    app.connect("build-finished", put_door)
    app.connect("build-finished", put_sitemap)
