"""What the API pages make of docstrings and signatures: a small module's page."""

from __future__ import annotations

import pytest
from bs4 import BeautifulSoup, Tag

from workshop.extensions import docstrings
from workshop.pages import ROOT
from workshop.tests import small_book

CONFIG = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, "."]
project = "small"
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon"]
extensions += ["workshop.extensions.docstrings"]
html_theme = "basic"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
default_role = "py:obj"
"""
MODULE = '''"""Made up."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple


def loss(name: str = "it's") -> dict:
    """Return what it found.

    Args:
        name: "mean", 'sum' or "no such", as {"a b": "c"} says; see `loss` and `"x y"`.

    Returns:
        What the file holds: by name.
    """


@dataclass
class Base:
    """Inherited.

    Attributes:
        rate: bytes a second.
    """

    rate: float = 1e12


@dataclass
class Model(Base):
    """A model.

    Attributes:
        loss: a function.
        first, last: both are numbers.
        base: another one.
    """

    loss: Callable = loss
    first: int = 0
    last: int = field(default=1_000)
    facts: dict = field(default_factory=dict)
    base: "Base | None" = None

    @property
    def each(self) -> float:
        """Bytes of a parameter: as they are sent.

        Raises:
            ValueError: none is sent.
        """


class Pair(NamedTuple):
    """Two: `left` is the first."""

    left: int
    right: int = 2_000
'''


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> BeautifulSoup:
    root = tmp_path_factory.mktemp("small")
    index = "Small\n=====\n\n.. automodule:: made_up\n   :members:\n"
    files = {"conf.py": CONFIG, "made_up.py": MODULE, "index.rst": index}
    small_book.write(root, files)
    return small_book.pages(root)["index"]


def words(tag: Tag) -> str:
    return " ".join(tag.get_text().replace("¶", "").split())


def entry(page: BeautifulSoup, name: str) -> tuple[str, Tag]:
    """The signature of an entry, and what is below it."""
    head = page.find(id=f"made_up.{name}")
    return words(head), head.find_next_sibling("dd")


def test_a_sentence_with_a_colon_stays_whole(page):
    assert "Returns: What the file holds: by name." in words(entry(page, "loss")[1])
    said = words(entry(page, "Model.each")[1])
    assert said.startswith("Bytes of a parameter: as they are sent. Raises: ValueError")
    assert not page.find(string="Return type") and not page.find(string="Type")


def test_fields_are_one_list_with_their_types(page):
    found = entry(page, "Model")[1].find("dl", class_="field-list")
    assert words(found.dt) == "Attributes:"
    assert [words(item) for item in found("li")] == [
        "loss (Callable) – a function.",
        "first, last (int) – both are numbers.",
        "base (Base | None) – another one.",
    ]
    assert not found.select("strong a")  # a field's name is no link to a function
    assert found.select_one('em a[href="#made_up.Base"], a[href="#made_up.Base"]')


def test_a_named_tuple_says_nothing_about_numbers_of_fields(page):
    assert "Alias" not in words(page)
    assert not page.find(id="made_up.Pair.left")


def test_defaults_are_the_source_s_words(page):
    fields = "rate=1e12, loss=loss, first=0, last=1_000, facts=dict(), base=None"
    assert entry(page, "Model")[0] == f"class made_up.Model({fields})"
    assert entry(page, "Pair")[0] == "class made_up.Pair(left, right=2_000)"


def test_strings_are_code_and_quotations_are_not(page):
    said = entry(page, "loss")[1]
    code = [words(found) for found in said("code")]
    assert code == ['"mean"', "'sum'", '{"a b": "c"}', "loss", '"x y"']
    assert "“no such”" in words(said)


@pytest.mark.parametrize(
    "text", ["the devices' sums of 'a b'", "isn't 'tis", '``"a"``', '`"a"`', '"a"b']
)
def test_what_is_no_string_stays(text):
    assert docstrings.STRING.sub(docstrings.as_code, text) == text
