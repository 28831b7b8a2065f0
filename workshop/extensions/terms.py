"""Link each word of the glossary, at its first use on a page, to what it means.

Pointing at the link shows the first sentence of the entry, following it leads there. An
entry is linked once a page, by whichever of its forms comes first: one of its terms, or
its plural. The longest form wins: an "input pipeline" is no pipeline. Some terms are
ordinary words, and some mean something else in a chapter: `ONLY_IN` and `NOT_IN` say
where. Headings, questions, links, code, formulas, tables and outputs stay as they are.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from docutils import nodes
from sphinx import addnodes

# Ordinary words, and the chapters in which they have the glossary's meaning.
PIPELINES = ("pipeline", "running-a-pipeline", "smaller-bubble")
SIMULATED = ("whole-cluster", "sixteen-thousand")
PLANNED = (*PIPELINES, "hybrid-meshes", *SIMULATED)
REDUCED = ("all-reduce", "collectives", "mirrored-strategy", *SIMULATED)
ONLY_IN = {
    "asynchronous": ("asynchronous",),
    "axis": ("hybrid-meshes",),
    "dropped": ("experts",),
    "expert": ("experts",),
    "frame": ("many-workers", "step-hangs"),
    "gate": ("experts",),
    "lane": ("whole-cluster",),
    "layout": ("layerwise", "sharded-state", "hybrid-meshes", "side-by-side"),
    "node": ("feeding-the-devices", "hybrid-meshes", *SIMULATED, "which-one"),
    "plan": PLANNED,
    "schedule": (*PLANNED, "three-ways-to-split", "side-by-side"),
    "scheduler": ("bookkeeping",),
    "segment": ("recomputation",),
    "setting": ("which-one", "how-choose-decides"),
    "span": (*PIPELINES[:2], "asynchronous", "whole-cluster"),
    "spread": ("side-by-side",),
    "tree": (*REDUCED, "checklist"),
}
# Terms that mean something else in a chapter.
NOT_IN = {
    "deadline": ("what-it-costs",),
    "efficiency": ("does-the-forecast-rank",),
    "interleaved": ("feeding-the-devices",),
    "overlap": ("many-workers",),
    "pipeline": ("feeding-the-devices", "looking-inside"),
    "rank": ("sending-less", "does-the-forecast-rank"),
    "row split": ("why-slower",),
    "stage": ("feeding-the-devices", "sharded-state"),
    "step": ("collectives", "mixed-precision"),
}
LEFT_ALONE = (addnodes.desc, addnodes.pending_xref, addnodes.toctree, nodes.citation)
LEFT_ALONE += (nodes.block_quote, nodes.comment, nodes.literal, nodes.literal_block)
LEFT_ALONE += (nodes.math, nodes.math_block, nodes.raw, nodes.reference, nodes.rubric)
LEFT_ALONE += (nodes.table, nodes.term, nodes.title)
CARD = "sd-card"  # all of it is a link already
WORD = re.compile(r"\w+")
MORE = re.compile(r"-?\w")  # the form ends within a word, or before a part of one


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
    said = re.escape(form).replace("'", "['’]").replace(r"\-", r"-\s?")
    return re.compile(said.replace(r"\ ", r"[-\s]\s*"))


Forms = dict[str, list[tuple[re.Pattern, str]]]


@functools.cache
def forms_by_first_word(terms: tuple[str, ...]) -> Forms:
    """By a form's first word: what finds each form, the longest first, and its term."""
    found: dict[str, dict[str, str]] = {}
    for term in terms:
        for form in forms_of(term):
            # A sentence may begin with a word, but "zero" is not ZeRO.
            for spelled in (form, f"{form[0].upper()}{form[1:]}"):
                alike = found.setdefault(WORD.match(spelled).group(), {})
                alike.setdefault(spelled, term)
    return {
        word: [(pattern(f), alike[f]) for f in sorted(alike, key=len, reverse=True)]
        for word, alike in found.items()
    }


def uses(terms: Iterable[str], text: str, page: str) -> Iterator[tuple[int, int, str]]:
    """Where a text has a term that means on this page what the glossary says."""
    forms, end = forms_by_first_word(tuple(terms)), 0
    for word in WORD.finditer(text):
        start = word.start()
        if start < end or text[max(0, start - 1) : start] == "-":
            continue
        for spelled, term in forms.get(word.group(), []):
            found = spelled.match(text, start)
            if found and not MORE.match(text, found.end()):
                end = found.end()
                if means_it(term, page.rpartition("/")[2]):
                    yield start, end, term
                break


def means_it(term: str, chapter: str) -> bool:
    """Whether a term has its meaning in a chapter."""
    elsewhere = chapter in NOT_IN.get(term, [])
    return chapter in ONLY_IN.get(term, [chapter]) and not elsewhere


def read_glossary(app, env) -> None:
    """Note the entries once all pages are read."""
    env.glossary_entries = {}
    objects = env.get_domain("std").get_objects()
    for page in sorted({place[3] for place in objects if place[2] == "term"}):
        for item in env.get_doctree(page).findall(nodes.definition_list_item):
            terms = [node for node in item.children if isinstance(node, nodes.term)]
            place = next((place for term in terms for place in term["ids"]), "")
            if place.startswith("term-"):
                entry = Entry(page, place, first_sentence(item.children[-1].astext()))
                env.glossary_entries |= {term.astext(): entry for term in terms}


def plain_texts(node: nodes.Element) -> Iterator[nodes.Text]:
    """The texts of a page's prose, in order."""
    for child in node.children:
        if isinstance(child, nodes.Text):
            yield child
        elif isinstance(child, LEFT_ALONE) or child.get("nb_element"):
            pass
        elif CARD not in child.get("classes", ()):
            yield from plain_texts(child)


def link_terms(app, doctree: nodes.document, page: str) -> None:
    """Make a link of the first use of each entry on a page."""
    entries = app.env.glossary_entries
    if not entries or page in {entry.page for entry in entries.values()}:
        return
    linked = set()
    for text in list(plain_texts(doctree)):
        parts, end = [], 0
        for begin, stop, term in uses(entries, text.astext(), page):
            if (entry := entries[term]) not in linked:
                linked.add(entry)
                link = link_to(entry, text[begin:stop], app.builder, page)
                parts += [nodes.Text(text[end:begin]), link]
                end = stop
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text[end:])])


def link_to(entry: Entry, words: str, builder, page: str) -> nodes.reference:
    """A link to an entry that shows its first sentence."""
    place = f"{builder.get_relative_uri(page, entry.page)}#{entry.place}"
    looks = {"reftitle": entry.says, "classes": ["glossary-term"]}
    return nodes.reference("", words, internal=True, refuri=place, **looks)


def setup(app) -> None:
    """Read the glossary once all pages are read; link each page as it is written."""
    app.connect("env-updated", read_glossary)
    app.connect("doctree-resolved", link_terms)
