"""A stale name, and marks of a conflict, are named with their place."""

from __future__ import annotations

import json

import pytest

from workshop import files, notebooks, stale_names
from workshop.pages import ROOT
from workshop.tests import small_book


def cell(kind: str, source: str) -> dict:
    """A notebook's cell."""
    return {"cell_type": kind, "source": source}


PAGE = [
    cell("markdown", "`split_batch` cuts. `cut_batch(X, 2)` did, and `share(x)`."),
    cell("code", "# As `cut_one` does.\nsplit_batch(X)\nnames = ['from_text']"),
]
BOOK = {
    "book/page.ipynb": json.dumps({"cells": PAGE}),
    "book/page.md": "`from_text`, `in_block`, `plain`, `OTHERS_SETTING`, `split_...`,\n"
    "`tf.some_op(x)`.\n\n```python\nin_block = 1\n```\n",
    "manygpu/a.py": '"""Says `cut_all`."""\n\n\ndef split_batch(X):\n    """`X`."""\n',
    "CHANGELOG.md": "`cut_batch` is `split_batch` now.\n",
    "_build/page.md": "`built_once`\n",
    ".venv/x.md": "`not_ours`\n",
}


def test_a_name_that_no_code_has_is_named_with_its_place(tmp_path):
    small_book.write(tmp_path, BOOK)
    found = stale_names.stale_names(tmp_path)
    assert [one.partition(" is in the text")[0] for one in found] == [
        "book/page.ipynb: `cut_batch`",
        "book/page.ipynb: `cut_one`",
        "book/page.ipynb: `share`",
        "manygpu/a.py: `cut_all`",
    ]


def test_what_is_allowed_is_in_a_text():
    _, prose = stale_names.names_and_prose(ROOT)
    names = {name for _, name in stale_names.quoted(prose)}
    assert set(stale_names.ALLOWED) <= names


def test_marks_of_a_conflict_are_named_in_any_text_file(tmp_path):
    text = "one\n{} HEAD\ntwo\n=======\nthree\n{} other\n".format("<" * 7, ">" * 7)
    names = ("CHANGELOG.md", "book/page.ipynb", ".github/workflows/book.yml")
    small_book.write(tmp_path, dict.fromkeys(names, text) | {"a.md": "=======\n"})
    (tmp_path / "image.png").write_bytes(b"\xff\xd8" + b"<" * 7)
    found = files.conflicts(tmp_path)
    places = [one.partition(": a conflict is left")[0] for one in found]
    assert sorted(places) == sorted(f"{name}:2" for name in names)


@pytest.mark.parametrize("broken", ["conflicts", "stale_names"])
def test_lint_says_so_and_fails(monkeypatch, capsys, broken):
    monkeypatch.setattr(notebooks, "told", lambda path: [])
    for name in ("conflicts", "stale_names"):
        said = [f"{name} is wrong"] if name == broken else []
        monkeypatch.setattr(notebooks, name, lambda said=said: said)
    assert notebooks.main(["lint"])
    assert capsys.readouterr().out == f"{broken} is wrong\n"
