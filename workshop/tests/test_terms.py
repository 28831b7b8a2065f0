"""The glossary and its links: which words of a page lead to it, and which don't."""

from __future__ import annotations

import json
import re

import pytest
from bs4 import BeautifulSoup

from workshop.extensions import terms
from workshop.pages import ROOT, reading_order
from workshop.tests import small_book

GLOSSARY = ROOT / "book" / "back" / "glossary.md"


def entries(text: str) -> dict[str, terms.Entry]:
    """The terms of a glossary as the page is written, and the entry of each."""
    body = text[text.index("{glossary}\n") :].partition("\n")[2].rpartition(":::")[0]
    found = {}
    for block in body.strip().split("\n\n"):
        lines = block.split("\n")
        said = " ".join(line.strip() for line in lines if line.startswith("  "))
        entry = terms.Entry("back", lines[0], said)
        found |= {line: entry for line in lines if not line.startswith(" ")}
    return found


BOOK = entries(GLOSSARY.read_text(encoding="utf-8"))
SMALL = {
    name: terms.Entry("back", name, f"{name}.")
    for name in (
        *("batch", "micro-batch", "pipeline", "input pipeline", "latency", "ZeRO"),
        *("data parallel", "stage"),
    )
}


def found(text: str, page: str = "some/page", known=SMALL) -> list[str]:
    uses = terms.uses(known, text, page)
    return [text[begin:end] for begin, end, _ in uses]


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ("A batch, and batches.", ["batch", "batches"]),
        ("Micro-batches are no batch", ["Micro-batches", "batch"]),
        ("Latencies, the batch's latency", ["Latencies", "batch", "latency"]),
        ("an input\npipeline and a pipeline", ["input\npipeline", "pipeline"]),
        ("data-parallel training, data parallel", ["data-parallel", "data parallel"]),
        ("batched, rebatch, mini-batch, batch-norm, batch_size", []),
        ("zero, Zero, ZERO and ZeRO", ["ZeRO"]),
        ("BATCH", []),
    ],
)
def test_forms_are_found_and_the_longest_wins(text, uses):
    assert found(text) == uses


def test_a_word_in_another_sense_is_no_term(monkeypatch):
    monkeypatch.setattr(terms, "ONLY_IN", {"stage": ("here",)})
    monkeypatch.setattr(terms, "NOT_IN", {"pipeline": ("here",)})
    text = "stage of a pipeline"
    assert found(text, "book/here") == ["stage"]
    assert found(text, "book/there") == ["pipeline"]


@pytest.mark.parametrize("said", [terms.ONLY_IN, terms.NOT_IN])
def test_exceptions_are_about_terms_and_chapters_that_there_are(said):
    assert said.keys() <= BOOK.keys()
    chapters = {page.rpartition("/")[2] for page in reading_order()} | {"checklist"}
    assert {chapter for named in said.values() for chapter in named} <= chapters


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One. Two.", "One."),
        ("As in 1.5\nGB or so. Also: more", "As in 1.5 GB or so."),
        ("No stop", "No stop"),
    ],
)
def test_a_first_sentence_ends_at_its_stop(text, first):
    assert terms.first_sentence(text) == first


def prose(page: str) -> str:
    """What a chapter says, without headings, quotes, tables, code, formulas, links."""
    cells = json.loads((ROOT / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] != "code")
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    text = re.sub(r"^(#|>|\|).*$", "", text, flags=re.M)
    text = re.sub(r"`[^`]*`|\$\$.*?\$\$|\$[^$\n]+\$", "|", text, flags=re.S)
    return re.sub(r"\[[^\]]*\]\([^)]*\)", "|", text)


def test_each_entry_is_used_in_a_chapter():
    used = {
        BOOK[t] for p in reading_order() for _, _, t in terms.uses(BOOK, prose(p), p)
    }
    assert sorted({e.place for e in BOOK.values()} - {e.place for e in used}) == []


def test_the_glossary_is_in_order():
    names = list(dict.fromkeys(entry.place for entry in BOOK.values()))
    assert names == sorted(names, key=lambda n: re.sub(r"[-\s]+", " ", n).lower())


CONF = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
project = "small"
extensions = ["myst_parser", "workshop.extensions.terms"]
html_theme = "basic"
myst_enable_extensions = ["dollarmath", "colon_fence"]
"""
PAGES = {
    "index.md": "# Small\n\n```{toctree}\nback/words\npart/page\n```\n",
    "back/words.md": """# Words

:::{glossary}
batch
  The samples of one *step*. Or of a {term}`stage`.

sharded state
ZeRO
  Each keeps its part.

stage
  Neighbouring layers, as in a batch.
:::
""",
    "part/page.md": """# A batch in a heading

> A batch in a question?

[A batch](../back/words.md), `batch`, $batch$:

| batch |
|---|
| batch |

    batch of code

First a **batch**, then batches. Of *ZeRO* and sharded state, the first.

## More

One batch, two stages, three stages.
""",
}


@pytest.fixture(scope="module")
def html(tmp_path_factory) -> dict[str, BeautifulSoup]:
    """The pages of a small book."""
    root = tmp_path_factory.mktemp("words")
    small_book.write(root, {**PAGES, "conf.py": CONF})
    return small_book.pages(root)


def test_the_first_plain_use_leads_to_the_entry_and_says_it(html):
    links = html["part/page"].select("a.glossary-term")
    assert [(a.get_text(), a["href"], a["title"]) for a in links] == [
        ("batch", "../back/words.html#term-batch", "The samples of one step."),
        ("ZeRO", "../back/words.html#term-sharded-state", "Each keeps its part."),
        (
            "stages",
            "../back/words.html#term-stage",
            "Neighbouring layers, as in a batch.",
        ),
    ]
    assert links[0].find_parent("p").get_text().startswith("First a batch, then")


def test_the_entries_are_there_and_the_glossary_links_nothing_itself(html):
    assert html["back/words"].select("a.glossary-term") == []
    for link in html["part/page"].select("a.glossary-term"):
        assert html["back/words"].find(id=link["href"].partition("#")[2])
