"""Take elements and roles out of a page that look like nothing and say nothing.

Sphinx puts each word of code in a sentence, and each comma of a signature, into an
element of its own: on the API's pages, two of three. It gives the bibliography roles
that ARIA has given up, and a table's empty corner the role of a heading.
"""

from __future__ import annotations

import re

WORD = re.compile(r'<span class="pre">(.*?)</span>', re.S)
SIGNATURE = re.compile(r'(<dt class="sig .*?>)(.*?)(</dt>)', re.S)
SPAN = re.compile(r"<span[^>]*>|</span>")
ROLE = re.compile(r'(<div (?:class="citation[^>]*?)) role="(?:list|doc-biblioentry)"')
LIST = '<div role="list" class="citation-list">'
CORNER = re.compile(r"<th( [^>]*)?>(?:\s*<p>\s*</p>)?\s*</th>")
KEPT = re.compile(r'<span class="sig-(?:name|prename)')  # they look like something


def plain(body: str) -> str:
    """A page's HTML with the same words and looks, and fewer elements."""
    body = ROLE.sub(r"\1", body.replace(LIST, '<div class="citation-list">'))
    body = CORNER.sub("<td></td>", WORD.sub(r"\1", body))
    return SIGNATURE.sub(
        lambda found: found[1] + without_spans(found[2]) + found[3], body
    )


def without_spans(signature: str) -> str:
    """A signature whose spans are those around its name alone."""
    kept: list[bool] = []

    def decide(found: re.Match) -> str:
        if found.group() != "</span>":
            kept.append(KEPT.match(found.group()) is not None)
            return found.group() if kept[-1] else ""
        return found.group() if kept.pop() else ""

    return SPAN.sub(decide, signature)


def tidy(app, pagename, templatename, context, doctree) -> None:
    """Tidy a page before it is put into the theme's frame."""
    if "body" in context:
        context["body"] = plain(context["body"])


def setup(app) -> None:
    """Run on each page as it is written."""
    app.connect("html-page-context", tidy)
