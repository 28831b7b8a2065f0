"""Render mathematics as MathML, which browsers draw themselves.

MathJax would be fetched from a network the reader may not have. The converter is
docutils' own.
"""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def inline(self, node: nodes.math) -> None:
    """Write an inline formula."""
    self.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def block(self, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    formula = tex2mathml(node.astext(), as_block=True)
    self.body.append(f'<div class="math-block">{formula}</div>\n')
    raise nodes.SkipNode


def setup(app) -> dict:
    """Register the renderer; `html_math_renderer: mathml` chooses it."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
