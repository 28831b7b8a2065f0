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


def test_it_fetches_the_package_from_the_books_address(commands, not_installed):
    execute("git+https://example.invalid/book")
    command = commands[0]
    assert command[:3] == [sys.executable, "-m", "pip"]
    assert command[-2:] == ["d2l==1.0.3", "git+https://example.invalid/book"]
    assert "--no-deps" in command


def test_the_reader_may_name_another_source(commands, not_installed, monkeypatch):
    monkeypatch.setenv("MANYGPU_SOURCE", "a/folder")
    execute("git+https://example.invalid/book")
    assert commands[0][-1] == "a/folder"


def test_without_an_address_it_says_what_to_do(commands, not_installed):
    with pytest.raises(RuntimeError, match="MANYGPU_SOURCE"):
        execute("")
    assert commands == []


@pytest.mark.parametrize("wrong", ["", "owner", "https://a/b/c", "a b/c"])
def test_an_address_must_be_owner_and_name(wrong):
    with pytest.raises(ValueError, match="owner/name"):
        notebooks.set_address(wrong)


def test_an_address_needs_its_places(tmp_path):
    """A line of _config.yml that has gone is no address written nowhere."""
    (tmp_path / "_config.yml").write_text("title: a book\n", encoding="utf-8")
    with pytest.raises(ValueError, match="one line that begins '  url: '"):
        notebooks.set_address("owner/name", tmp_path)
