"""The rules of a notebook are kept, and what keeps them notices when they aren't."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml

from workshop import notebooks, reading
from workshop.needs import exports, file_of
from workshop.pages import reading_order
from workshop.tests.files import kept_files

ROOT = notebooks.ROOT
CHAPTERS = notebooks.chapters()
Notebook = nbformat.NotebookNode


def ids(path: Path) -> str:
    return str(path.relative_to(notebooks.BOOK))


# The chapters: that they keep the linter's rules, `workshop/notebooks.py lint` says.


@pytest.mark.parametrize("path", CHAPTERS, ids=ids)
def test_a_chapter_is_valid_and_each_cell_has_an_id_of_its_own(path):
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) >= (4, 5)
    cell_ids = [cell.id for cell in notebook.cells]
    assert len(cell_ids) == len(set(cell_ids))

    assert notebook.metadata.kernelspec.name == "python3"  # which the lock brings


def toc_pages() -> list[str]:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [toc["root"], *(c["file"] for p in toc["parts"] for c in p["chapters"])]


@pytest.mark.parametrize("page", toc_pages())
def test_a_page_of_the_table_of_contents_is_one_file(page):
    found = [p.suffix for p in (ROOT / page).parent.glob(f"{Path(page).name}.*")]
    assert found in ([".ipynb"], [".md"])


def test_each_notebook_and_page_stands_once_in_the_table_of_contents():
    pages = toc_pages()
    assert len(pages) == len(set(pages))
    written = [*CHAPTERS, *notebooks.BOOK.rglob("*.md")]
    written = [p for p in written if ".ipynb_checkpoints" not in p.parts]
    there = {str(p.relative_to(ROOT).with_suffix("")) for p in written}
    assert there <= set(pages)


# A path that starts in a folder which another machine lays out in its own way.
OF_ONE_MACHINE = re.compile(r"(?<![\w.])/(?:work|tmp|root|home|Users)/\w")


def test_no_file_names_a_folder_of_the_machine_it_was_written_on():
    found = []
    for path in kept_files():
        text = path.read_bytes().decode(errors="ignore")
        for number, line in enumerate(text.splitlines(), 1):
            if OF_ONE_MACHINE.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}")
    assert found == []


# The linter notices each violation.


def chapter() -> Notebook:
    """A small notebook that keeps all rules."""
    v4 = nbformat.v4
    code = v4.new_code_cell
    cells = [
        v4.new_markdown_cell("# Title\n\n> What does it answer?"),
        code(notebooks.first_cell(), metadata={"tags": ["hide-input"]}),
        code("#| default_exp part.made_up", metadata={"tags": ["remove-cell"]}),
        code("#| export\ndef one() -> int:\n    return 1"),
        code("assert one() == 1"),
        v4.new_markdown_cell("## In the engine\n\nthe same"),
        v4.new_markdown_cell("## Summary\n\n- one point\n- a second point"),
        v4.new_markdown_cell("## Exercises\n\n1. one\n2. two\n3. three"),
    ]
    notebook = v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    return notebook


def lint(notebook: Notebook, folder: Path) -> list[str]:
    path = folder / "part" / "made-up.ipynb"
    path.parent.mkdir()
    nbformat.write(notebook, path)
    return notebooks.lint(path)


def test_a_notebook_that_keeps_the_rules_passes(tmp_path):
    assert lint(chapter(), tmp_path) == []


def test_checks_and_plumbing_may_be_folded(tmp_path):
    notebook = chapter()
    notebook.cells[3].source = notebook.cells[3].source.replace("export", "exporti")
    notebook.cells[3].metadata["tags"] = ["hide-input"]
    assert lint(notebook, tmp_path) == []


def change(cell: int, **changes) -> object:
    """A change of one cell: its source, tags, outputs or count."""

    def apply(notebook: Notebook) -> None:
        for name, value in changes.items():
            if name == "tags":
                notebook.cells[cell].metadata["tags"] = value
            else:
                notebook.cells[cell][name] = value

    return apply


OUTPUT = nbformat.v4.new_output("stream", text="1\n")
CODE, EXP = nbformat.v4.new_code_cell, "#| default_exp part."
OTHER_CELL = notebooks.FIRST_CELL + "\nimport numpy"


@pytest.mark.parametrize(
    "violate, said",
    [
        (change(1, source=OTHER_CELL), "first code cell is not the one all"),
        (change(1, source=notebooks.first_cell("git+x")), "first code cell"),
        (change(4, outputs=[OUTPUT]), "code cell 3: has outputs"),
        (change(4, execution_count=1), "code cell 3: has outputs"),
        (change(4, tags=["raises-exception"]), "tags ['raises-exception']"),
        (change(4, tags=["hide-input", "skip-execution"]), "tags ['skip-execution']"),
        (change(4, source="assert 1\n" + "x = 1\n" * 25), "has 26 lines, 25 at most"),
        (change(4, source="class A:\n" + "    x = 1\n" * 45), "has 46 lines, 45 at"),
        (change(4, source="!ls\nassert 1"), "uses ! or %"),
        (change(4, source="%%bash\nassert 1"), "uses ! or %"),
        (change(4, source='f"at least {1.2:.0%}"\nassert 1'), "rounds a bound"),
        (change(4, source='f"{1.2:.0%} or more"\nassert 1'), "rounds a bound"),
        (change(4, source='f"{1.2:.1f} days at most"\nassert 1'), "rounds a bound"),
        (change(4, source="exit()\nassert 1"), "ends or drives its own kernel"),
        (change(4, metadata={"nbmake": {"mock": {"x": 1}}}), "metadata ['nbmake']"),
        (change(4, tags=["remove-cell"]), "more than a directive"),
        (change(2, source=f"{EXP}made_up\nhidden = 1"), "code cell 1: is removed from"),
        (change(3, tags=["hide-input"]), "code cell 2: is hidden, and exports"),
        (change(4, source="one()"), "nothing is proved"),
        (change(4, source="one()  # assert nothing"), "nothing is proved"),
        (change(0, source="Title\n\n> Question?"), "doesn't open with a title"),
        (change(0, source="# Title\n\nNo question."), "doesn't open with a title"),
        (change(5, source="## The engine"), "no section '## In the engine'"),
        (change(6, source="### Summary\n\n- One."), "no section '## Summary'"),
        (change(6, source="## Summary\n\n" + "- One.\n" * 6), "6 summary points"),
        (change(6, source="## Summary\n\nProse."), "0 summary points, not 1 to 5"),
        (change(6, source="## Summary\n\n- $\\frac12 x$."), "write \\frac{1}{2}"),
        (change(7, source="## Exercises\n\n1. One.\n2. Two."), "2 exercises"),
        (
            change(7, source="## Exercises\n\n1. A.\n\n## B\n\n1. A.\n2. B."),
            "1 exercises",
        ),
        (change(2, source=f"{EXP}other"), f"to 'part.other': write `{EXP}made_up`"),
        (lambda n: n.cells.pop(2), f"doesn't say where: write `{EXP}made_up`"),
        (
            lambda n: n.cells.extend(map(CODE, 48 * ["1"])),
            "has 51 code cells, 50 at most",
        ),
        (lambda n: n.metadata.update(execution={}), "metadata ['execution']"),
    ],
)
def test_the_linter_notices(violate, said, tmp_path):
    notebook = chapter()
    violate(notebook)
    wrong = lint(notebook, tmp_path)
    assert any(said in sentence for sentence in wrong), wrong


# The commands, on copies.

MADE_UP = "tests/unit/scratch/part/test_made_up.py"


@pytest.fixture
def copy(tmp_path, monkeypatch) -> Path:
    """A copy of some parts of the book, for the commands in place of the checkout."""
    others = shutil.ignore_patterns("beyond", "engine", "in-step", "splitting")
    shutil.copytree(ROOT / "book", tmp_path / "book", ignore=others)
    for name in ("CITATION.cff", "README.md", "_config.yml", "_toc.yml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "manygpu").mkdir()
    shutil.copy(ROOT / "manygpu" / "chapters.py", tmp_path / "manygpu")
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    monkeypatch.setattr(notebooks, "BOOK", tmp_path / "book")
    monkeypatch.setattr(notebooks.chapters, "__defaults__", (tmp_path / "book",))
    return tmp_path


def test_what_is_offered_is_what_the_modules_export_in_reading_order():
    for module, names in exports().items():
        public = notebooks.public_names(file_of(module))
        assert names == [name for name in public if name in names]
    offered = [m.removeprefix("manygpu.scratch.") for m in exports()]
    exporting = [notebooks.default_module(ROOT / f"{p}.ipynb") for p in reading_order()]
    assert offered == [m for m in exporting if m]


def test_what_is_taken_of_a_chapter_is_public_there():
    for module, names in notebooks.taken_names().items():
        if module in exports():
            assert names <= {*notebooks.public_names(file_of(module))}, module


@pytest.mark.parametrize(
    ("given", "repository"),
    [
        (["a/b"], "a/b"),
        (["a/b", "new-owner/new.name"], "new-owner/new.name"),
        (["https://github.com/a/b.git"], "a/b"),
    ],
)
def test_the_address_goes_everywhere_and_can_change(copy, given, repository):
    for one in given:
        notebooks.set_address(one, copy)
    url = f"https://github.com/{repository}"
    config = yaml.safe_load((copy / "_config.yml").read_text(encoding="utf-8"))
    assert config["repository"]["url"] == url
    owner, name = repository.split("/")
    pages = f"https://{owner}.github.io/{name}/"
    assert config["html"]["baseurl"] == pages
    assert all(config["html"][button] is True for button in notebooks.SOURCE_BUTTONS)
    cited = yaml.safe_load((copy / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["repository-code"], cited["url"]) == (url, pages)
    readme = (copy / "README.md").read_text(encoding="utf-8")
    badge = f"{url}/actions/workflows/book.yml/badge.svg"
    assert readme.count(badge) == 1 and readme.count(f"({pages})") == 1
    told = (copy / "manygpu" / "chapters.py").read_text(encoding="utf-8")
    assert told.count(f'BOOK = "{pages}"  # ') == 1
    buttons = config["launch_buttons"]
    assert {name: buttons[name] for name in notebooks.LAUNCHERS} == notebooks.LAUNCHERS
    assert notebooks.address(copy) == f"git+{url}"
    for path in notebooks.chapters():
        cells = nbformat.read(path, as_version=4).cells
        first = next(c for c in cells if c.cell_type == "code")
        assert first.source == notebooks.first_cell(f"git+{url}")


@pytest.mark.parametrize("letters", [3, 54, 56, 90])
def test_an_address_of_any_length_keeps_the_rules(copy, letters):
    """One is as long as it is, and no formatter may want the cell otherwise."""
    notebooks.set_address("a/" + "b" * (letters - 2), copy)
    for words in (["format", "--check"], ["check", "--select", "E501"]):
        asked = ["--config", ROOT / "pyproject.toml", notebooks.chapters()[0]]
        subprocess.run([sys.executable, "-m", "ruff", *words, *asked], check=True)


def test_the_address_changes_nothing_else(copy):
    before = {p: nbformat.read(p, as_version=4) for p in notebooks.chapters()}
    notebooks.set_address("a/b", copy)
    for path, was in before.items():
        now = nbformat.read(path, as_version=4)
        next(c for c in now.cells if c.cell_type == "code").source = ""
        next(c for c in was.cells if c.cell_type == "code").source = ""
        assert now == was


@pytest.fixture
def added(copy) -> Path:
    """A chapter that has been added to the copy in all places: book/part/made-up."""
    path, link = copy / "book" / "part" / "made-up.ipynb", "../part/made-up.ipynb"
    path.parent.mkdir()
    nbformat.write(chapter(), path)
    (copy / MADE_UP).parent.mkdir(parents=True)
    (copy / MADE_UP).touch()
    entry = ".. automodule:: manygpu.scratch.part.made_up\n   :members:\n"
    part = "  - caption: Part\n    chapters:\n    - file: book/part/made-up\n"
    point = f"\n- A point. → [The chapter]({link}#place)\n"
    places = {"_toc.yml": part, notebooks.CHECKLIST: point}
    for name, more in {**places, "book/back/api.md": f"\n{entry}"}.items():
        with (copy / name).open("a", encoding="utf-8") as file:
            file.write(more)
    return path


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("_toc.yml", "is there, but not in _toc.yml: add a line `- file: book/part"),
        ("book/choosing/checklist.md", "no point of book/choosing/checklist.md leads"),
        (
            "book/back/api.md",
            "book/back/api.md lacks `.. automodule:: manygpu.scratch.",
        ),
        (MADE_UP, f"no unit tests: write {MADE_UP}"),
    ],
)
def test_what_the_book_lacks_of_a_chapter_is_said_by_name(added, copy, file, said):
    """The file is as it was before the chapter was added."""
    if (ROOT / file).is_file():
        shutil.copy(ROOT / file, copy / file)
    else:
        (copy / file).unlink()
    (sentence,) = notebooks.lacking(added, copy)
    assert said in sentence


def test_a_copied_chapter_is_told_all_that_it_lacks_at_once(copy):
    """Also what it needs where it belongs, though it still names the other's place."""
    path = copy / "book" / "data-parallel" / "made-up.ipynb"
    shutil.copy(copy / "book" / "data-parallel" / "gradient-accumulation.ipynb", path)
    said = "\n".join(notebooks.told(path))
    assert "write `#| default_exp data_parallel.made_up`" in said
    assert ".. automodule:: manygpu.scratch.data_parallel.made_up`" in said
    for name in ("_toc.yml", "checklist.md", "data_parallel/test_made_up.py"):
        assert name in said


def test_the_commands_status_says_whether_the_rules_are_kept(added, copy, capsys):
    for path in notebooks.chapters():
        if path != added:
            path.unlink()
    assert notebooks.main(["lint"]) == 0
    assert "1 notebooks keep the rules" in capsys.readouterr().out
    bad = chapter()
    change(7, source="None.")(bad)
    nbformat.write(bad, added)
    assert notebooks.main(["lint"]) == 1
    assert "book/part/made-up.ipynb: has no section" in capsys.readouterr().out


@pytest.mark.parametrize("given", ["https://example.org/a/b", "a b/c", "name"])
def test_what_is_no_address_is_refused_in_one_line(copy, given, capsys):
    before = (copy / "_config.yml").read_bytes()
    assert notebooks.main(["address", given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "REPO must be owner/name, or https://github.com/owner/name, got" in line
    assert (copy / "_config.yml").read_bytes() == before


@pytest.mark.parametrize("words", [[], ["nonsense"], ["address"], ["lint", "x"]])
def test_an_unknown_command_shows_the_known_ones(words, capsys):
    assert notebooks.main(words) == 2
    assert "workshop.notebooks export" in capsys.readouterr().out


def test_checkpoints_of_an_editor_are_no_chapters(tmp_path):
    (tmp_path / ".ipynb_checkpoints").mkdir()
    nbformat.write(chapter(), tmp_path / ".ipynb_checkpoints" / "a-checkpoint.ipynb")
    nbformat.write(chapter(), tmp_path / "a.ipynb")
    assert notebooks.chapters(tmp_path) == [tmp_path / "a.ipynb"]


# Which unit tests belong to a chapter.


def test_a_chapters_tests_may_be_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "TESTS", tmp_path)
    folder = tmp_path / "scratch" / "part"
    folder.mkdir(parents=True)
    for name in ("made_up", "made_up_too", "made", "not_made_up"):
        (folder / f"test_{name}.py").touch()
    notebook = chapter()
    nbformat.write(notebook, tmp_path / "x.ipynb")
    found = notebooks.tests_of(tmp_path / "x.ipynb")
    assert [p.name for p in found] == ["test_made_up.py", "test_made_up_too.py"]
    del notebook.cells[2]
    nbformat.write(notebook, tmp_path / "x.ipynb")
    assert notebooks.tests_of(tmp_path / "x.ipynb") == []


def test_a_box_that_promises_too_little_time_is_told_the_right_one(tmp_path):
    """750 words, 25 lines and 75 folded lines are 15 minutes."""
    box = nbformat.v4.new_markdown_cell("- **Time:** 5 minutes")
    prose = nbformat.v4.new_markdown_cell("word " * 746)
    code = nbformat.v4.new_code_cell("\n".join(["x = 1"] * 25))
    folded = nbformat.v4.new_code_cell("\n".join(["x = 1"] * 75))
    folded.metadata["tags"] = ["hide-input"]
    page = tmp_path / "page.ipynb"
    notebook = nbformat.v4.new_notebook(cells=[box, prose, code, folded])
    nbformat.write(notebook, page)
    (said,) = notebooks.wrong_time(page)
    assert "take 15 minutes, rounded to 5: write it as its Time" in said
    box.source = "- **Time:** 15 minutes"
    nbformat.write(notebook, page)
    assert notebooks.wrong_time(page) == []
    go_on = nbformat.v4.new_markdown_cell(f"{reading.GOES_ON}\nGo on.\n:::")
    notebook.cells.insert(3, go_on)  # after the words and the visible lines
    nbformat.write(notebook, page)
    (said,) = notebooks.wrong_time(page)
    assert "take 15 minutes, or 10 on a path, rounded to 5" in said
    box.source = "- **Time:** 15 minutes, or 10 on a path"
    nbformat.write(notebook, page)
    assert notebooks.wrong_time(page) == []
    del notebook.cells[3]
    nbformat.write(notebook, page)
    (said,) = notebooks.wrong_time(page)  # no cell says where the paths go on
    assert "take 15 minutes, rounded" in said


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("{cite}`patarasuk2009bandwidth`", []),
        ("{cite}`nowhere2021, patarasuk2009bandwidth`", ["nowhere2021"]),
        ("{cite:t}`not1`, {cite}`not2` and `cite`", ["not1", "not2"]),
    ],
)
def test_a_source_that_is_not_in_the_bibliography_is_named(
    added, copy, capsys, text, unknown
):
    """Rendering stops there, too, but after minutes and with a trace."""
    notebook = nbformat.read(added, as_version=4)
    notebook.cells[0].source += f"\n\nSee {text}."
    nbformat.write(notebook, added)
    said = [f"cites {key!r}, which is not in book/back/ref" for key in unknown]
    found = notebooks.lacking(added, copy)
    assert len(found) == len(said)
    assert all(map(str.startswith, found, said))
    (copy / "book" / "back" / "made-up.md").write_text(text, encoding="utf-8")
    for path in notebooks.chapters():
        path.unlink()
    assert notebooks.main(["lint"]) == bool(unknown)
    told = capsys.readouterr().out
    assert all(f"book/back/made-up.md: {each}" in told for each in said)


def test_what_a_reader_is_to_write_is_neither_read_nor_counted(tmp_path):
    asked = 'def my_x():\n    raise NotImplementedError("How?")\n\n\ncheck("a/x", my_x)'
    assert notebooks.is_asked(asked)
    assert not notebooks.is_asked(asked + "\nx = 1")
    assert not notebooks.is_asked('check("a/x", my_x)')
    hunted = f'{reading.HUNTED}\n\nbug = hunt("a", 1)\nprint(bug.code)\nbug.symptom()'
    assert notebooks.is_asked(hunted)
    assert not notebooks.is_asked(hunted.replace("bug.symptom()", "bug.mended(x)"))
    for first in reading.GUESSED:
        assert notebooks.is_asked(f"{first}x.\nfirst_guess.told(1)")
        assert not notebooks.is_asked(f"{first}x.\nprint(1)")
    many = range(notebooks.MOST_CELLS + 1)
    cells = [nbformat.v4.new_code_cell(asked) for _ in many]  # each with its own id
    cells += [nbformat.v4.new_markdown_cell(begin + " x") for begin in reading.TO_DO]
    page = tmp_path / "page.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), page)
    assert reading.minutes(page) == 0
    assert not any("code cells" in wrong for wrong in notebooks.lint(page))
