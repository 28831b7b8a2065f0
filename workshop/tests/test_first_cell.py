"""The cell all notebooks share: nothing where the book is, a fetch where it isn't."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from workshop import notebooks


def execute(address: str = "") -> None:
    exec(compile(notebooks.first_cell(address), "first cell", "exec"), {})


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the cell would run."""
    ran: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda c, check: ran.append(c))
    monkeypatch.delenv("MANYGPU_SOURCE", raising=False)
    return ran


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_it_does_nothing_where_the_book_is_installed(commands):
    execute()
    assert commands == []


@pytest.mark.parametrize("named", ["", "a/folder"])
def test_it_fetches_the_package_from_the_books_address_or_another(
    commands, not_installed, monkeypatch, named
):
    address = "git+https://example.invalid/book"
    if named:
        monkeypatch.setenv("MANYGPU_SOURCE", named)
    execute(address)
    ((*pip, d2l, source),) = commands
    assert pip[:3] == [sys.executable, "-m", "pip"] and "--no-deps" in pip
    assert (d2l, source) == ("d2l==1.0.3", named or address)


def test_without_an_address_it_says_what_to_do(commands, not_installed):
    with pytest.raises(RuntimeError, match="MANYGPU_SOURCE"):
        execute("")
    assert commands == []


def test_an_address_needs_its_places(tmp_path):
    """A line of _config.yml that has gone is no address written nowhere."""
    (tmp_path / "_config.yml").write_text("title: a book\n", encoding="utf-8")
    with pytest.raises(ValueError, match="one line that begins '  url: '"):
        notebooks.set_address("owner/name", tmp_path)
