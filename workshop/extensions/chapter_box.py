"""The header box of a chapter, made of a list that reads well without it.

Below its question, a chapter has four points:

    - **Needs:** [one device](../start/one-device.ipynb)
    - **Time:** 25 minutes
    - **Devices:** one is enough; two or more show the gain
    - **You build:** a pipeline that any layers can run on

The page shows them as a box, with the file to download. A point that is missing or not
known is a warning, which fails the build, and so does a link that leads nowhere.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.util import logging

POINTS = ("Needs", "Time", "Devices", "You build")
DOWNLOAD = "this page as one notebook that runs anywhere"

logger = logging.getLogger(__name__)


def box_list(doctree: nodes.document) -> nodes.bullet_list | None:
    """The list right below a page's question whose first point is in bold, if any."""
    question = next(iter(doctree.findall(nodes.block_quote)), None)
    below = question and question.next_node(descend=False, siblings=True)
    is_box = isinstance(below, nodes.bullet_list) and term_of(below[0])
    return below if is_box else None


def words_of(point: nodes.list_item) -> list[nodes.Node]:
    """What the first paragraph of a point is made of, without empty texts."""
    return [node for node in point[0].children if node.astext()]


def term_of(point: nodes.list_item) -> str:
    """What stands in bold before the colon of a point; "" if nothing does."""
    first = next(iter(words_of(point)), None)
    bold = isinstance(first, nodes.strong) and first.astext().endswith(":")
    return first.astext().removesuffix(":") if bold else ""


def make_box(app, doctree: nodes.document) -> None:
    """Turn that list into a list of terms, and add the download."""
    points = box_list(doctree)
    if points is None:
        return
    found = [term_of(point) for point in points]
    if found != list(POINTS):
        logger.warning(
            "a chapter's box must have the points %s, got %s",
            ", ".join(POINTS),
            ", ".join(term or "one without a term in bold" for term in found),
            location=points,
        )
    box = nodes.definition_list(classes=["chapter-box"])
    for term, point in zip(found, points, strict=True):
        box += definition(term, without_term(point))
    page = app.env.docname
    if app.env.doc2path(page).endswith(".ipynb"):
        up = "../" * page.count("/")
        link = nodes.reference("", DOWNLOAD, refuri=f"{up}_sources/{page}.ipynb")
        box += definition("Download", nodes.paragraph("", "", link))
    points.replace_self(box)


def without_term(point: nodes.list_item) -> nodes.paragraph:
    """What a point says after its term."""
    rest = words_of(point)[1:] if term_of(point) else words_of(point)
    if rest and isinstance(rest[0], nodes.Text):
        rest[0] = nodes.Text(rest[0].lstrip())
    return nodes.paragraph("", "", *rest)


def definition(term: str, said: nodes.paragraph) -> nodes.definition_list_item:
    """One term of the box and what is said of it."""
    body = nodes.definition("", said)
    return nodes.definition_list_item("", nodes.term("", term), body)


def setup(app) -> None:
    """Run on each page once it is read."""
    app.connect("doctree-read", make_box)
