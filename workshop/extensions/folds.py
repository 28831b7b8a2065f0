"""Let each fold of code say what it holds, and the set-up cell be one small grey line.

A cell that is tagged hide-input begins with a comment, or a docstring: "How the arrows
are drawn." That is what its fold says.
"""

from __future__ import annotations

import ast
import re

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode, depart_HideCellInput
from sphinx.util.nodes import NodeMatcher

SET_UP = "# Nothing to do where the book is installed."
SET_UP_SAYS = "Set-up: fetches the package where it is missing"
COMMENT = re.compile(r"\A(?:#(?!\|) ?.*\n?)+")


def title_of(code: str) -> str:
    """What the fold of a cell says: its first comment or docstring, one sentence.

    "Show: how the arrows are drawn". Without either, it says whether it draws.
    """
    if code.startswith(SET_UP):
        return SET_UP_SAYS
    said = comment_of(code) or docstring_of(code)
    plain_said = " ".join(said.split()).replace("`", "")  # a fold shows no marks
    sentence = re.split(r"(?<=[.?!:])\s", plain_said)[0].rstrip(".:")
    if not sentence:
        return "Show: how this is drawn" if "figures." in code else "Show the code"
    # A name or an abbreviation keeps its capital.
    plain = re.match(r"[A-Z][a-z]*(\s|$)", sentence)
    return f"Show: {sentence[0].lower() if plain else sentence[0]}{sentence[1:]}"


def comment_of(code: str) -> str:
    """The comment that a cell begins with, its lines joined; "" if there is none."""
    found = COMMENT.match(code)
    return (
        " ".join(re.findall(r"^# ?(.*)$", found.group(), flags=re.M)) if found else ""
    )


def docstring_of(code: str) -> str:
    """The docstring of what a cell defines first; "" if it begins otherwise."""
    try:
        first, *_ = ast.parse(code).body or [None]
    except SyntaxError:  # a magic command is no Python
        return ""
    named = isinstance(first, ast.FunctionDef | ast.ClassDef)
    return (ast.get_docstring(first) or "") if named else ""


def name_folds(app, doctree: nodes.document) -> None:
    """Give each folded cell its words; the set-up cell is one that looks different."""
    for cell in doctree.findall(NodeMatcher(nodes.container, nb_element="cell_code")):
        if cell.get("hide_mode") != "input":
            continue
        code = next(iter(cell.findall(nodes.literal_block))).astext()
        said = title_of(code)
        cell["prompt_show"] = said
        cell["prompt_hide"] = re.sub(r"\AShow", "Hide", said)
        if said == SET_UP_SAYS:
            cell["classes"].append("set-up")


def visit_fold(self, node: HideCodeCellNode) -> None:
    """A fold whose words are its name aloud, too, which they are not in MyST-NB."""
    classes = " ".join(["admonition", "hide", *node["classes"]])
    self.body.append(f'<details class="{classes}">\n<summary>\n')
    for state, words in (("collapsed", "prompt_show"), ("expanded", "prompt_hide")):
        said = self.encode(node[words])
        self.body.append(f'<p class="{state} admonition-title">{said}</p>\n')
    self.body.append("</summary>\n")


def setup(app) -> dict:
    """Run on each page once it is read, and where it is written."""
    app.setup_extension("myst_nb")  # whose own way of writing folds is replaced here
    app.connect("doctree-read", name_folds)
    html = (visit_fold, depart_HideCellInput)
    app.add_node(HideCodeCellNode, override=True, html=html)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
