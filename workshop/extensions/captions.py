"""Number the captions of figures and tables on each page, and let prose link to them.

`manygpu.figures` writes captions without numbers, for what stands before a figure is
known only when the page is built. Here "Loss and rate." becomes "Figure 3: Loss and
rate.", with an address of its own. A link [Figure](#figure-loss) to what was named
"loss" gets the number too; without a build, it still reads as a sentence.

A table in Markdown has its caption in the paragraph before it: "Table: What it costs."
"""

from __future__ import annotations

import re
from collections import Counter

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

PART = r'<(?:figure|div) class="manygpu-(figure|table)[^"]*"(?: data-name="(.+?)")?'
CAPTION = re.compile(r'<(figcaption|caption) class="manygpu-caption">')
CAPTION_OF_MARKDOWN = "Table: "
BEFORE_LINKS_ARE_RESOLVED = 870  # MyST does that at 879

logger = logging.getLogger(__name__)


def part_of(node: nodes.Node) -> tuple[str, str | None] | None:
    """What a node with a caption is, and its name; None for all others."""
    if isinstance(node, nodes.table):
        return ("table", None) if caption_before(node) else None
    if not isinstance(node, nodes.raw) or node["format"] != "html":
        return None
    part = re.search(PART, node.astext())
    return part.groups() if part and CAPTION.search(node.astext()) else None


def caption_before(table: nodes.table) -> nodes.paragraph | None:
    """The paragraph that is a Markdown table's caption."""
    place = table.parent.index(table)
    before = table.parent[place - 1] if place else None
    said = isinstance(before, nodes.paragraph) and before.astext()
    return before if said and said.startswith(CAPTION_OF_MARKDOWN) else None


class Captions(SphinxTransform):
    """Count what has a caption, in the order of the page."""

    default_priority = BEFORE_LINKS_ARE_RESOLVED

    def apply(self, **_: object) -> None:
        """Number a page's captions, then the links to them."""
        count, labels = Counter(), {}
        for node in list(self.document.findall(part_of)):
            kind, name = part_of(node)
            count[kind] += 1
            label = f"{kind.title()} {count[kind]}"
            place = f"{kind}-{name or count[kind]}"
            if place in labels:
                logger.warning("two things are called %s", place, location=node)
            labels[place] = label
            is_table = isinstance(node, nodes.table)
            (self.entitle if is_table else self.number)(node, label, place)
        for link in self.document.findall(nodes.reference):
            label = labels.get(link.get("refuri", "").removeprefix("#"))
            if label and link.astext() == label.split()[0]:
                link.children = [nodes.Text(label)]

    def number(self, raw: nodes.raw, label: str, place: str) -> None:
        """Write a number into its caption, and put a place to link to before it."""
        link = f'<a class="caption-number" href="#{place}">{label}</a>: '
        text = CAPTION.sub(lambda found: found.group() + link, raw.astext(), count=1)
        raw.children, raw.rawsource = [nodes.Text(text)], text
        # A page keeps one of an output's forms.
        one_form = raw.parent.get("nb_element") == "mime_bundle"
        self.put(place, raw.parent if one_form else raw)

    def entitle(self, table: nodes.table, label: str, place: str) -> None:
        """Make the paragraph before a Markdown table its caption, with a number."""
        said = caption_before(table)
        said.parent.remove(said)
        first = said[0].astext().removeprefix(CAPTION_OF_MARKDOWN)
        looks = {"classes": ["caption-number"], "internal": True}
        link = nodes.reference("", label, refuri=f"#{place}", **looks)
        # Not a title: Sphinx would number it, too, through the whole book.
        tags = '<caption class="manygpu-caption">', "</caption>"
        begin, end = (nodes.raw("", tag, format="html") for tag in tags)
        words = nodes.inline("", "", link, nodes.Text(f": {first}"), *said[1:])
        table[0:0] = [begin, words, end]
        self.put(place, table)

    def put(self, place: str, node: nodes.Node) -> None:
        """Put a place to link to before a node."""
        target = nodes.target("", "", ids=[place], names=[place])
        node.parent.insert(node.parent.index(node), target)
        self.document.note_explicit_target(target)


def setup(app) -> None:
    """Run on each page as it is read."""
    app.add_transform(Captions)
