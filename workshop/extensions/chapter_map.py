"""A map of the chapters: what there is, and what each one builds on.

`{chapter-map}` makes it from two things that the book has anyway: the parts of
_toc.yml (see chapter_numbers.py), and the chapters that a chapter's box says it needs.
A need that follows from others is not named: if the ring needs a step on many devices,
and that needs all-reduce, two links say it. A chapter's box gets a strip that says "you
are here", and what the chapter leads to.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from itertools import groupby

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from workshop.extensions.chapter_numbers import parts_of

MOST_NAMED = 3  # chapters that a box says it leads to
BEFORE_NUMBERS = 400  # so that the links of a box get theirs
AFTER_BOXES = AFTER_NUMBERS = 600

logger = logging.getLogger(__name__)


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
        place.replace_self(nodes.raw("", the_map(env, address), format="html"))
    for box in list(doctree.findall(nodes.definition_list)):
        if "chapter-box" in box["classes"] and page in env.chapters:
            box += on_the_map(env, page, address)


def the_map(env, address: Callable[[str], str]) -> str:
    """Each part's chapters as boxes; a box says after which chapters it comes."""
    out = []
    for part, name, pages in parts_of(env):
        out.append(f"<p>{part} · {html.escape(name)}</p><ol>")
        for page in pages:
            number, title = env.chapters[page].number, env.chapters[page].title
            needed = [(address(p), env.chapters[p]) for p in env.needs[page]]
            after = ", ".join(
                f'<a href="{place}" title="{html.escape(chapter.title)}">'
                f"{chapter.number}</a>"
                for place, chapter in needed
            )
            out.append(
                f'<li><a href="{address(page)}"><b>{number}</b> {html.escape(title)}'
                f"</a>{f'<span>after {after}</span>' if after else ''}</li>"
            )
        out.append("</ol>")
    return f'<div class="chapter-map">{"".join(out)}</div>'


# You are here


def on_the_map(
    env, page: str, address: Callable[[str], str]
) -> nodes.definition_list_item:
    """A box's last point: the strip, what the chapter leads to, and the way there."""
    leads = [p for p, needed in env.needs.items() if page in needed]
    said = nodes.paragraph("", "", nodes.raw("", strip(env, page), format="html"))
    said += nodes.Text("Leads to " if leads else "")
    for k, other in enumerate(leads[:MOST_NAMED]):
        if k:
            said += nodes.Text(", ")
        title = env.chapters[other].title
        link = nodes.reference("", title, refuri=address(other), internal=True)
        said += nodes.inline("", "", link)
    if len(leads) > MOST_NAMED:
        said += nodes.Text(f" and {len(leads) - MOST_NAMED} more")
    said += nodes.Text("; " if leads else "")
    there = f"{address(env.config.root_doc)}#the-map"
    said += nodes.reference("", "the map", refuri=there, internal=True)
    body = nodes.definition("", said)
    return nodes.definition_list_item("", nodes.term("", "You are here"), body)


def strip(env, page: str) -> str:
    """A dot a chapter, parts apart, this one filled."""
    parts = []
    for _, own in groupby(env.chapters.values(), key=lambda chapter: chapter.part):
        here = [' class="here"' * (chapter.page == page) for chapter in own]
        parts.append("".join(f"<i{kind}></i>" for kind in here))
    dots = "".join(f"<b>{part}</b>" for part in parts)
    return f'<span class="chapter-strip" aria-hidden="true">{dots}</span>'


def setup(app) -> None:
    """Note needs as pages are read; draw once all are known."""
    app.setup_extension("workshop.extensions.chapter_numbers")
    app.add_node(MapNode)
    app.add_directive("chapter-map", ChapterMap)
    app.connect("doctree-read", read_needs, priority=AFTER_BOXES)
    app.connect("env-updated", renew, priority=AFTER_NUMBERS)
    app.connect("doctree-resolved", draw, priority=BEFORE_NUMBERS)
