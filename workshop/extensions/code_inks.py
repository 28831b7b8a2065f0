"""Colour code without an element for each word of it.

A chapter has thousands of names, brackets and numbers, and Pygments puts each into an
element of its own: most of a page's elements, and half of its bytes. Here a block is
plain text; which stretches of it have which colour stands in one attribute, and
inks.js paints them when the block comes into view (CSS Custom Highlight API). Comments,
docstrings and the names of what is defined stay elements, so that a page without
scripts keeps its landmarks.

The colours are those of the theme's two Pygments styles.
"""

from __future__ import annotations

import html
import string
from collections.abc import Iterable, Iterator
from pathlib import Path

from pygments.formatters import HtmlFormatter
from pygments.styles import get_style_by_name
from pygments.token import STANDARD_TYPES, Comment, Name, String, Text
from sphinx.highlighting import PygmentsBridge

LANDMARKS = (Comment, String.Doc, Name.Function, Name.Class)
STYLES = {"light": "a11y-high-contrast-light", "dark": "a11y-high-contrast-dark"}
Colours = tuple[str, str]


def colours_of(kind) -> Colours:
    """The colours of a kind of token, in the light and in the dark style."""
    while kind not in STANDARD_TYPES:  # a traceback has more, which no style knows
        kind = kind.parent
    light, dark = (
        get_style_by_name(STYLES[theme]).style_for_token(kind)["color"] or ""
        for theme in ("light", "dark")
    )
    return light, dark


def all_inks() -> dict[Colours, str]:
    """A letter for each pair of colours that isn't plain text's."""
    pairs = sorted({colours_of(kind) for kind in STANDARD_TYPES})
    plain = {colours_of(Text), colours_of(Name), ("", "")}
    return dict(
        zip([p for p in pairs if p not in plain], string.ascii_lowercase, strict=False)
    )


INKS = all_inks()


def stylesheet() -> str:
    """The rules of all inks, on both themes."""
    rules = []
    for pair, letter in INKS.items():
        for theme, colour in zip(STYLES, pair, strict=True):
            where = f'html[data-theme="{theme}"] '
            painted = f"{where}pre::highlight(ink-{letter}) {{ color: #{colour} }}"
            wrapped = f"{where}pre .ink-{letter} {{ color: #{colour} }}"
            rules += [painted, wrapped]  # apart: who doesn't know one drops its rule
    return "\n".join(rules) + "\n"


def runs(tokens: Iterable[tuple]) -> Iterator[tuple[object, str]]:
    """Tokens as (landmark or ink or "", text), neighbours of a kind joined."""
    last, joined = "", ""
    for kind, text in tokens:
        landmark = next((mark for mark in LANDMARKS if kind in mark), None)
        now = landmark or INKS.get(colours_of(kind), "")
        if not text.strip():
            now = last  # a space has no colour
        if now != last:
            if joined:
                yield last, joined
            last, joined = now, ""
        joined += text
    if joined:
        yield last, joined


def inked(tokens: Iterable[tuple]) -> tuple[str, str]:
    """A block's HTML, and its inks: "k3.5" is ink k on five letters after three."""
    pieces, inks, gap = [], [], 0
    for what, text in runs(tokens):
        piece, size = html.escape(text, quote=False), letters(text)
        if isinstance(what, str):
            if what:
                inks.append(f"{what}{gap}.{size}")
                gap = -size
        else:
            piece = f'<span class="{STANDARD_TYPES[what]}">{piece}</span>'
        pieces.append(piece)
        gap += size
    return "".join(pieces), " ".join(inks)


def letters(text: str) -> int:
    """How long a browser thinks that a text is: it counts in UTF-16."""
    return len(text.encode("utf-16-le")) // 2


class InkFormatter(HtmlFormatter):
    """A block as plain text with an attribute, unless lines are numbered or marked."""

    def format_unencoded(self, tokensource, outfile) -> None:
        """Write one block."""
        if self.linenos or self.hl_lines or self.nowrap:
            super().format_unencoded(tokensource, outfile)
            return
        text, inks = inked(tokensource)
        said = f' data-inks="{inks}"' if inks else ""
        # A browser drops the first line break of a <pre>, so it gets one to drop.
        outfile.write(f'<div class="highlight"><pre{said}>\n{text}</pre></div>\n')


def put_stylesheet(app, *_: object) -> None:
    """Put the inks' colours where the other styles go."""
    if app.builder.format == "html":
        target = Path(app.outdir) / "_static" / "inks.css"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(stylesheet(), encoding="utf-8")


def setup(app) -> dict:
    """Write all blocks so, and give each page the colours; inks.js is in _static."""
    PygmentsBridge.html_formatter = InkFormatter
    app.add_css_file("inks.css")
    app.connect("builder-inited", put_stylesheet)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
