"""Pages with puzzles: their task, their field, what they ask for, and no other page."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from manygpu.exercises.puzzles import KNOWN, hall
from workshop.extensions import puzzles
from workshop.pages import ROOT
from workshop.tests import small_book

PAGE = (ROOT / "book" / "back" / "puzzles.md").read_text(encoding="utf-8")
CONFIG = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from workshop import page_python
page_python.package = lambda: (None, "a test has <none>")
project = "small"
extensions = ["myst_parser", "workshop.extensions.puzzles"]
html_theme = "basic"
html_static_path = ["static"]
exclude_patterns = []
"""
SMALL = """# Puzzles

```{puzzle-python}
```

```{puzzle} ring
```

```{puzzle-hall}
```
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A small book with a puzzle on one page, built without Python for it."""
    root = tmp_path_factory.mktemp("puzzles")
    toctree = "# Small\n\n```{toctree}\npart/puzzle\n```\n"
    files = {"conf.py": CONFIG, "index.md": toctree, "part/puzzle.md": SMALL}
    small_book.write(root, files)
    shutil.copytree(ROOT / "workshop" / "static" / "puzzles", root / "static/puzzles")
    return root, small_book.pages(root)


def test_a_puzzle_can_be_read_and_its_field_holds_the_start(built):
    ring, one = built[1]["part/puzzle"].select_one(".manygpu-puzzle"), KNOWN["ring"]
    assert ring["data-puzzle"] == "ring"
    assert ring.textarea.text.lstrip("\n") == one.start
    assert ring.label["for"] == ring.textarea["id"]
    task = " ".join(p.text for p in ring.find_all("p", recursive=False))
    assert task.split() == one.task.replace("`", "").split()
    assert ring.details.p.text == one.proof and not ring.details.has_attr("open")
    assert ring.select_one(".puzzle-buttons").has_attr("hidden")


def test_a_build_without_python_says_so(built):
    said = built[1]["part/puzzle"].select_one(".puzzle-python")
    assert said.has_attr("data-missing") and "a test has <none>" in said.text


def test_the_hall_has_scores_and_no_answers(built):
    page = built[1]["part/puzzle"]
    rows = page.select(".manygpu-table tbody tr")
    assert [row.td.text for row in rows] == [*KNOWN]
    lines = [line for r in hall.records() for line in r.answer.splitlines()]
    starts = {line for one in KNOWN.values() for line in one.start.splitlines()}
    own = {line.strip() for line in {*lines} - starts if len(line.strip()) > 20}
    assert own and not [line for line in own if line in page.text]


def test_only_that_page_asks_for_the_script(built):
    root, pages = built
    asked = {name: page.select("script[src*=puzzles]") for name, page in pages.items()}
    assert {name for name, found in asked.items() if found} == {"part/puzzle"}
    ((script,), sheets) = asked["part/puzzle"], pages["part/puzzle"].select("link")
    assert (root / "html" / "part" / script["src"]).resolve().is_file()
    assert sum("puzzles.css" in sheet.get("href", "") for sheet in sheets) == 1
    assert not (root / "html" / puzzles.FOLDER / "pyodide").exists()


def test_what_is_packed_runs_alone_and_is_the_same_each_time(tmp_path):
    files = tmp_path / "one.zip", tmp_path / "two.zip"
    for file in files:
        puzzles.pack(file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].stat().st_size < 60_000
    with zipfile.ZipFile(files[0]) as packed:
        packed.extractall(tmp_path / "alone")
    code = "import sys; sys.path[:0] = ['.']; "
    code += "from manygpu.exercises.puzzles.in_page import run; print(run('ring', 'x'))"
    command = [sys.executable, "-I", "-S", "-c", code]  # nothing that is installed
    ran = subprocess.run(
        command, cwd=tmp_path / "alone", capture_output=True, encoding="utf-8"
    )
    said = '"words": "Refused: it doesn\'t run. Line 1: NameError'
    assert said in ran.stdout, ran.stderr


def test_an_unknown_name_is_an_error(tmp_path):
    files = {"conf.py": CONFIG, "index.md": "# Small\n\n```{puzzle} rings\n```\n"}
    small_book.write(tmp_path, {**files, "static/puzzles/puzzles.js": ""})
    ran = small_book.rendered(tmp_path)
    assert ran.returncode and "puzzle must be one of broadcast" in ran.stderr


def test_the_page_has_all_of_them_each_below_its_title():
    found = re.findall(r"^### (.+)\n\n```\{puzzle\} ([\w-]+)$", PAGE, flags=re.M)
    assert sorted(found) == sorted((one.title, name) for name, one in KNOWN.items())
    parts = re.split(r"^## (.+)$", PAGE, flags=re.M)
    of = dict(zip(parts[1::2], parts[2::2], strict=True))
    for name, one in KNOWN.items():
        assert f"```{{puzzle}} {name}\n" in of[one.kind]
