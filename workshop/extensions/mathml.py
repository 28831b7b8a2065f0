"""Render mathematics as MathML, which browsers draw themselves.

MathJax would be fetched from a network the reader may not have. The converter is
docutils' own.
"""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

CLOSE = 'lspace="0" rspace="0"'
UPRIGHT = '<mi mathvariant="normal">'  # a single letter would be set in italics
# What the converter writes, and what TeX would set.
AS_IN_TEX = {
    '<mo stretchy="false">|</mo>': f'<mo stretchy="false" {CLOSE}>|</mo>',
    "<mo>'</mo>": f"<mo {CLOSE}>′</mo>",
    '<mi class="capital-greek">': UPRIGHT,
    "<mi>∇</mi>": f"{UPRIGHT}∇</mi>",
}


def formula(tex: str, as_block: bool = False) -> str:
    """A formula of LaTeX as MathML."""
    found = tex2mathml(tex, as_block=as_block)
    for written, mended in AS_IN_TEX.items():
        found = found.replace(written, mended)
    return found


def inline(self, node: nodes.math) -> None:
    """Write an inline formula."""
    self.body.append(formula(node.astext()))
    raise nodes.SkipNode


def block(self, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    found = formula(node.astext(), as_block=True)
    self.body.append(f'<div class="math-block">{found}</div>\n')
    raise nodes.SkipNode


def setup(app) -> None:
    """Register the renderer; `html_math_renderer: mathml` chooses it."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
