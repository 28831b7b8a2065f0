"""Turn nbdev's `#| export` lines into a quiet note that says where a cell lives."""

from __future__ import annotations

import re

from docutils import nodes

DIRECTIVE = re.compile(r"\A(#\|\s*export\s*\n)+")


def note(module: str) -> nodes.container:
    """'Saved in manygpu/scratch/MODULE.py', as a small line above the cell."""
    line = nodes.paragraph(classes=["exported-note"])
    line += nodes.Text("Kept in ")
    line += nodes.literal("", f"manygpu/scratch/{module}.py")
    line += nodes.Text(", for later chapters to import")
    return nodes.container("", line, classes=["exported"])


def mark_exports(app, doctree: nodes.document) -> None:
    """Take the directive out of each exported cell and put the note before it."""
    module = None
    for block in list(doctree.findall(nodes.literal_block)):
        found = re.search(r"#\| default_exp (\w+)", block.rawsource or block.astext())
        module = found.group(1) if found else module
    if module is None:
        module = app.env.metadata.get(app.env.docname, {}).get("exports_to")
    for block in list(doctree.findall(nodes.literal_block)):
        text = block.astext()
        if not DIRECTIVE.match(text):
            continue
        rest = DIRECTIVE.sub("", text)
        block.children = [nodes.Text(rest)]
        block.rawsource = rest
        cell = block.parent
        cell.insert(cell.index(block), note(module or "?"))


def setup(app) -> dict:
    """Run on each page once it is read."""
    app.connect("doctree-read", mark_exports)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
