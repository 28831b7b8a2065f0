"""Makes slides of a chapter: its page is the one source, and most of it stays out.

A slide is the title with its question, a figure or a table with its line "Here:", what
is to be guessed first, the first code of a heading that isn't folded away, or the
summary. A heading that has none of them shows its first paragraph. The other prose is
in the speaker's notes (key S). sphinx-revealjs writes them; `workshop/slides.py` calls
it.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import NamedTuple

from docutils import nodes
from sphinx import addnodes

FIGURES = ('class="manygpu-figure', 'class="manygpu-table')
HERE, ASKS = 'class="manygpu-here', "manygpu-guess"
SEEN = (*FIGURES, HERE)
MOST_HERE = 3  # lines "Here:" on one slide
DRAWS = "figures."  # code that has it stays out: what it draws is seen
LEAST_CODE = 3  # lines: what is shorter only calls what draws
SUMMARY = "Summary"
AFTER_THE_OTHERS = 900
PROSE = (nodes.paragraph, nodes.list_item, nodes.block_quote)


class Slide(NamedTuple):
    """One slide: what is seen, and what is said beside it."""

    title: nodes.title
    seen: list[nodes.Node]
    said: list[str]


def make_slides(app, doctree: nodes.document) -> None:
    """Put a page's slides in the place of its sections."""
    page = next(iter(doctree.findall(nodes.section)))
    cut_links(page)
    first, *others = [s for part in headings(page) for s in slides_of(part)]
    deck = section(first, 1)
    deck.extend(section(slide, number) for number, slide in enumerate(others, 2))
    doctree.children = []
    doctree += deck


def cut_links(page: nodes.section) -> None:
    """Keep what links within the book say; citations go: a slide has no list."""
    for link in list(page.findall(addnodes.pending_xref)):
        if link.get("refdomain") == "cite":
            remove(link)
        else:
            link.parent.replace(link, nodes.inline("", link.astext()))
    for link in list(page.findall(nodes.reference)):
        if "refuri" not in link or "://" not in link["refuri"]:
            link.parent.replace(link, nodes.inline("", link.astext()))


def remove(node: nodes.Node) -> None:
    """Take a node out of its sentence, with the space before it."""
    place = node.parent.index(node)
    before = node.parent[place - 1] if place else None
    if isinstance(before, nodes.Text):
        node.parent.replace(before, nodes.Text(before.rstrip()))
    node.parent.remove(node)


def headings(part: nodes.section) -> Iterator[list[nodes.Node]]:
    """Each heading of a page with what stands below it, before the next one."""
    yield [node for node in part if not isinstance(node, nodes.section)]
    for inner in part:
        if isinstance(inner, nodes.section):
            yield from headings(inner)


def slides_of(part: list[nodes.Node]) -> list[Slide]:
    """The slides of a heading, at least one."""
    title, *below = part
    made: list[Slide] = []
    said: list[str] = []
    if isinstance(title.parent.parent, nodes.document):
        made.append(opening(title, below))
        below = below[2:]
    for node in below:
        if is_cell(node):
            for seen in things_of(node, has_code(made)):
                add(made, title, seen, said)
        elif is_shown(node, title, has_code(made)):
            add(made, title, node, said)
        else:
            said += text_of(node)
    if not made:
        first = next((node for node in below if isinstance(node, PROSE)), None)
        add(made, title, first or nodes.paragraph(), said)
    made[-1].said.extend(said)
    return made


def opening(title: nodes.title, below: list[nodes.Node]) -> Slide:
    """The first slide: the question and, of the box below it, what is built."""
    question = [node for node in below[:1] if isinstance(node, nodes.block_quote)]
    box = [node for node in below[1:2] if isinstance(node, nodes.bullet_list)]
    points = [point for each in box for point in each]
    built = [p[0] for p in points if p.astext().startswith("You build")]
    return Slide(title, question + built, [])


def is_shown(node: nodes.Node, title: nodes.title, shown: bool) -> bool:
    """Whether this is more than prose: a table, first code, or the summary's points."""
    if isinstance(node, nodes.bullet_list):
        return title.astext() == SUMMARY
    code = isinstance(node, nodes.literal_block) and not shown
    return code or isinstance(node, nodes.table)


def is_cell(node: nodes.Node) -> bool:
    """Whether this is a code cell."""
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"


def has_code(made: list[Slide]) -> bool:
    """Whether a heading's slides show code already."""
    return any(isinstance(n, nodes.literal_block) for slide in made for n in slide.seen)


def things_of(cell: nodes.container, shown: bool) -> Iterator[nodes.Node]:
    """What of a cell is seen: code, unless some is shown, figures, lines "Here:"."""
    code, *_ = cell.findall(nodes.literal_block)
    long = code.astext().count("\n") + 1 >= LEAST_CODE
    folded = cell.get("hide_mode") or DRAWS in code.astext()
    if long and not shown and not folded:
        yield code
    for raw in cell.findall(nodes.raw):
        if raw["format"] == "html" and any(s in raw.astext() for s in SEEN):
            yield raw


def is_here(node: nodes.Node) -> bool:
    """Whether this is a line of results, such as "Here:"."""
    said = node.astext() if isinstance(node, nodes.raw) else ""
    return HERE in said and ASKS not in said


def add(
    made: list[Slide], title: nodes.title, seen: nodes.Node, said: list[str]
) -> None:
    """Put a thing on a slide of its own; a line "Here:" with what it is about."""
    lines = [is_here(node) for node in made[-1].seen] if made else []
    guess = bool(lines) and ASKS in made[-1].seen[-1].astext()
    if lines and is_here(seen) and sum(lines) < MOST_HERE and not guess:
        made[-1].seen.append(seen)
    elif lines and all(lines):  # they came first
        made[-1].seen.insert(0, seen)
    else:
        made.append(Slide(title, [seen], []))
    made[-1].said.extend(said)
    said.clear()


def text_of(node: nodes.Node) -> list[str]:
    """The paragraphs of a piece of prose."""
    found = [p.astext() for p in node.findall(nodes.paragraph)]
    return [" ".join(each.split()) for each in found if each.strip()]


def section(slide: Slide, number: int) -> nodes.section:
    """A slide as Sphinx writes it."""
    made = nodes.section("", slide.title.deepcopy(), ids=[f"slide-{number}"])
    made.extend(node.deepcopy() for node in slide.seen)
    if slide.said:
        prose = "".join(f"<p>{html.escape(each)}</p>" for each in slide.said)
        notes = f'<aside class="notes">{prose}</aside>'
        made += nodes.raw("", notes, format="html")
    return made


def setup(app) -> None:
    """Run on each page after all that dresses its cells and counts its figures."""
    app.setup_extension("sphinx_revealjs")
    app.connect("doctree-read", make_slides, priority=AFTER_THE_OTHERS)
