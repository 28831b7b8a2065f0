"""Number the captions of figures and tables on each page, and let prose link to them.

`manygpu.figures` writes captions without numbers, for what stands before a figure is
known only when the page is built. Here "Loss and rate." becomes "Figure 3: Loss and
rate.", with an address of its own. A link [Figure](#figure-loss) to what was named
"loss" gets the number too; without a build, it still reads as a sentence.
"""

from __future__ import annotations

import re
from collections import Counter

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

PART = re.compile(
    r'<(?:figure|div) class="manygpu-(figure|table)[^"]*"(?: data-name="(.+?)")?'
)
CAPTION = re.compile(r'<(figcaption|caption) class="manygpu-caption">')
BEFORE_LINKS_ARE_RESOLVED = 870  # MyST does that at 879

logger = logging.getLogger(__name__)


class Captions(SphinxTransform):
    """Count what has a caption, in the order of the page."""

    default_priority = BEFORE_LINKS_ARE_RESOLVED

    def apply(self, **_: object) -> None:
        """Number a page's captions, then the links to them."""
        count, labels = Counter(), {}
        for raw in list(self.document.findall(nodes.raw)):
            part = PART.search(raw.astext()) if raw["format"] == "html" else None
            if not (part and CAPTION.search(raw.astext())):
                continue
            kind, name = part.groups()
            count[kind] += 1
            label = f"{kind.title()} {count[kind]}"
            place = f"{kind}-{name or count[kind]}"
            if place in labels:
                logger.warning("two things are called %s", place, location=raw)
            labels[place] = label
            self.number(raw, label, place)
        for link in self.document.findall(nodes.reference):
            label = labels.get(link.get("refuri", "").removeprefix("#"))
            if label and link.astext() == label.split()[0]:
                link.children = [nodes.Text(label)]

    def number(self, raw: nodes.raw, label: str, place: str) -> None:
        """Write a number into its caption, and put a place to link to before it."""
        link = f'<a class="caption-number" href="#{place}">{label}</a>: '
        text = CAPTION.sub(lambda found: found.group() + link, raw.astext(), count=1)
        raw.children, raw.rawsource = [nodes.Text(text)], text
        target = nodes.target("", "", ids=[place], names=[place])
        output = raw
        if raw.parent.get("nb_element") == "mime_bundle":
            output = raw.parent  # a page keeps one of its forms
        output.parent.insert(output.parent.index(output), target)
        self.document.note_explicit_target(target)


def setup(app) -> dict:
    """Run on each page as it is read."""
    app.add_transform(Captions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
