"""The page of solutions: each chapter's file of `solutions/`, folded, by part.

`{solutions}` takes nothing. Where the page is left out (`make book SOLUTIONS=no`), what
links to it elsewhere becomes plain words.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml
from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from workshop.pages import ROOT, title_of

PAGE = "book/back/solutions"


class Solutions(SphinxDirective):
    """{solutions}: takes nothing."""

    def run(self) -> list[nodes.Node]:
        """A section for each part that has solutions."""
        made = []
        for caption, pages in solved():
            place = f"solutions-{caption.split()[0]}"
            part = nodes.section("", nodes.title("", caption), ids=[place])
            part.extend(map(folded, pages))
            made.append(part)
        return made


def solved(root: Path = ROOT) -> Iterator[tuple[str, list[str]]]:
    """Each part's caption in _toc.yml, and its pages that have solutions."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    for part in toc["parts"]:
        pages = [each["file"] for each in part["chapters"]]
        if own := [page for page in pages if file_of(page, root).is_file()]:
            yield part["caption"], own


def file_of(page: str, root: Path = ROOT) -> Path:
    """The file that has a page's solutions, if it has any."""
    return root / "solutions" / f"{Path(page).name}.py"


def folded(page: str) -> nodes.Node:
    """A page's solutions, shown by who asks for them."""
    said = f"Show: {title_of(page)}"
    hidden = "Hide" + said.removeprefix("Show")
    fold = HideCodeCellNode(prompt_show=said, prompt_hide=hidden)
    fold["classes"].append("above-input")
    code = file_of(page).read_text(encoding="utf-8")
    block = nodes.literal_block(code, code, language="python")
    fold += nodes.container("", block, classes=["cell_input"])
    # The classes of a notebook's cell, whose folds look so.
    return nodes.container("", fold, classes=["cell", "tag_hide-input"])


def cut_links(app, doctree: nodes.document) -> None:
    """Keep what links to the page say, where there is no such page."""
    if PAGE in app.env.found_docs:
        return
    for link in list(doctree.findall(addnodes.pending_xref)):
        if PAGE.rpartition("/")[2] == Path(link["reftarget"]).stem:
            link.parent.replace(link, nodes.inline("", link.astext()))


def setup(app) -> None:
    """A directive; and look at the links of each page as it is read."""
    app.setup_extension("myst_nb")
    app.add_directive("solutions", Solutions)
    app.connect("doctree-read", cut_links)
