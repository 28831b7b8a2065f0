"""Give each code cell that ran a place to link to: #cell- and the cell's id.

The table of checked claims links to the cells that show them. A cell that did not run
gets no place, so a link to it is broken, and the test of links says so.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from docutils import nodes
from sphinx.util.nodes import NodeMatcher


def name_cells(app, doctree: nodes.document) -> None:
    """Name the cells of a page as its notebook does."""
    source = Path(app.env.doc2path(app.env.docname))
    if source.suffix != ".ipynb":
        return
    cells = nbformat.read(source, as_version=4).cells
    for node in doctree.findall(NodeMatcher(nodes.container, nb_element="cell_code")):
        cell = cells[node["cell_index"]]
        if cell.get("execution_count"):
            node["ids"].append(f"cell-{cell['id']}")


def setup(app) -> dict:
    """Run on each page once it is read."""
    app.connect("doctree-read", name_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
