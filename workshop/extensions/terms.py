"""Link each word of the glossary, at its first use on a page, to what it means.

A page explains its own words; those of other pages it takes for granted. So the first
plain use of a term on a page becomes a quiet link: pointing at it shows the first
sentence of its entry, following it leads there. An entry is linked once a page, by
whichever of its forms comes first: a term that stands above it in the glossary, or the
plural of one. The longest form wins: an "input pipeline" is no pipeline.

Some terms are ordinary words, and some mean something else in a chapter: `ONLY_IN` and
`NOT_IN` say where. Headings, questions, links, code, formulas, tables and outputs stay
as they are.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from docutils import nodes
from sphinx import addnodes

# Ordinary words, and the chapters in which they have the glossary's meaning.
PIPELINES = ("pipeline", "running-a-pipeline", "smaller-bubble")
ONLY_IN = {
    "asynchronous": ("asynchronous",),
    "axis": ("hybrid-meshes",),
    "frame": ("many-workers", "step-hangs"),
    "lane": ("whole-cluster",),
    "layout": ("layerwise", "sharded-state", "hybrid-meshes", "side-by-side"),
    "node": ("feeding-the-devices", "hybrid-meshes", "whole-cluster", "which-one"),
    "plan": (*PIPELINES, "hybrid-meshes", "whole-cluster"),
    "schedule": (
        *("three-ways-to-split", *PIPELINES, "hybrid-meshes", "whole-cluster"),
        "side-by-side",
    ),
    "segment": ("recomputation",),
    "setting": ("which-one",),
    "span": (*PIPELINES[:2], "asynchronous", "whole-cluster"),
    "tree": (
        *("all-reduce", "collectives", "mirrored-strategy", "whole-cluster"),
        "checklist",
    ),
}
# Terms that mean something else in a chapter.
NOT_IN = {
    "deadline": ("what-it-costs",),
    "efficiency": ("whole-cluster",),
    "interleaved": ("feeding-the-devices",),
    "overlap": ("many-workers",),
    "pipeline": ("feeding-the-devices", "looking-inside", "sources-checked"),
    "rank": ("sending-less", "whole-cluster"),
    "stage": ("feeding-the-devices", "sharded-state"),
    "step": ("collectives", "mixed-precision"),
}
LEFT_ALONE = (
    addnodes.desc,
    addnodes.pending_xref,
    addnodes.toctree,
    nodes.block_quote,
    nodes.citation,
    nodes.comment,
    nodes.literal,
    nodes.literal_block,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.reference,
    nodes.rubric,
    nodes.table,
    nodes.term,
    nodes.title,
)
CARD = "sd-card"  # all of it is a link already
WORD = re.compile(r"\w+")
PART = re.compile(r"-\w")  # behind a word that is a part of another
JOINTS = {"-": r"-\s?", "'": "['’]"}  # between words; a space may be a hyphen, too


class Entry(NamedTuple):
    """Where an entry of the glossary stands, and its first sentence."""

    page: str
    place: str
    says: str


def forms_of(term: str) -> list[str]:
    """A term and the regular plural of its last word."""
    if re.search(r"[^aeiou]y$", term):
        return [term, f"{term[:-1]}ies"]
    return [term, f"{term}es" if re.search(r"(s|x|ch|sh)$", term) else f"{term}s"]


def first_sentence(text: str) -> str:
    """What a text says up to the first full stop that ends a sentence."""
    return re.split(r"(?<=[.!?])\s+(?=[A-Z])", " ".join(text.split()))[0]


def pattern(form: str) -> re.Pattern:
    """What finds a form, also across a line; "data parallel" may have a hyphen."""
    pieces = re.split(r"([-\s'])", form)
    said = [JOINTS.get(piece, r"[-\s]\s*") for piece in pieces[1::2]]
    words = map(re.escape, pieces[::2])
    return re.compile("".join(a + b for a, b in zip_longest(words, said, fillvalue="")))


class Terms:
    """All forms of all terms, found in a text and told apart by chapter."""

    def __init__(self, entries: dict[str, Entry]) -> None:
        """Take each term's entry."""
        self.entries = entries
        self.forms: dict[str, dict[str, tuple[re.Pattern, str]]] = {}  # by first word
        for term in entries:
            for form in forms_of(term):
                # A sentence may begin with a word, but "zero" is not ZeRO.
                for spelled in (form, f"{form[0].upper()}{form[1:]}"):
                    forms = self.forms.setdefault(WORD.match(spelled).group(), {})
                    forms.setdefault(spelled, (pattern(spelled), term))

    def uses(self, text: str, page: str) -> Iterator[tuple[int, int, Entry]]:
        """Where a text has a term that means on this page what the glossary says."""
        chapter, end = page.rpartition("/")[2], 0
        for word in WORD.finditer(text):
            start = word.start()
            if start < end or text[max(0, start - 1) : start] == "-":
                continue
            found = self.longest(text, word)
            if found:
                end, term = found
                if means_it(term, chapter):
                    yield start, end, self.entries[term]

    def longest(self, text: str, word: re.Match) -> tuple[int, str] | None:
        """Where the longest form that begins with a word ends, and its term."""
        forms = self.forms.get(word.group(), {})
        for form in sorted(forms, key=len, reverse=True):
            spelled, term = forms[form]
            found = spelled.match(text, word.start())
            after = found and WORD.match(text, found.end())
            if found and not after and not PART.match(text, found.end()):
                return found.end(), term
        return None


@functools.cache
def all_terms(entries: tuple[tuple[str, Entry], ...]) -> Terms:
    """Those of these entries: made once, for a book has many pages."""
    return Terms(dict(entries))


def means_it(term: str, chapter: str) -> bool:
    """Whether a term has its meaning in a chapter."""
    return chapter in ONLY_IN.get(term, (chapter,)) and chapter not in NOT_IN.get(
        term, ()
    )


def read_glossary(app, env) -> list[str]:
    """Note the entries once all pages are read; name the pages to write anew."""
    entries = {}
    objects = env.get_domain("std").get_objects()
    for page in sorted({place[3] for place in objects if place[2] == "term"}):
        for item in env.get_doctree(page).findall(nodes.definition_list_item):
            terms = [node for node in item.children if isinstance(node, nodes.term)]
            places = [place for term in terms for place in term["ids"]]
            if not (places and places[0].startswith("term-")):
                continue
            says = first_sentence(item.children[-1].astext())
            entry = Entry(page, places[0], says)
            entries.update((term.astext(), entry) for term in terms)
    known = getattr(env, "glossary_entries", entries)
    env.glossary_entries = entries
    return [] if known == entries else sorted(env.found_docs)


def plain_texts(node: nodes.Element) -> Iterator[nodes.Text]:
    """The texts of a page's prose, in order."""
    for child in node.children:
        if isinstance(child, nodes.Text):
            yield child
        elif not (
            isinstance(child, LEFT_ALONE)
            or child.get("nb_element")
            or CARD in child.get("classes", ())
        ):
            yield from plain_texts(child)


def link_terms(app, doctree: nodes.document, page: str) -> None:
    """Make a link of the first use of each entry on a page."""
    entries = app.env.glossary_entries
    if not entries or page in {entry.page for entry in entries.values()}:
        return
    terms = all_terms(tuple(entries.items()))
    linked = set()
    for text in list(plain_texts(doctree)):
        parts, end = [], 0
        for begin, stop, entry in terms.uses(text.astext(), page):
            if entry in linked:
                continue
            linked.add(entry)
            parts.append(nodes.Text(text[end:begin]))
            parts.append(link_to(entry, text[begin:stop], app.builder, page))
            end = stop
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text[end:])])


def link_to(entry: Entry, words: str, builder, page: str) -> nodes.reference:
    """A link to an entry that shows its first sentence."""
    place = f"{builder.get_relative_uri(page, entry.page)}#{entry.place}"
    return nodes.reference(
        "",
        words,
        internal=True,
        refuri=place,
        reftitle=entry.says,
        classes=["glossary-term"],
    )


def setup(app) -> dict:
    """Read the glossary once all pages are read; link each page as it is written."""
    app.connect("env-updated", read_glossary)
    app.connect("doctree-resolved", link_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
