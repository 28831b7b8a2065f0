"""Tell those who find the book what each page is about: searchers, chats, lost readers.

A page's description is its question, or else its first sentences. Its title says the
book's name once. Who follows a link that leads nowhere gets a page that helps. Where
the book has an address (`make address`), pictures and pages have full ones, and
sitemap.xml lists all of them.

Each page's download button gives the file that runs alone (workshop/standalone.py):
Sphinx copies a page's notebook to where that button leads, and it takes its place.
"""

from __future__ import annotations

import html
import re
import textwrap
from pathlib import Path
from xml.sax.saxutils import escape

from docutils import nodes

from workshop import standalone

PROMISE = "from scratch to the cluster"  # what the front page adds to the book's name
# Titles that the theme gives in its templates.
OTHERS = {"search": "Search", "genindex": "Index", "py-modindex": "Modules"}
TOOLTIP = "Download this page as one notebook that runs anywhere"
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


def put_files(app, failed: Exception | None) -> None:
    """Write each notebook's file to where its page's download button leads."""
    if failed or app.builder.format != "html":
        return
    for name in sorted(app.env.found_docs):
        page = Path(app.env.doc2path(name))
        if page.suffix != ".ipynb":
            continue
        place = page.relative_to(app.srcdir)
        text = standalone.text_of(standalone.standalone(page, place.as_posix()))
        target = Path(app.outdir) / "_sources" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def mend_buttons(app, pagename, templatename, context, doctree) -> None:
    """Say what the download is, and put Kaggle beside Colab where there is a Colab."""
    if not context.get("page_source_suffix", "").endswith(".ipynb"):
        return
    for group in context.get("header_buttons", []):
        for button in group.get("buttons", []):
            if button.get("label") == "download-source-button":
                button["tooltip"] = TOOLTIP
        if group.get("label") == "launch-buttons":
            group["buttons"] += kaggle(app.config.html_theme_options, pagename)


def kaggle(options: dict, page: str) -> list[dict[str, str]]:
    """The button that opens a page's notebook on Kaggle; none without an address."""
    start = options.get("launch_buttons", {}).get("kaggle_url")
    repository = options.get("repository_url")
    if not (start and repository):
        return []
    branch = options.get("repository_branch") or "main"
    notebook = f"{repository}/blob/{branch}/{page}.ipynb"
    button = {"type": "link", "text": "Kaggle", "tooltip": "Launch on Kaggle"}
    return [button | {"icon": "fab fa-kaggle", "url": f"{start}?src={notebook}"}]


def setup(app) -> None:
    """Run on each page once the theme has its title and its buttons, and at the end."""
    app.connect("html-collect-pages", lost)
    app.connect("html-page-context", describe, priority=BEFORE_THE_BUNDLE)
    app.connect("html-page-context", mend_buttons, priority=BEFORE_THE_BUNDLE)
    for put in (put_door, put_sitemap, put_files):
        app.connect("build-finished", put)
