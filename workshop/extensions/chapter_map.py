"""A map of the chapters: what there is, and what each one builds on.

`{chapter-map}` draws it from two things that the book has anyway: the parts of
_toc.yml (see chapter_numbers.py), and the chapters that a chapter's box says it needs.
A need that follows from others is not drawn: if the ring needs a step on many devices,
and that needs all-reduce, two lines say it. Every chapter is a link; a phone gets a
narrow form, and there is a list. A chapter's box gets a strip that says "you are here",
and what the chapter leads to.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from workshop.extensions.chapter_numbers import Chapter, parts_of

# Pixels, where the map is not shrunk.
WIDTH, LEFT, BOX, GAP = 980, 112, (132, 52), (14, 26)
A_ROW = 6  # chapters beside each other
LETTERS = 17  # of a title fit into a box's width
LINE = 14
NARROW, ROW, ARCS, CAPTION = 358, 28, 52, 34  # the phone's form
DOT, BETWEEN = 6, 6  # of the strip
MOST_NAMED = 3  # chapters that a box says it leads to
BEFORE_NUMBERS = 400  # so that the links of a box get theirs
AFTER_BOXES = AFTER_NUMBERS = 600
LISTED = "The same as a list"

logger = logging.getLogger(__name__)


class Book(NamedTuple):
    """What the map shows: chapters and parts in order, needs and addresses by page."""

    chapters: Sequence[Chapter]
    parts: Sequence[tuple[int, str]]
    needs: Mapping[str, Sequence[str]]
    address: Callable[[str], str]


class MapNode(nodes.General, nodes.Element):
    """Where the map will stand, once all chapters are known."""


class ChapterMap(SphinxDirective):
    """{chapter-map}: takes nothing."""

    def run(self) -> list[nodes.Node]:
        """Keep the place."""
        return [MapNode()]


# What needs what


def read_needs(app, doctree: nodes.document) -> None:
    """Note which chapters a page's box says it needs."""
    found = []
    for box in doctree.findall(nodes.definition_list):
        if "chapter-box" in box["classes"]:
            links = box[0].findall(addnodes.pending_xref)
            found = [link["reftarget"] for link in links if link["refdomain"] == "doc"]
    app.env.metadata[app.env.docname]["needs"] = found


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
        all_of[page] = {*named}.union(*(all_of[p] for p in named))
        beyond = set().union(*(all_of[p] for p in named))
        direct[page] = sorted({*named} - beyond, key=order.index)
    return direct


def renew(app, env) -> list[str]:
    """Write all pages anew where a need has changed."""
    found = direct_needs(env)
    changed = getattr(env, "needs", found) != found
    env.needs = found
    return sorted(env.found_docs) if changed else []


# The map


def draw(app, doctree: nodes.document, page: str) -> None:
    """Put the map where it is wanted, and the strip into a chapter's box."""
    env = app.env

    def address(other: str) -> str:
        return app.builder.get_relative_uri(page, other)

    for place in list(doctree.findall(MapNode)):
        parts = [(number, name) for number, name, _ in parts_of(env)]
        text = whole(Book(list(env.chapters.values()), parts, env.needs, address))
        place.replace_self(nodes.raw("", text, format="html"))
    for box in list(doctree.findall(nodes.definition_list)):
        if "chapter-box" in box["classes"] and page in env.chapters:
            box += on_the_map(env, page, address)


def whole(book: Book) -> str:
    """The map in both widths, and as a list."""
    said = "A line leads from a chapter to one that builds on it; point at a chapter "
    said += "to see what it builds on."
    return (
        f'<figure class="chapter-map">{wide(book)}{narrow(book)}'
        f"<figcaption>{said}</figcaption><details><summary>{LISTED}</summary>"
        f"{as_list(book)}</details></figure>"
    )


def as_list(book: Book) -> str:
    """Each part's chapters in words, and what each needs."""
    number = {c.page: c.number for c in book.chapters}
    out = []
    for part, name in book.parts:
        out.append(f"<p>{part} · {html.escape(name)}</p><ul>")
        for chapter in (c for c in book.chapters if c.part == part):
            needed = ", ".join(number[p] for p in book.needs[chapter.page])
            after = f" (needs {needed})" if needed else ""
            out.append(
                f'<li><a href="{book.address(chapter.page)}">{chapter.number} '
                f"{html.escape(chapter.title)}</a>{after}</li>"
            )
        out.append("</ul>")
    return "".join(out)


def wide(book: Book) -> str:
    """A band a part, in it the chapters from left to right, lines between boxes."""
    (w, h), (gap_x, gap_y) = BOX, GAP
    corner, bands, y = {}, [], 0
    for part, name in book.parts:
        own = [c.page for c in book.chapters if c.part == part]
        rows = -(-len(own) // A_ROW)
        height = rows * (h + gap_y)
        bands.append(_band(part, name, y, WIDTH, height))
        for k, page in enumerate(own):
            x = LEFT + k % A_ROW * (w + gap_x)
            corner[page] = x, y + gap_y / 2 + k // A_ROW * (h + gap_y)
        y += height + 6
    lines = {
        page: "".join(_line(corner[p], corner[page]) for p in book.needs[page])
        for page in corner
    }
    out = [
        _link(c, book.address, lines[c.page], _box(c, *corner[c.page]))
        for c in book.chapters
    ]
    behind = f'<path class="needs" d="{"".join(lines.values())}"/>'
    return _svg("wide", WIDTH, y, "".join(bands) + behind + "".join(out))


def _band(part: int, name: str, y: float, width: float, height: float) -> str:
    """A part's ground, and its name at the left."""
    words = textwrap.wrap(name, 12)
    first = y + height / 2 + LINE / 2 - len(words) * LINE / 2
    lines = "".join(
        f'<tspan x="12" y="{first + k * LINE + 10:g}">{html.escape(word)}</tspan>'
        for k, word in enumerate(words)
    )
    return (
        f'<rect class="band" y="{y:g}" width="{width}" height="{height:g}" rx="6"/>'
        f'<text class="part" x="12" y="{first - 8:g}">{part}</text>'
        f'<text class="name">{lines}</text>'
    )


def _box(chapter: Chapter, x: float, y: float) -> str:
    """A chapter's box, with its number and its title in as many lines as it takes."""
    w, h = BOX
    words = textwrap.wrap(f"{chapter.number} {chapter.title}", LETTERS)
    top = y + h / 2 - len(words) * LINE / 2 + LINE - 3
    first, rest = words[0].removeprefix(chapter.number), words[1:]
    spans = f'<tspan class="number">{chapter.number}</tspan>{html.escape(first)}'
    spans += "".join(
        f'<tspan x="{x + 8:g}" dy="{LINE}">{html.escape(word)}</tspan>' for word in rest
    )
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{w}" height="{h}" rx="5"/>'
        f'<text x="{x + 8:g}" y="{top:g}">{spans}</text>'
    )


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    """From a box to one below it or further right."""
    (ax, ay), (bx, by), (w, h) = start, end, BOX
    if ay == by and bx - ax <= w + GAP[0]:
        return f"M{ax + w:g} {ay + h / 2:g}H{bx:g}"
    if ay == by:  # over the boxes between
        ax, bx = ax + w * 0.65, bx + w * 0.35
        return f"M{ax:g} {ay:g}C{ax:g} {ay - 16:g} {bx:g} {ay - 16:g} {bx:g} {by:g}"
    ax, bx, ay = ax + w / 2, bx + w / 2, ay + h
    bend = min(46, (by - ay) / 2)
    return f"M{ax:g} {ay:g}C{ax:g} {ay + bend:g} {bx:g} {by - bend:g} {bx:g} {by:g}"


def narrow(book: Book) -> str:
    """All chapters below each other, what builds on what as arcs at the left."""
    middle, bands, y = {}, [], 0
    for part, name in book.parts:
        own = [c.page for c in book.chapters if c.part == part]
        height = CAPTION + ROW * len(own)
        bands.append(
            f'<rect class="band" y="{y}" width="{NARROW}" height="{height}" rx="6"/>'
            f'<text class="name" x="{ARCS + 8}" y="{y + 22}">{part} · '
            f"{html.escape(name)}</text>"
        )
        for k, page in enumerate(own):
            middle[page] = y + CAPTION + ROW * k + ROW // 2
        y += height + 6
    lines = {
        page: "".join(_arc(middle[p], middle[page]) for p in book.needs[page])
        for page in middle
    }
    out = [
        _link(c, book.address, lines[c.page], _row(c, middle[c.page]))
        for c in book.chapters
    ]
    behind = f'<path class="needs" d="{"".join(lines.values())}"/>'
    return _svg("narrow", NARROW, y, "".join(bands) + behind + "".join(out))


def _row(chapter: Chapter, y: float) -> str:
    """A chapter's line: high enough for a finger."""
    return (
        f'<rect x="{ARCS}" y="{y - ROW / 2 + 1:g}" width="{NARROW - ARCS - 6}" '
        f'height="{ROW - 2}" rx="4"/><text x="{ARCS + 8}" y="{y + 5:g}">'
        f'<tspan class="number">{chapter.number}</tspan> {html.escape(chapter.title)}'
        "</text>"
    )


def _arc(start: float, end: float) -> str:
    """Down the left side, further out the further it leads."""
    out = ARCS - min(ARCS - 4, 8 + (end - start) / 9)
    start, end = start + 3, end - 3
    return f"M{ARCS} {start:g}C{out:g} {start:g} {out:g} {end:g} {ARCS} {end:g}"


def _link(
    chapter: Chapter, address: Callable[[str], str], lines: str, shape: str
) -> str:
    """A chapter as a link; pointed at, it shows the lines that lead to it."""
    lines = f'<path class="needs" d="{lines}"/>' if lines else ""
    return f'<a href="{address(chapter.page)}">{lines}{shape}</a>'


def _svg(form: str, width: float, height: float, inside: str) -> str:
    label = "Map of the chapters: a link each, and lines to those that build on it"
    return (
        f'<svg class="{form}" role="group" aria-label="{label}" '
        f'viewBox="0 0 {width} {height}" style="max-width:{width}px">{inside}</svg>'
    )


# You are here


def on_the_map(
    env, page: str, address: Callable[[str], str]
) -> nodes.definition_list_item:
    """A box's last point: the strip, what the chapter leads to, and the way there."""
    leads = [p for p, needed in env.needs.items() if page in needed]
    said = nodes.paragraph("", "", nodes.raw("", strip(env, page), format="html"))
    said += nodes.Text("Leads to " if leads else "")
    for k, other in enumerate(leads[:MOST_NAMED]):
        said += [nodes.Text(", ")] * bool(k)
        title = env.chapters[other].title
        link = nodes.reference("", title, refuri=address(other), internal=True)
        said += nodes.inline("", "", link)
    more = len(leads) - MOST_NAMED
    if more > 0:
        said += nodes.Text(f" and {more} more")
    said += [nodes.Text("; ")] * bool(leads)
    there = f"{address(env.config.root_doc)}#the-map"
    said += nodes.reference("", "the map", refuri=there, internal=True)
    body = nodes.definition("", said)
    return nodes.definition_list_item("", nodes.term("", "You are here"), body)


def strip(env, page: str) -> str:
    """A dot a chapter, parts apart, this one filled."""
    x, dots = 0.0, []
    for _, own in groupby(env.chapters.values(), key=lambda chapter: chapter.part):
        for chapter in own:
            kind = ' class="here"' * (chapter.page == page)
            dots.append(f'<rect{kind} x="{x:g}" y="1" width="{DOT}" height="10"/>')
            x += DOT + 2
        x += BETWEEN
    width = x - BETWEEN - 2
    return (
        f'<svg class="chapter-strip" aria-hidden="true" viewBox="0 0 {width:g} 12" '
        f'width="{width:g}" height="12">{"".join(dots)}</svg>'
    )


def setup(app) -> dict:
    """Note needs as pages are read; draw once all are known."""
    app.setup_extension("workshop.extensions.chapter_numbers")
    app.add_node(MapNode)
    app.add_directive("chapter-map", ChapterMap)
    app.connect("doctree-read", read_needs, priority=AFTER_BOXES)
    app.connect("env-updated", renew, priority=AFTER_NUMBERS)
    app.connect("doctree-resolved", draw, priority=BEFORE_NUMBERS)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
