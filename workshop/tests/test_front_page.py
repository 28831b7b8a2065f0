"""The front page, the map of the chapters and their numbers.

A small book of two parts is rendered with the extensions that make them.
"""

from __future__ import annotations

import re
import statistics

import pytest
import yaml
from bs4 import BeautifulSoup

from manygpu import records
from manygpu.widgets.ring import ring_frames
from workshop.pages import ROOT
from workshop.tests import small_book

CONFIG = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
project = "small"
extensions = ["myst_parser", "sphinx_design"]
ours = ["chapters", "front_page"]
extensions += [f"workshop.extensions.{{name}}" for name in ours]
html_theme = "basic"
html_secnumber_suffix = " "
html_sidebars = {{"**": ["globaltoc.html", "relations.html"]}}
"""
PART = "```{{toctree}}\n:caption: {caption}\n\n{pages}\n```\n"
INDEX = f"""# Small

```{{chapter-map}}
```
```{{from-record}} source-experiment
**{{eager:.2f}}** and **{{compiled:.2f}}** on {{cores}} cores
```
{PART.format(caption="1 · First", pages="one/a" + chr(10) + "one/b")}
{PART.format(caption="2 · Second", pages="two/c")}
{PART.format(caption="At the back", pages="back")}
"""
BOX = """# Chapter {name}

> What?

- **Needs:** {needs}
- **Time:** 1 minute
- **Devices:** one
- **You build:** little

See [a](../one/a.md).

## A section
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> dict[str, BeautifulSoup]:
    """The rendered book: c needs b and a, and b needs a."""
    root = tmp_path_factory.mktemp("small")
    needs = {"one/a": "nothing", "one/b": "[a](../one/a.md)"}
    needs["two/c"] = "[a](../one/a.md) and [b](../one/b.md)"
    pages = {f"{p}.md": BOX.format(name=p[-1], needs=n) for p, n in needs.items()}
    pages |= {"conf.py": CONFIG, "index.md": INDEX, "back.md": "# Back\n"}
    small_book.write(root, pages)
    return small_book.pages(root)


def words(tag) -> str:
    return " ".join(tag.get_text(" ").split())


def test_a_chapters_number_stands_before_its_title_and_in_the_sidebar(small):
    page = small["two/c"]
    assert page.h1.get_text().startswith("2.1 Chapter c")
    assert page.h2.get_text().startswith("A section")
    listed = [words(a) for a in page.select("div.sphinxsidebar li a")]
    expected = ["1.1 Chapter a", "1.2 Chapter b", "2.1 Chapter c", "Back"]
    assert [text for text in expected if text in listed] == expected
    assert words(page.select_one("a[title='previous chapter']")) == "1.2 Chapter b"
    assert "Back" in small["back"].h1.get_text()[:4]


def test_the_number_is_said_in_a_box_and_pointed_at_in_prose(small):
    needs, *_ = small["two/c"].select("dl.chapter-box dd")
    assert words(needs) == "1.1 a and 1.2 b"
    texts = small["two/c"].select("p")
    prose = next(text for text in texts if words(text).startswith("See"))
    assert words(prose) == "See a ."
    assert prose.a["title"] == "1.1 Chapter a"


def test_the_map_has_each_chapter_and_the_needs_that_follow_from_no_others(small):
    """Two are said, though three are named: c comes after b, which comes after a."""
    boxes = small["index"].select(".chapter-map li")
    assert [words(box) for box in boxes] == [
        "1.1 Chapter a",
        "1.2 Chapter b after 1.1",
        "2.1 Chapter c after 1.2",
    ]
    links = [[a["href"] for a in box.select("a")] for box in boxes]
    a, b, c = "one/a.html", "one/b.html", "two/c.html"
    assert links == [[a], [b, a], [c, b]]
    assert boxes[2].select("a")[1]["title"] == "Chapter b"


def test_a_chapter_says_what_it_leads_to(small):
    point = small["one/a"].select("dl.chapter-box dd")[-1]
    assert words(point) == "1.2 Chapter b ; the map"
    assert words(point.find_previous("dt")) == "Leads to"


def test_numbers_of_the_front_page_are_those_of_the_record(small):
    """Of its usual epochs, so that one that something disturbed changes nothing."""
    runs = records.load("source-experiment")["runs"]
    spent = {
        (r["step"], r["devices"], r["init"]): statistics.median(
            epoch["seconds"] for epoch in r["per_epoch"]
        )
        for r in runs
    }
    said = [words(tag) for tag in small["index"].select(".from-record strong")]
    assert said == [
        f"{spent[step, 1, 'source'] / spent[step, 2, 'source']:.2f}"
        for step in ("eager", "compiled")
    ]


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_a_ring_ends_with_all_sums_everywhere(count):
    frames = ring_frames(count)
    assert len(frames) == 1 + 2 * (count - 1)
    sums = tuple(str((c + 1) * int("1" * count)) for c in range(count))
    assert set(frames[-1].cells.values()) == {sums}
    assert {len(frame.messages) for frame in frames[1:]} <= {count}


@pytest.mark.parametrize("count", [0, 2.0, "4", True])
def test_a_ring_of_no_gpus_is_refused(count):
    with pytest.raises(ValueError, match="count must be a number of GPUs"):
        ring_frames(count)


def test_the_front_page_sends_readers_into_every_part_and_these_have_no_gap():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    captions = "\n".join(part["caption"] for part in toc["parts"])
    numbers = [int(n) for n in re.findall(r"^(\d+) · ", captions, flags=re.M)]
    assert numbers == [*range(1, 1 + len(numbers))], captions
    front = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\(([\w-]+/[\w-]+)\.(?:ipynb|md)\)", front))
    for part in toc["parts"]:
        pages = {c["file"].removeprefix("book/") for c in part["chapters"]}
        assert pages & linked, f"no problem of book/index.md leads to {part['caption']}"
