"""What `make prose` points at, and what it leaves alone."""

from __future__ import annotations

import re

import nbformat
import pytest

from workshop import prose
from workshop.pages import ROOT


def kinds(text: str, where: str = "prose") -> list[str]:
    return [kind for kind, _ in prose.places_in(text, where)]


# A sentence of each kind, and one like it that is English.
@pytest.mark.parametrize(
    ("kind", "found", "fine"),
    [
        (
            "headless relative",
            "What a stage sends to its neighbour is copied.",
            "What does a stage send to its neighbour?",
        ),
        (
            "nobody, somebody",
            "Then nobody can begin the next step.",
            "Then none of the ranks can begin the next step.",
        ),
        (
            "distributive a",
            "They send one message a layer to the others.",
            "They send one message per layer before a layer can begin.",
        ),
        (
            "distributive a",
            "Adam keeps eight bytes a parameter in memory.",
            "Adam moves a parameter by the rate in each step.",
        ),
        (
            "hold against",
            "Now hold the sum against one device's.",
            "Now compare the sum with one device's.",
        ),
        (
            "stands",
            "The result stands in the last row of it.",
            "The letter S stands for the samples of it.",
        ),
        (
            "behind (after?)",
            "The bias comes behind the next entrance of it.",
            "He looks behind the scenes of the engine.",
        ),
        (
            "less (minus?)",
            "The price is `total` less `saved` in bytes.",
            "The price is `total` minus `saved` in bytes.",
        ),
        (
            "else (otherwise?)",
            "It must be even, else the loss is wrong.",
            "There is something else that may be wrong.",
        ),
        (
            "a training",
            "At the end of a training the rate is small.",
            "At the end of a training run the rate is small.",
        ),
        (
            "way back, way there",
            "On the way back the gradients are added up.",
            "In the backward pass the gradients are added up.",
        ),
        (
            "so many, so long",
            "After so many steps the losses are equal again.",
            "There are so many that the losses are equal again.",
        ),
        (
            "mend",
            "The next chapter mends the wrong average here.",
            "Give it to `bug.mended` when you have found it.",
        ),
        (
            "another (different?)",
            "The order of the two sums is another one here.",
            "Then another sum follows the first one here.",
        ),
        (
            "off (error?)",
            "After ten steps the parameters are off by a half.",
            "After ten steps the parameters differ by a half.",
        ),
        (
            "less than a clause",
            "The sums are equal in float64. And in float32.",
            "The sums are equal in float64. In words: they agree in float32, too.",
        ),
    ],
)
def test_a_place_is_pointed_at_and_its_english_sister_is_not(kind, found, fine):
    assert kinds(found) == [kind]
    assert kinds(fine) == []


def test_each_kind_has_an_example():
    (mark,) = test_a_place_is_pointed_at_and_its_english_sister_is_not.pytestmark
    assert {kind for kind, *_ in mark.args[1]} == {*prose.SUSPICIOUS}


def test_only_sentences_are_read():
    markdown = """---
nobody: here
---
# Nobody; or somebody

:::{note}
The [gradient of nobody's](x.md;y) loss {cite}`nobody;2020` is $a$.
:::

| nobody | ; |

```python
nobody = 1;
```
$$
nobody;
$$
It ends here.
"""
    read = prose.prose(markdown)
    assert (
        " ".join(read.split()) == "The gradient of nobody's loss is $a$. It ends here."
    )


def test_what_code_shows_is_read_and_a_caption_needs_no_clause():
    code = """
here.show(f"{n} devices; nobody waits for {what}")
alt = "One row" + " per rank"
figures.show(plot, caption=f"Sums. {a:.2f}", alt=alt, name="nobody")
print("nobody")
"""
    assert sorted(prose.said(code)) == [
        "",
        "One row  per rank",
        "Sums. …",
        "… devices; nobody waits for …",
    ]
    assert kinds("Sums.", "said") == []
    assert kinds("Sums.", "prose") == ["less than a clause"]


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A small page, in place of the book."""
    v4 = nbformat.v4
    cells = [
        v4.new_markdown_cell("# Sums\n\nIt waits because nobody sends; so it hangs."),
        v4.new_code_cell('here.show("it stands; here")'),
    ]
    path = tmp_path / "book" / "part" / "sums.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(v4.new_notebook(cells=cells), path)
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose, "pages", lambda: [path])
    return path


def test_a_page_is_counted(page):
    found = prose.count(page)
    assert found.places == {"nobody, somebody": 1, "stands": 1}
    assert (found.words, found.semicolons, found.connectives) == (8, 2, 1)
    twice = found + found
    assert (twice.places.total(), twice.words, twice.sentences) == (4, 16, 2)
    assert twice.per_1000(4) == 250


def test_the_command_names_file_and_cell(page, capsys):
    assert prose.main("sums") == 0
    said = capsys.readouterr().out
    assert "book/part/sums.ipynb[0]: nobody, somebody: …It waits because nobody" in said
    assert "book/part/sums.ipynb[1]: stands: …it stands; here…" in said
    assert prose.main() == 0
    said = capsys.readouterr().out
    assert "[0]" not in said and "suspicious at most 3, semicolons at most 1.5" in said
    assert prose.main("nonsense") == 2
    assert "got nonsense: take one of sums" in capsys.readouterr().out


def test_each_page_of_the_book_is_read_and_no_list_of_names():
    names = {path.name for path in prose.pages()}
    assert {"two-devices.ipynb", "index.md", "README.md", "CONTRIBUTING.md"} <= names
    assert not any(name.startswith("api") for name in names)


def test_forever_has_one_spelling():
    """In prose and in messages; see the words of docs/style.md."""
    files = [p for room in ("book", "manygpu") for p in (ROOT / room).rglob("*.*")]
    texts = [p for p in files if p.suffix in (".ipynb", ".md", ".py", ".csv")]
    assert len(texts) > 100
    other = re.compile(r"\bfor ever\b")
    assert [p for p in texts if other.search(p.read_text(encoding="utf-8"))] == []
