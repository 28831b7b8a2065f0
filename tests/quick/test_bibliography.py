"""The bibliography: each entry is cited, complete, and says where to find it."""

import re
from itertools import chain

import pytest
from pybtex.database import parse_file

from workshop.extensions.citations import AuthorYear, ByLabel
from workshop.notebooks import BIBLIOGRAPHY, CITED
from workshop.pages import ROOT

ENTRIES = parse_file(str(ROOT / BIBLIOGRAPHY)).entries


def authors(entry) -> list[str]:
    return [str(person) for person in entry.persons.get("author", [])]


def cited() -> set[str]:
    """The keys that the book's pages cite."""
    pages = [*(ROOT / "book").rglob("*.md"), *(ROOT / "book").rglob("*.ipynb")]
    found = [CITED.findall(page.read_text(encoding="utf-8")) for page in pages]
    return {key.strip() for keys in chain(*found) for key in keys.split(",")}


@pytest.mark.parametrize("key", ENTRIES)
def test_an_entry_says_who_when_and_where(key):
    fields = ENTRIES[key].fields
    assert authors(ENTRIES[key]), "no authors"
    assert "year" in fields or "Looked up in" in fields.get("note", "")
    assert {"doi", "eprint", "url"} & {*fields}, "neither doi, arXiv id nor url"
    assert re.fullmatch(r"\d{4}\.\d{4,5}", fields.get("eprint", "1234.5678"))


def test_an_arxiv_id_is_a_link():
    """Elsewhere than in `eprint` it would be plain text."""
    fields = [value for entry in ENTRIES.values() for value in entry.fields.values()]
    assert not [value for value in fields if "arxiv" in value.lower()]


def test_a_body_has_one_name():
    """Not TensorFlow here and the TensorFlow authors there."""
    people = re.compile(r" (?:authors|contributors|developers|team)\b")
    for entry in ENTRIES.values():
        assert not [name for name in authors(entry) if people.search(name)]


WHOLE = ("brown2020gpt3", "shen2019lingvo", "grattafiori2024llama")


def test_only_papers_of_dozens_leave_authors_out():
    """GPT-3 has 31 authors, Lingvo and Llama 3 have more."""
    short = [key for key, entry in ENTRIES.items() if "others" in authors(entry)]
    assert sorted(short) == sorted(WHOLE)


def test_what_is_cited_is_there_and_the_other_way_round():
    assert cited() == set(ENTRIES)


@pytest.mark.parametrize("field", ["doi", "eprint", "url"])
def test_nothing_is_there_twice(field):
    values = [e.fields[field] for e in ENTRIES.values() if field in e.fields]
    assert len(values) == len(set(values))


def test_the_text_and_the_list_name_an_entry_alike_and_no_two_alike():
    labels = AuthorYear().format_labels(ENTRIES.values())
    found = dict(zip(ENTRIES, labels, strict=True))
    assert len(set(found.values())) == len(found)
    assert found["patarasuk2009bandwidth"] == "Patarasuk and Yuan, 2009"
    assert found["sanders2009two"] == "Sanders et al., 2009"
    assert not [label for label in found.values() if set("{}\\") & set(label)]
    alike = [label for label in found.values() if label.startswith("PyTorch, n.d.")]
    assert alike[:2] == ["PyTorch, n.d.a", "PyTorch, n.d.b"]


def test_people_and_organizations_are_in_one_alphabet():
    labels = [*AuthorYear().format_labels(ByLabel().sort(ENTRIES.values()))]
    who = [label.rpartition(", ")[0].casefold() for label in labels]
    assert who == sorted(who)
    assert who.index("amazon web services") < who.index("brown et al.")
    assert labels.index("Douillard et al., 2023") < labels.index(
        "Douillard et al., 2025"
    )
