"""Fewer elements on each page, which looks the same.

Formulas are MathML, which browsers draw themselves; the converter is docutils' own.
MathJax would be fetched from a network the reader may not have. A browser may break a
line between a formula and its comma, so they are bound to each other. And it gives the
name of a function no space, and a phone no line for each of two formulas in a row.

A chapter has thousands of names, brackets and numbers, and Pygments puts each into an
element of its own: most of a page's elements, and half of its bytes. Here a block is
plain text; which stretches of it are keywords, strings or numbers stands in one
attribute, and inks.js paints them (CSS Custom Highlight API) as book.css says.
Comments, docstrings and the names of what is defined stay elements, so that a page
without scripts keeps its landmarks.

Sphinx puts each word of code in a sentence, each comma of a signature, and each colon
of a list of arguments into an element of its own: on the API's pages, two of three. It
gives the bibliography roles that ARIA has given up, and a table's empty corner the role
of a heading.
"""

from __future__ import annotations

import functools
import html
import itertools
import re
from collections.abc import Iterable

from bs4 import BeautifulSoup
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from pygments.formatters import HtmlFormatter
from pygments.token import Comment, Keyword, Name, Number, Operator, String
from sphinx.highlighting import PygmentsBridge

CLOSE = 'lspace="0" rspace="0"'
UPRIGHT = '<mi mathvariant="normal">'  # a single letter would be set in italics
# What the converter writes, and what TeX would set.
AS_IN_TEX = {
    '<mo stretchy="false">|</mo>': f'<mo stretchy="false" {CLOSE}>|</mo>',
    "<mo>'</mo>": f"<mo {CLOSE}>′</mo>",
    '<mi class="capital-greek">': UPRIGHT,
    "<mi>∇</mi>": f"{UPRIGHT}∇</mi>",
}
# TeX sets a thin space around a function's name, but none before its bracket.
THIN = '<mspace width="0.1667em"></mspace>'
FUNCTION = r"<mi>(?:arg|cos|det|exp|ln|log|sin|tan)</mi>"
AFTER = re.compile(
    rf"({FUNCTION}\s*<mo>&ApplyFunction;</mo>|<msu[bp]>\s*{FUNCTION}.*?</msu[bp]>)"
    r"(?!\s*(?:<mrow>\s*)?<mo[^>]*>[(\[|]|\s*</m)",
    re.S,
)
BEFORE = re.compile(
    rf"(</(?:mi|mn|mfrac|mrow|msub|msup|msubsup)>)(?=\s*(?:<msu[bp]>\s*)?{FUNCTION})"
)
# TeX's {,} within a number is no comma between two.
GROUPS = re.compile(r"(\d)</mn>\s*<mo>,</mo>\s*<mn>(?=\d{3})")
SIDE_BY_SIDE = re.compile(r"\\qquad(?![a-zA-Z])")
BOUND = re.compile(  # a formula in a line, and what has no space before or after it
    r'[(“]?<math xmlns="[^"]*">(?:(?!</math>).)*</math>(?:[^\s<&]|&\w+;){1,12}', re.S
)
# The class of an element, or else the letter of an ink; all other tokens are plain.
LANDMARKS = {Comment: "c", String.Doc: "sd", Name.Function: "nf", Name.Class: "nc"}
INKS = {Keyword: "k", Operator.Word: "k", String: "s"}
INKS |= dict.fromkeys([Number, Name.Builtin, Name.Decorator], "n")
LOOKS = LANDMARKS | INKS
WORD = re.compile(r'<span class="(?:pre|colon)">(.*?)</span>', re.S)
SIGNATURE = re.compile(r'(<dt class="sig .*?>)(.*?)(</dt>)', re.S)
ROLE = re.compile(r'(<div (?:class="citation[^>]*?)) role="(?:list|doc-biblioentry)"')
LIST = '<div role="list" class="citation-list">'
CORNER = re.compile(r"<th( [^>]*)?>(?:\s*<p>\s*</p>)?\s*</th>")
STOPS = re.compile(r"</em>([,)])")
# A name with its module, as the two stand in a signature.
FULL = re.compile(r'([\w.]+)(</span><span class="sig-name descname">)(\w+)')
# Columns of plain text: two spaces within a line, a row of brackets, a frame. A line
# that is set in by four is code, or a sentence that is broken already. Elsewhere a line
# that is too long for a phone may go on in the next one, as prose does.
COLUMNS = re.compile(r"\S {2,}\S|\t|^ *\[|^ {4,}\S|^[-=+|]{3}|\|$", re.M)
LONG = 26  # letters: a small phone's line has 29
KEPT = {"sig-name", "sig-prename"}  # spans that look like something


def formula(tex: str, as_block: bool = False) -> str:
    """A formula of LaTeX as MathML."""
    found = tex2mathml(tex, as_block=as_block)
    for written, mended in AS_IN_TEX.items():
        found = found.replace(written, mended)
    if "{,}" in tex:
        found = GROUPS.sub(r"\1,", found)
    return BEFORE.sub(rf"\1{THIN}", AFTER.sub(rf"\1{THIN}", found))


def side_by_side(tex: str) -> list[str]:
    """The formulas that stand in one row, with a wide space between them.

    A row whose space is within brackets is one formula.
    """
    pieces = [piece.strip() for piece in SIDE_BY_SIDE.split(tex)]
    whole = all(
        piece.count("{") == piece.count("}")
        and piece.count(r"\left") == piece.count(r"\right")
        and r"\begin" not in piece
        for piece in pieces
    )
    return [piece for piece in pieces if piece] if whole else [tex]


def inline(self, node: nodes.math) -> None:
    """Write an inline formula."""
    self.body.append(formula(node.astext()))
    raise nodes.SkipNode


def block(self, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    found = "".join(formula(f, as_block=True) for f in side_by_side(node.astext()))
    self.body.append(f'<div class="math-block">{found}</div>\n')
    raise nodes.SkipNode


@functools.cache
def look(kind: tuple) -> str:
    """The look of a kind of tokens, "" if it is plain."""
    return next((LOOKS[wider] for wider in LOOKS if kind in wider), "")


def inked(tokens: Iterable[tuple]) -> tuple[str, str]:
    """A block's HTML, and its inks: "k3.5" is ink k on five letters after three."""
    pieces, inks, gap = [], [], 0
    for found, alike in itertools.groupby(tokens, lambda token: look(token[0])):
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


def columns(text: str) -> bool:
    """Whether a block has columns, so that its lines may not wrap, as prose may."""
    return bool(COLUMNS.search(text))


def letters(text: str) -> int:
    """How long a browser thinks that a text is: it counts in UTF-16."""
    return len(text.encode("utf-16-le")) // 2


class InkFormatter(HtmlFormatter):
    """Writes a block as plain text with an attribute."""

    def format_unencoded(self, tokensource: Iterable[tuple], outfile) -> None:
        """Write one block."""
        text, inks = inked(tokensource)
        said = f' data-inks="{inks}"' if inks else ' class="columns"' * columns(text)
        # A browser drops the first line break of a <pre>, so it gets one to drop.
        outfile.write(f'<div class="highlight"><pre{said}>\n{text}</pre></div>\n')


def plain(body: str) -> str:
    """A page's HTML with the same words and looks, and fewer elements."""
    body = ROLE.sub(r"\1", body.replace(LIST, '<div class="citation-list">'))
    body = CORNER.sub("<td></td>", WORD.sub(r"\1", body))
    body = BOUND.sub(r'<span class="bound">\g<0></span>', body)
    return SIGNATURE.sub(
        lambda found: found[1] + without_spans(found[2]) + found[3], body
    )


def without_spans(signature: str) -> str:
    """A signature whose spans are those around its name alone.

    A comma belongs to its argument, so that no line begins with one: book.css breaks
    lines between arguments. A name that is longer than a line breaks at its dots.
    """
    soup = BeautifulSoup(signature, "html.parser")
    for span in soup("span"):
        if KEPT.isdisjoint(span.get("class", ())):
            span.unwrap()
    return FULL.sub(at_dots, STOPS.sub(r"\1</em>", str(soup)))


def at_dots(found: re.Match) -> str:
    """A name that may be broken after its module, and before the module's last part."""
    module, between, name = found.groups()
    if len(module) >= LONG:
        module = re.sub(r"\.(?=\w+\.$)", ".<wbr/>", module)
    after = "<wbr/>" if len(module) + len(name) >= LONG else ""
    return f"{module}{after}{between}{name}"


def tidy(app, pagename, templatename, context, doctree) -> None:
    """Tidy a page before it is put into the theme's frame."""
    if "body" in context:
        context["body"] = plain(context["body"])


def setup(app) -> None:
    """Write formulas and all blocks of code so; tidy each page as it is written.

    `html_math_renderer: mathml` chooses the first.
    """
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    PygmentsBridge.html_formatter = InkFormatter
    app.connect("html-page-context", tidy)
