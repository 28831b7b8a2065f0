"""Turn nbdev's `#| export` lines into a quiet note that says where a cell lives."""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes

DEFAULT_MODULE = re.compile(r"#\| default_exp ([\w.]+)")
DIRECTIVE = re.compile(r"\A(#\|\s*exporti?\s*\n)+")


def note(module: str) -> nodes.paragraph:
    """'Kept in manygpu/scratch/PART/CHAPTER.py', as a small line above the code."""
    line = nodes.paragraph(classes=["exported-note"])
    line += nodes.Text("Kept in ")
    line += nodes.literal("", f"manygpu/scratch/{module.replace('.', '/')}.py")
    line += nodes.Text(", for later chapters to import")
    return line


def mark_exports(app, doctree: nodes.document) -> None:
    """Take the directive out of each exported cell and put the note before it.

    The module's name is read from the notebook: its own cell is not on the page.
    """
    source = Path(app.env.doc2path(app.env.docname)).read_text(encoding="utf-8")
    found = DEFAULT_MODULE.search(source)
    if not found:
        return
    for block in list(doctree.findall(nodes.literal_block)):
        code = block.astext()
        if not DIRECTIVE.match(code):
            continue
        block.rawsource = DIRECTIVE.sub("", code)
        block.children = [nodes.Text(block.rawsource)]
        block.parent.insert(block.parent.index(block), note(found.group(1)))


def setup(app) -> dict:
    """Run on each page once it is read."""
    app.connect("doctree-read", mark_exports)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
