"""Colour code without an element for each word of it.

A chapter has thousands of names, brackets and numbers, and Pygments puts each into an
element of its own: most of a page's elements, and half of its bytes. Here a block is
plain text; which stretches of it are keywords, strings or numbers stands in one
attribute, and inks.js paints them (CSS Custom Highlight API) as book.css says.
Comments, docstrings and the names of what is defined stay elements, so that a page
without scripts keeps its landmarks.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable

from pygments.formatters import HtmlFormatter
from pygments.token import Comment, Keyword, Name, Number, Operator, String
from sphinx.highlighting import PygmentsBridge

# The class of an element, or else the letter of an ink; all other tokens are plain.
LANDMARKS = {Comment: "c", String.Doc: "sd", Name.Function: "nf", Name.Class: "nc"}
INKS = {Keyword: "k", Operator.Word: "k", String: "s"}
INKS |= dict.fromkeys([Number, Name.Builtin, Name.Decorator], "n")
LOOKS = LANDMARKS | INKS


def look(token: tuple) -> str:
    """The look of a token, "" if it is plain."""
    return next((LOOKS[kind] for kind in LOOKS if token[0] in kind), "")


def inked(tokens: Iterable[tuple]) -> tuple[str, str]:
    """A block's HTML, and its inks: "k3.5" is ink k on five letters after three."""
    pieces, inks, gap = [], [], 0
    for found, alike in itertools.groupby(tokens, look):
        text = "".join(text for _, text in alike)
        piece, size = html.escape(text, quote=False), letters(text)
        if found in LANDMARKS.values():
            piece = f'<span class="{found}">{piece}</span>'
        elif found:
            inks.append(f"{found}{gap}.{size}")
            gap = -size
        pieces.append(piece)
        gap += size
    return "".join(pieces), " ".join(inks)


def letters(text: str) -> int:
    """How long a browser thinks that a text is: it counts in UTF-16."""
    return len(text.encode("utf-16-le")) // 2


class InkFormatter(HtmlFormatter):
    """Writes a block as plain text with an attribute."""

    def format_unencoded(self, tokensource: Iterable[tuple], outfile) -> None:
        """Write one block."""
        text, inks = inked(tokensource)
        said = f' data-inks="{inks}"' if inks else ""
        # A browser drops the first line break of a <pre>, so it gets one to drop.
        outfile.write(f'<div class="highlight"><pre{said}>\n{text}</pre></div>\n')


def setup(app) -> None:
    """Write all blocks so; inks.js is in _static."""
    PygmentsBridge.html_formatter = InkFormatter
