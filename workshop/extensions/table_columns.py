"""Say which columns of a Markdown table hold prose, so that a phone leaves them room.

A browser may make a column as narrow as its longest word. That is right for numbers and
short names, but a sentence would be one word wide and thirty lines high. Tables that
code makes say the same with `--least`: see `manygpu.tables`.
"""

from __future__ import annotations

from docutils import nodes

LETTERS = 30  # a cell with more of them is prose


def name_prose(app, doctree: nodes.document) -> None:
    """Give the class "prose" to all cells of the columns that hold it."""
    for body in doctree.findall(nodes.tbody):
        rows = [list(row.findall(nodes.entry)) for row in body.findall(nodes.row)]
        for column in zip(*rows, strict=True):
            if max(len(cell.astext()) for cell in column) > LETTERS:
                for cell in column:
                    cell["classes"].append("prose")


def setup(app) -> None:
    """Run on each page once it is read."""
    app.connect("doctree-read", name_prose)
