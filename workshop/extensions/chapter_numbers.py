"""Number the chapters, 2.3 for the third of part 2, wherever a page names one.

A part has the number with which its caption in _toc.yml begins ("2 · Data parallel");
its chapters are counted in their order. The number stands before a chapter's title, in
the sidebar, at the way to the next page, in a chapter's box and in lists of the class
`numbered-links`. A link in prose says it when it is pointed at. Files, addresses and
links know nothing of it, so a chapter may move.
"""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple

from docutils import nodes
from sphinx import addnodes

PART = re.compile(r"(\d+) · (.+)")
SPELLED_OUT = ("chapter-box", "numbered-links")
AFTER_THE_THEME = 900


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


def parts_of(env) -> list[tuple[int, str, list[str]]]:
    """Each part that has a number: its number, its name, its pages in order."""
    found = []
    for toctree in env.tocs[env.config.root_doc].findall(addnodes.toctree):
        if named := PART.fullmatch(toctree.get("caption") or ""):
            pages = [page for _, page in toctree["entries"]]
            found.append((int(named[1]), named[2], pages))
    return found


def chapters_of(env) -> dict[str, Chapter]:
    """All chapters of these parts, by page, in the order of the book."""
    return {
        page: Chapter(page, part, place, env.titles[page].astext())
        for part, _, pages in parts_of(env)
        for place, page in enumerate(pages, 1)
    }


def count_chapters(app, env) -> list[str]:
    """Number the sidebar; name the pages to write anew where a number has changed."""
    chapters = chapters_of(env)
    for page, chapter in chapters.items():
        link = next(iter(env.tocs[page].findall(nodes.reference)))
        link["secnumber"] = (chapter.part, chapter.place)
    changed = getattr(env, "chapters", chapters) != chapters
    env.chapters = chapters
    return sorted(env.found_docs) if changed else []


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


def spelled_out(link: nodes.Node) -> bool:
    """Whether a link stands where its number is written, too."""
    while link is not None:
        if set(SPELLED_OUT) & set(link.get("classes", ())):
            return True
        link = link.parent
    return False


def number_ways(app, page, template, context, doctree) -> None:
    """The way to the page before and after says the number, too."""
    for way in ("prev", "next"):
        other = context.get(way)
        chapter = other and app.env.chapters.get(led_to(page, other["link"]))
        if chapter:
            other["title"] = f"{chapter.number} {other['title']}"


def setup(app) -> None:
    """Count once all pages are read; write as each page is written."""
    app.connect("env-updated", count_chapters)
    app.connect("doctree-resolved", write_numbers)
    app.connect("html-page-context", number_ways, priority=AFTER_THE_THEME)
