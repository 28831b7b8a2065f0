"""The chapters: their numbers, the box below each one's question, and their map.

A part has the number with which its caption in _toc.yml begins ("2 · Data parallel");
its chapters are counted in their order. The number, 2.3, stands before a chapter's
title, in the sidebar, at the way to the next page, in a chapter's box and in lists of
the class `numbered-links`. A link in prose says it when it is pointed at.

The box is made of a list that reads well without it:

    - **Needs:** [one device](../start/one-device.ipynb)
    - **Time:** 25 minutes
    - **Devices:** one is enough; two or more show the gain
    - **You build:** a pipeline that any layers can run on

It gets the file to download, what the chapter leads to, and the way to the map.
A point that is missing or not known is a warning, which fails the build.

`{chapter-map}` has all chapters, with those that each one needs, but for what follows
from others: if the ring needs a step on many devices, and that needs all-reduce, two
links say it.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Callable
from typing import NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

PART = re.compile(r"(\d+) · (.+)")
SPELLED_OUT = {"chapter-box", "numbered-links"}
POINTS = ["Needs", "Time", "Devices", "You build"]
DOWNLOAD = "this page as one notebook that runs anywhere"
MOST_NAMED = 3  # chapters that a box says it leads to
BEFORE_NUMBERS = 400  # so that the links of a box get theirs
AFTER_THE_THEME = 900

logger = logging.getLogger(__name__)


class Chapter(NamedTuple):
    """A chapter's place in the book, and what it is called."""

    page: str
    part: int
    place: int  # in its part, from 1
    title: str

    @property
    def number(self) -> str:
        """As it is written: 2.3."""
        return f"{self.part}.{self.place}"


class ChapterMap(SphinxDirective):
    """{chapter-map}: takes nothing."""

    def run(self) -> list[nodes.Node]:
        """Keep the place, until all chapters are known."""
        return [nodes.raw("", "", classes=["chapter-map"], format="html")]


# What a page says of itself, as it is read


def make_box(app, doctree: nodes.document) -> None:
    """Turn the list below a page's question into its box, and note what it needs."""
    page = app.env.docname
    points = box_list(doctree)
    if points is None:
        return
    found = [term_of(point) for point in points]
    if found != POINTS:
        logger.warning(
            "a chapter's box must have the points %s, got %s",
            ", ".join(POINTS),
            ", ".join(term or "one without a term in bold" for term in found),
            location=points,
        )
    links = points[0].findall(addnodes.pending_xref)
    needs = [link["reftarget"] for link in links if link["refdomain"] == "doc"]
    app.env.metadata[page]["needs"] = needs
    box = nodes.definition_list(classes=["chapter-box"])
    for term, point in zip(found, points, strict=True):
        box += definition(term, *words_of(point)[bool(term) :])
    if app.env.doc2path(page).endswith(".ipynb"):
        file = f"{'../' * page.count('/')}_sources/{page}.ipynb"
        box += definition("Download", nodes.reference("", DOWNLOAD, refuri=file))
    points.replace_self(box)


def box_list(doctree: nodes.document) -> nodes.bullet_list | None:
    """The list right below a page's question whose first point is in bold, if any."""
    question = next(iter(doctree.findall(nodes.block_quote)), None)
    below = question and question.next_node(descend=False, siblings=True)
    is_box = isinstance(below, nodes.bullet_list) and term_of(below[0])
    return below if is_box else None


def words_of(point: nodes.list_item) -> list[nodes.Node]:
    """What the first paragraph of a point is made of, without empty texts."""
    return [node for node in point[0].children if node.astext()]


def term_of(point: nodes.list_item) -> str:
    """What stands in bold before the colon of a point; "" if nothing does."""
    first = next(iter(words_of(point)), None)
    bold = isinstance(first, nodes.strong) and first.astext().endswith(":")
    return first.astext().removesuffix(":") if bold else ""


def definition(term: str, *said: nodes.Node) -> nodes.definition_list_item:
    """One term of the box and what is said of it."""
    first, *rest = said or [nodes.Text("")]
    if isinstance(first, nodes.Text):
        first = nodes.Text(first.lstrip())
    body = nodes.definition("", nodes.paragraph("", "", first, *rest))
    return nodes.definition_list_item("", nodes.term("", term), body)


# What the book knows, once all pages are read


def parts_of(env) -> list[tuple[int, str, list[str]]]:
    """Each part that has a number: its number, its name, its pages in order."""
    found = []
    for toctree in env.tocs[env.config.root_doc].findall(addnodes.toctree):
        if named := PART.fullmatch(toctree.get("caption") or ""):
            pages = [page for _, page in toctree["entries"]]
            found.append((int(named[1]), named[2], pages))
    return found


def count_chapters(app, env) -> None:
    """Note all chapters, by page, in the order of the book; number the sidebar."""
    env.chapters = {
        page: Chapter(page, part, place, env.titles[page].astext())
        for part, _, pages in parts_of(env)
        for place, page in enumerate(pages, 1)
    }
    for page, chapter in env.chapters.items():
        link = next(iter(env.tocs[page].findall(nodes.reference)))
        link["secnumber"] = (chapter.part, chapter.place)
    env.needs = direct_needs(env)


def direct_needs(env) -> dict[str, list[str]]:
    """For each chapter the needed ones that no other need leads to, in their order."""
    order = list(env.chapters)
    all_of: dict[str, set[str]] = {}  # with those that the needed ones need
    direct = {}
    for page in order:
        named = [p for p in env.metadata[page].get("needs", []) if p in env.chapters]
        for later in (p for p in named if p not in all_of):
            logger.warning("it needs %s, which comes after it", later, location=page)
        named = [p for p in named if p in all_of]
        beyond = set().union(*(all_of[p] for p in named))
        all_of[page] = {*named} | beyond
        direct[page] = sorted({*named} - beyond, key=order.index)
    return direct


# What a page shows of the others, as it is written


def draw(app, doctree: nodes.document, page: str) -> None:
    """Put the map where it is wanted, and what a chapter leads to into its box."""
    env = app.env

    def address(other: str) -> str:
        return app.builder.get_relative_uri(page, other)

    for place in list(doctree.findall(nodes.raw)):
        if "chapter-map" in place["classes"]:
            place.children = [nodes.Text(the_map(env, address))]
    for box in list(doctree.findall(nodes.definition_list)):
        if "chapter-box" in box["classes"] and page in env.chapters:
            box += way_on(env, page, address)


def the_map(env, address: Callable[[str], str]) -> str:
    """Each part's chapters as boxes; a box says after which chapters it comes."""
    out = []
    for part, name, pages in parts_of(env):
        out.append(f"<p>{part} · {html.escape(name)}</p><ol>")
        for chapter in map(env.chapters.get, pages):
            after = ", ".join(
                f'<a href="{address(p)}" title="{html.escape(env.chapters[p].title)}">'
                f"{env.chapters[p].number}</a>"
                for p in env.needs[chapter.page]
            )
            out.append(
                f'<li><a href="{address(chapter.page)}"><b>{chapter.number}</b> '
                f"{html.escape(chapter.title)}</a>"
                f"{f'<span>after {after}</span>' if after else ''}</li>"
            )
        out.append("</ol>")
    return "".join(out)


def way_on(env, page: str, address: Callable[[str], str]) -> nodes.Node:
    """A box's last point: what the chapter leads to, and the way to the map."""
    leads, said = [p for p, needed in env.needs.items() if page in needed], []
    for k, other in enumerate(leads[:MOST_NAMED]):
        title, place = env.chapters[other].title, address(other)
        link = nodes.reference("", title, refuri=place, internal=True)
        said += [nodes.Text(", " * (k > 0)), nodes.inline("", "", link)]
    if len(leads) > MOST_NAMED:
        said.append(nodes.Text(f" and {len(leads) - MOST_NAMED} more"))
    said.append(nodes.Text("; " if leads else ""))
    there = f"{address(env.config.root_doc)}#the-map"
    said.append(nodes.reference("", "the map", refuri=there, internal=True))
    return definition("Leads to", *said)


def write_numbers(app, doctree: nodes.document, page: str) -> None:
    """Put a chapter's number before its title, and numbers to links to chapters."""
    chapters = app.env.chapters
    if page in chapters:
        title = next(iter(doctree.findall(nodes.title)))
        # Not a part of its text: who searches for a title finds it as before.
        title["secnumber"] = chapters[page].part, chapters[page].place
    for link in list(doctree.findall(nodes.reference)):
        chapter = chapters.get(led_to(page, link.get("refuri", "")))
        if not chapter or not link.get("internal"):
            continue
        link.setdefault("reftitle", f"{chapter.number} {chapter.title}")
        if spelled_out(link):
            number = nodes.inline("", chapter.number, classes=["chapter-number"])
            link.parent.insert(link.parent.index(link), [number, nodes.Text(" ")])


def led_to(page: str, address: str) -> str:
    """The page to which a relative address leads; of no page if it names a place."""
    folder = posixpath.dirname(page)
    return posixpath.normpath(posixpath.join(folder, address)).removesuffix(".html")


def spelled_out(node: nodes.Node | None) -> bool:
    """Whether a link stands where its number is written, too."""
    return node is not None and (
        not SPELLED_OUT.isdisjoint(node.get("classes", ())) or spelled_out(node.parent)
    )


def number_ways(app, page, template, context, doctree) -> None:
    """The way to the page before and after says the number, too."""
    for way in filter(None, (context.get("prev"), context.get("next"))):
        if chapter := app.env.chapters.get(led_to(page, way["link"])):
            way["title"] = f"{chapter.number} {way['title']}"


def setup(app) -> None:
    """Note boxes as pages are read; count once all are; write as each is written."""
    app.add_directive("chapter-map", ChapterMap)
    app.connect("doctree-read", make_box)
    app.connect("env-updated", count_chapters)
    app.connect("doctree-resolved", draw, priority=BEFORE_NUMBERS)
    app.connect("doctree-resolved", write_numbers)
    app.connect("html-page-context", number_ways, priority=AFTER_THE_THEME)
