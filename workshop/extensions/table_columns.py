"""Say how a phone shows a Markdown table: which columns hold prose, which rows stack.

A browser may make a column as narrow as its longest word. That is right for numbers and
short names, but a sentence would be one word wide and thirty lines high. Tables that
code makes say the same with `--least`: see `manygpu.tables`. Where two of three columns
hold whole sentences, no phone is wide enough: there the cells of a row are below one
another, each with its column's header, which the style of the table brings along. A
name in a cell may be broken after its parts, as in the tables that code makes.
"""

from __future__ import annotations

import html
import re

from docutils import nodes

from manygpu import _page

LETTERS = 30  # a cell with more of them is prose
SENTENCES = 80  # a cell with more of them is more than one line
STACKED = re.compile(r'(<table class="[^"]*\bstacks\b[^"]*")(.*?</thead>)', re.S)
TABLE = re.compile(r'<table class="[^"]*\b(?:table|docutils)\b.*?</table>', re.S)
CODE = re.compile(r"(?<=>)[^<]*(?=</code>)")
HEADER = re.compile(r"<th\b[^>]*>(.*?)</th>", re.S)


def name_prose(app, doctree: nodes.document) -> None:
    """Give the class "prose" to columns that hold it, "stacks" to tables of them."""
    for body in doctree.findall(nodes.tbody):
        rows = [list(row.findall(nodes.entry)) for row in body.findall(nodes.row)]
        columns = [*zip(*rows, strict=True)]
        longest = [max(len(cell.astext()) for cell in column) for column in columns]
        for column, letters in zip(columns, longest, strict=True):
            if letters > LETTERS:
                for cell in column:
                    cell["classes"].append("prose")
        full = sum(letters > SENTENCES for letters in longest)
        if len(columns) > 2 and full > 1:
            body.parent.parent["classes"].append("stacks")


def with_headers(table: re.Match[str]) -> str:
    """A table that stacks, with its headers in its style."""
    opening, head = table.groups()
    words = [re.sub(r"<[^>]*>|\s+", " ", found) for found in HEADER.findall(head)]
    said = [html.unescape(" ".join(word.split())) for word in words]
    style = "".join(f"--head-{i}:{quoted(word)};" for i, word in enumerate(said, 1))
    return f'{opening} style="{html.escape(style)}"{head}'


def quoted(text: str) -> str:
    """A text as CSS has it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def with_breaks(table: re.Match[str]) -> str:
    """A table whose long names in code may be broken after their parts."""
    return CODE.sub(lambda name: _page.breakable(name[0]), table[0])


def fit(app, pagename, templatename, context, doctree) -> None:
    """Let names break, and each table that stacks say its headers to book.css."""
    if "body" in context:
        body = TABLE.sub(with_breaks, context["body"])
        context["body"] = STACKED.sub(with_headers, body)


def setup(app) -> None:
    """Run on each page once it is read, and as it is written."""
    app.connect("doctree-read", name_prose)
    app.connect("html-page-context", fit)
