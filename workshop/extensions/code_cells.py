"""What a page shows of a code cell beyond its code.

Each cell that ran has a place to link to, #cell- and its id; one that did not has none,
so a link to it is broken, and the test of links says so. nbdev's `#| export` line
becomes a quiet note that says where the cell lives. Each fold says what it holds: the
comment or the docstring with which the cell begins, such as "How the arrows are drawn."
What a comment tells the formatter stays in the notebook, for no reader needs it.
The set-up cell is one small grey line. A page of which nothing ran says so.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode, depart_HideCellInput
from sphinx.util.nodes import NodeMatcher

from workshop.reading import SET_UP

DEFAULT_MODULE = re.compile(r"#\| default_exp ([\w.]+)")
DIRECTIVE = re.compile(r"\A(#\|\s*exporti?\s*\n)+")
FORMAT = re.compile(r" *# fmt: skip$", re.M)
SET_UP_SAYS = "Set-up: fetches the package where it is missing"
PENDING = "This page has not run yet, so it has no numbers and no figures. "
PENDING += "Load it again when `make book` is done."
COMMENT = re.compile(r"\A(?:#(?!\|) ?.*\n?)+")
# What a fold is, before what it says.
KINDS = r"(?:A |Two |Argument )?[Cc]hecks?|Proof|The (?:table|figure|plot)"
LEAD = re.compile(rf"({KINDS}|(?:Check|Proof),? and (?:the )?table): ")


def dress_cells(app, doctree: nodes.document) -> None:
    """Add all that to the code cells of a page that is a notebook."""
    source = Path(app.env.doc2path(app.env.docname))
    if source.suffix != ".ipynb":
        return
    cells = nbformat.read(source, as_version=4).cells
    module = DEFAULT_MODULE.search(source.read_text(encoding="utf-8"))
    if not any(cell.get("execution_count") for cell in cells):
        title = next(iter(doctree.findall(nodes.title)))
        note = nodes.note("", nodes.paragraph("", PENDING))
        title.parent.insert(title.parent.index(title) + 1, note)
    for node in doctree.findall(NodeMatcher(nodes.container, nb_element="cell_code")):
        cell = cells[node["cell_index"]]
        if cell.get("execution_count"):
            node["ids"].append(f"cell-{cell['id']}")
        block = next(iter(node.findall(nodes.literal_block)))
        hide_format(block)
        if module and DIRECTIVE.match(block.astext()):
            note_export(block, module[1])
        if node.get("hide_mode") == "input":
            said = title_of(block.astext())
            node["prompt_show"] = said
            node["prompt_hide"] = re.sub(r"\AShow", "Hide", said)
            if said == SET_UP_SAYS:
                node["classes"].append("set-up")


def hide_format(block: nodes.literal_block) -> None:
    """Drop "# fmt: skip" from the ends of a block's lines."""
    block.rawsource = FORMAT.sub("", block.astext())
    block.children = [nodes.Text(block.rawsource)]


def note_export(block: nodes.literal_block, module: str) -> None:
    """Put 'Kept in manygpu/scratch/PART/CHAPTER.py' in the directive's place."""
    block.rawsource = DIRECTIVE.sub("", block.astext())
    block.children = [nodes.Text(block.rawsource)]
    place = nodes.literal("", f"manygpu/scratch/{module.replace('.', '/')}.py")
    said = nodes.Text("Kept in "), place, nodes.Text(", for later chapters to import")
    line = nodes.paragraph("", "", *said, classes=["exported-note"])
    block.parent.insert(block.parent.index(block), line)


def title_of(code: str) -> str:
    """What the fold of a cell says: its first comment or docstring, one sentence.

    "Show: how the arrows are drawn", "Show the check: both runs learn". Without
    either, it says whether it draws.
    """
    if code.startswith(SET_UP):
        return SET_UP_SAYS
    said = (comment_of(code) or docstring_of(code)).replace("`", "")  # shows no marks
    said = " ".join(said.split())
    lead = LEAD.match(said)
    sentence = re.split(r"(?<=[.?!:])\s", said[lead.end() if lead else 0 :])[0]
    sentence = sentence.rstrip(".:")
    if not sentence:
        return "Show: how this is drawn" if "figures." in code else "Show the code"
    if lead:
        kind = lead[1].lower()
        the = "" if kind.startswith(("a ", "two ", "the ")) else "the "
        return f"Show {the}{kind}: {sentence}"
    # A name or an abbreviation keeps its capital.
    plain = re.match(r"[A-Z][a-z]*(\s|$)", sentence)
    return f"Show: {sentence[0].lower() if plain else sentence[0]}{sentence[1:]}"


def comment_of(code: str) -> str:
    """The comment that a cell begins with, its lines joined; "" if there is none."""
    found = COMMENT.match(code)
    return re.sub("^# ?", "", found[0], flags=re.M).replace("\n", " ") if found else ""


def docstring_of(code: str) -> str:
    """The docstring of what a cell defines first; "" if it begins otherwise."""
    try:
        first, *_ = ast.parse(code).body or [None]
    except SyntaxError:  # a magic command is no Python
        return ""
    named = isinstance(first, ast.FunctionDef | ast.ClassDef)
    return (ast.get_docstring(first) or "") if named else ""


def visit_fold(self, node: HideCodeCellNode) -> None:
    """A fold whose words are its name aloud, too, which they are not in MyST-NB."""
    classes = " ".join(["admonition", "hide", *node["classes"]])
    self.body.append(f'<details class="{classes}">\n<summary>\n')
    for state, words in (("collapsed", "prompt_show"), ("expanded", "prompt_hide")):
        said = self.encode(node[words])
        self.body.append(f'<p class="{state} admonition-title">{said}</p>\n')
    self.body.append("</summary>\n")


def setup(app) -> None:
    """Run on each page once it is read, and where it is written."""
    app.setup_extension("myst_nb")  # whose own way of writing folds is replaced here
    app.connect("doctree-read", dress_cells)
    html = (visit_fold, depart_HideCellInput)
    app.add_node(HideCodeCellNode, override=True, html=html)
