"""`manygpu grade` on a folder as a class hands it in: odd names, odd files, harm."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import sys
from pathlib import Path

import pytest

from manygpu import __main__ as command

BUBBLE = "def my_bubble(p, m):\n    return (p - 1) / (m + p - 1)"
BOOK = """import manygpu
from pathlib import Path
book = Path(manygpu.__file__).parents[1]
"""
STOLEN = BOOK + 'exec((book / "solutions" / "pipeline.py").read_text())'
# C's own functions: Python's audit is told nothing of them.
STOLEN_BY_C = (
    BOOK
    + """
import ctypes
c = ctypes.CDLL(None)
c.fopen.restype = ctypes.c_void_p
c.fgets.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
file, code, line = c.fopen(f"{book}/solutions/pipeline.py".encode(), b"r"), b"", None
line = ctypes.create_string_buffer(1000)
while file and c.fgets(line, 1000, file):
    code += line.value
exec(code)
"""
)
HARM = """import multiprocessing, os, pathlib, shutil
PLACE = pathlib.Path("OUTSIDE")
folder = os.open(PLACE, os.O_RDONLY)
for harm in (
    lambda: shutil.rmtree(PLACE / "tree"),
    lambda: os.remove("a.txt", dir_fd=folder),
    lambda: os.open("a.txt", os.O_WRONLY | os.O_TRUNC, dir_fd=folder),
    lambda: os.rename("a.txt", "b.txt", src_dir_fd=folder, dst_dir_fd=folder),
    lambda: os.rmdir("empty", dir_fd=folder),
    lambda: multiprocessing.get_context("spawn").Process(target=print).start(),
):
    try:
        harm()
    except OSError:
        pass
"""
IMPORT = """from pathlib import Path
Path("tries.py").write_text('''import subprocess
try:
    subprocess.Popen(["true"])
except PermissionError:
    refused = True
''')
import tries
assert tries.refused"""
LEFT_NAME = f"left{os.getpid()}"
LEFT = """import ctypes, os, time
if ctypes.PyDLL(None).fork() == 0:
    os.setsid()
    if ctypes.PyDLL(None).fork() == 0:
        ctypes.PyDLL(None).prctl(15, b"LEFT_NAME", 0, 0, 0)  # its name
        open("there", "w").close()
        time.sleep(900)
    os._exit(0)
while not os.path.exists("there"):
    time.sleep(0.01)
def my_bubble(p, m):
    return 2.0 + os.path.exists("there")"""
LONG = "\x1b" * 240 + ".ipynb"  # longer when it is shown
FORMULA, COLORED, NO_UTF8 = "=1+1.ipynb", "x\x1b[31mred.ipynb", b"m\xff.ipynb"
STUB = 'def my_bubble(p, m):\n    raise NotImplementedError("How many idle?")'


def notebook(*cells: str) -> str:
    """The text of a notebook with these code cells."""
    made = [{"cell_type": "code", "source": cell} for cell in cells]
    return json.dumps({"cells": made})


def old_notebook(*cells: str) -> str:
    """One as Jupyter wrote it before 2015."""
    made = [{"cell_type": "code", "input": [cell]} for cell in cells]
    return json.dumps({"nbformat": 3, "worksheets": [{"cells": made}]})


def rows_of(folder: Path) -> dict[str, dict[str, str]]:
    """The table's rows by notebook, in its order."""
    with (folder / "grades.csv").open(newline="", encoding="utf-8") as file:
        return {row["notebook"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Rows of a class, what the terminal got, and the place they could harm."""
    folder, place = (tmp_path_factory.mktemp(name) for name in ("class", "outside"))
    (place / "tree" / "deep").mkdir(parents=True)
    (place / "empty").mkdir()
    for name in ("a.txt", "tree/b.txt", "tree/deep/c.txt"):
        (place / name).write_text(name)
    (folder / "handout.txt").write_text(notebook("import os\nos.fork()", STUB))
    (folder / "Ada_1_file").mkdir()
    (folder / "Ben_2_file").mkdir()
    (folder / "Ada_1_file" / "mine.ipynb").write_text(notebook(BUBBLE))
    for name, text in {
        "answers.ipynb": notebook(STOLEN),
        "answers by C.ipynb": notebook(STOLEN_BY_C),
        "half a letter.ipynb": notebook('raise ValueError("\\ud800")', BUBBLE),
        "harm.ipynb": notebook(HARM.replace("OUTSIDE", str(place)), BUBBLE),
        "import.ipynb": notebook(IMPORT, BUBBLE),
        "key.ipynb": notebook('def my_bubble(p, m):\n    return {}["a key"]'),
        "left.ipynb": notebook(LEFT.replace("LEFT_NAME", LEFT_NAME)),
        "mark.ipynb": "\ufeff" + notebook(BUBBLE),
        "not a number.ipynb": notebook('def my_bubble(p, m):\n    return "0.5"'),
        "old.ipynb": old_notebook(BUBBLE),
        "untouched.ipynb": notebook("import os\nos.fork()  ", STUB),
        "wrong.ipynb": notebook("def my_bubble(p, m):\n    return 2.0"),
        FORMULA: notebook(BUBBLE),
        ";=1+1.ipynb": notebook(BUBBLE),
        "\uff1d1+1.ipynb": notebook(BUBBLE),
        LONG: notebook(BUBBLE),
        "m\\xff.ipynb": notebook(BUBBLE),
        "page.ipynb": notebook(BUBBLE),
        COLORED: notebook(BUBBLE),
        os.fsdecode(NO_UTF8): notebook(BUBBLE),
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    os.mkfifo(folder / "pipe.ipynb")
    for name in ("Cy/hw/1/mine", "page.html/mine", "__MACOSX/._mine", "Dan/e/f/g/h/i"):
        (folder / name).parent.mkdir(parents=True)
        (folder / f"{name}.ipynb").write_text(notebook(BUBBLE))
    words = ["--chapter", "pipeline", "--seconds", "20", "--seed", "7"]
    told = [*words, "--handout", str(folder / "handout.txt")]
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr(sys.stdout, "write", printed.append)
        patch.setattr(sys.stderr, "write", printed.append)
        assert command.main(["grade", str(folder), *told]) == 0
    return rows_of(folder / "grades"), "".join(printed), place, folder / "grades"


@pytest.mark.parametrize("name", ["answers.ipynb", "answers by C.ipynb"])
def test_the_books_answers_are_shut(graded, name):
    row = graded[0][name]
    assert row["points"] == "0"
    assert row["pipeline/bubble"] == "not written yet"


def test_half_a_letter_in_a_message_loses_nothing(graded):
    row = graded[0]["half a letter.ipynb"]
    assert row["pipeline/bubble"] == "yes"
    assert "ValueError: \\ud800" in row["remarks"]


def test_what_is_outside_stays_as_it_is_and_each_try_is_a_remark(graded):
    rows, _, place, _ = graded
    left = {each.relative_to(place).as_posix() for each in place.rglob("*")}
    files = {"a.txt", "tree/b.txt", "tree/deep/c.txt"}
    assert left == files | {"tree", "tree/deep", "empty"}
    assert {each for each in files if (place / each).read_text() == each} == files
    row = rows["harm.ipynb"]
    assert row["pipeline/bubble"] == "yes"
    said = 'cell "import multiprocessing, os, pathlib, shutil": refused: '
    assert row["remarks"].count(said) == 5  # a.txt is named once
    for word in ("tree')", "'a.txt'", "'empty'", "starting a process"):
        assert word in row["remarks"]


def test_what_a_module_tries_while_it_is_imported_is_no_remark(graded):
    """As TensorFlow does: it starts a process, and goes on without."""
    row = graded[0]["import.ipynb"]
    assert (row["remarks"], row["pipeline/bubble"]) == ("", "yes")


def test_no_process_is_left(graded):
    page = (graded[3] / "left.html").read_text(encoding="utf-8")
    assert "my_bubble(1, 1): it is 3" in page  # it had started
    for file in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            assert file.read_text() != f"{LEFT_NAME}\n"


def test_an_error_of_a_key_is_no_function_that_is_missing(graded):
    assert graded[0]["key.ipynb"]["pipeline/bubble"] == "broken: it runs"


@pytest.mark.parametrize("name", ["mark.ipynb", "old.ipynb"])
def test_a_byte_order_mark_and_an_old_format_are_read(graded, name):
    assert graded[0][name]["pipeline/bubble"] == "yes", graded[0][name]


def test_what_is_handed_out_is_not_blamed_and_not_praised(graded):
    row = graded[0]["untouched.ipynb"]
    assert (row["remarks"], row["pipeline/bubble"]) == ("", "not written yet")
    assert "<td>not written yet. " in (graded[3] / "untouched.html").read_text()


def test_a_broken_property_does_not_read_like_praise(graded):
    assert graded[0]["wrong.ipynb"]["pipeline/bubble"].startswith("broken: ")


def test_no_spreadsheet_computes_a_name_and_no_terminal_obeys_one(graded):
    rows, printed, _, _ = graded
    for name in (f"'{FORMULA}", ";'=1+1.ipynb", "'\uff1d1+1.ipynb"):
        assert rows[name]["pipeline/bubble"] == "yes"
    assert rows["x\\x1b[31mred.ipynb"]["pipeline/bubble"] == "yes"
    assert "\x1b" not in printed


def test_a_name_may_be_any_bytes(graded):
    assert graded[0]["m\\xff.ipynb"]["pipeline/bubble"] == "yes"


def test_a_folder_per_learner_is_looked_into_and_an_empty_one_is_named(graded):
    rows, printed, _, folder = graded
    assert rows["Ada_1_file/mine.ipynb"]["pipeline/bubble"] == "yes"
    assert (folder / "Ada_1_file" / "mine.html").is_file()
    assert "no notebook in the folder Ben_2_file\n" in printed


def test_folders_in_folders_are_looked_into_or_named(graded):
    rows, printed, _, folder = graded
    assert rows["Cy/hw/1/mine.ipynb"]["pipeline/bubble"] == "yes"
    assert "no notebook in the folder Dan\n" in printed
    assert "in the folder Dan/" not in printed and "MACOSX" not in printed
    assert not [name for name in rows if name.startswith(("__MACOSX", "Dan"))]


def test_each_name_has_a_row_and_a_page(graded):
    """Two names may be shown alike, be too long for a file, or be another's folder."""
    rows, _, _, folder = graded
    for name in ("m\\xff again.ipynb", "page.ipynb", "page.html/mine.ipynb"):
        assert rows[name]["pipeline/bubble"] == "yes"
    assert rows["\\x1b" * 240 + ".ipynb"]["points"] == "1"
    assert len([*folder.rglob("*.html")]) - (folder / "page.html").is_dir() == len(rows)


def test_what_the_system_holds_is_said(graded):
    assert "keeps each notebook from" in graded[1]


def test_a_pipe_is_no_notebook_and_nobody_waits_for_it(graded):
    row = graded[0]["pipe.ipynb"]
    assert row["remarks"] == "it is not a regular file"
    assert row["pipeline/bubble"].startswith("not judged: ")


def test_rows_are_in_the_order_of_names(graded):
    names = [name.removeprefix("'") for name in graded[0]]
    assert names == sorted(names)


def test_text_is_no_number(graded):
    assert graded[0]["not a number.ipynb"]["pipeline/bubble"].startswith("broken: ")


def test_a_handout_that_is_no_notebook_is_refused(tmp_path, capsys):
    (tmp_path / "one.ipynb").write_text(notebook(BUBBLE))
    words = ["grade", str(tmp_path), "--chapter", "pipeline", "--handout", "nowhere"]
    assert command.main(words) == 2
    assert "--handout must be a notebook, got nowhere" in capsys.readouterr().err
