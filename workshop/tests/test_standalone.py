"""The files that run alone: they carry what they import, no more, and fit."""

from __future__ import annotations

import ast
import base64
import functools
import importlib
import io
import json
import lzma
import os
import re
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import nbformat
import pytest

from workshop import build, needs, notebooks, standalone
from workshop.tests.small_book import notebook

ROOT = needs.ROOT
CHAPTERS = notebooks.chapters()


# Of a chapter that needs a few modules, and of one that needs the images, too.
FEW = "from manygpu.scratch import split_batch"
IMAGES = "from manygpu.data import load"


def test_a_module_brings_its_files_and_scratch_only_what_is_needed():
    files = standalone.module_files(needs.needed(f"{FEW}\n{IMAGES}"))
    assert "manygpu/datasets/sha256.json" in files
    init = files["manygpu/scratch/__init__.py"].decode()
    taken = [n for n in ast.walk(ast.parse(init)) if isinstance(n, ast.ImportFrom)]
    taken = [n.module for n in taken if n.module.startswith("manygpu.scratch")]
    assert taken == [m for m in needs.exports() if f"{m.replace('.', '/')}.py" in files]
    assert 0 < len(taken) < len(needs.exports())


def test_only_who_loads_images_carries_them():
    assert standalone.packed_images() in standalone.loader(IMAGES).replace(
        '"\n    "', ""
    )
    assert len(standalone.loader(FEW)) < len(standalone.packed_images()) / 2


# Each file's modules can be imported, with nothing else of the book.

PROGRAM = ROOT / "workshop" / "tests" / "import_carried.py"


def imported_from(*folders: Path) -> dict[str, str]:
    """What stopped the import of what lies in each folder, by the folder's name."""
    command = [sys.executable, "-I", PROGRAM, *folders]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {Path(folder).name: why for folder, why in json.loads(said).items()}


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def of_the_book(node: ast.AST) -> bool:
    """Whether it imports something of the package."""
    if isinstance(node, ast.Import):
        return any(alias.name.startswith(needs.PACKAGE) for alias in node.names)
    return isinstance(node, ast.ImportFrom) and node.module.startswith(needs.PACKAGE)


def test_what_each_chapter_carries_can_be_imported_from_an_empty_folder(tmp_path):
    """In one process, without TensorFlow: a minute of packing and starting is saved."""
    for source in CHAPTERS:
        code = "\n\n".join(code_cells(nbformat.read(source, as_version=4))[1:])
        taken = [ast.unparse(n) for n in ast.walk(ast.parse(code)) if of_the_book(n)]
        files = standalone.module_files(needs.needed(code))
        put(tmp_path / source.stem, files | {"page.py": "\n".join(taken).encode()})
    stopped = imported_from(*sorted(tmp_path.iterdir()))
    assert len(stopped) == len(CHAPTERS)
    assert {name: why for name, why in stopped.items() if why} == {}


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        ("", ""),
        ("manygpu/checks.py", "ModuleNotFoundError.*manygpu.checks"),
        ("manygpu/simulate/data/links.csv", "FileNotFoundError.*simulate/data/links"),
        ("manygpu/records/machines/", r"FileNotFoundError.*records/machines/\*.json"),
    ],
)
def test_what_is_not_carried_is_named_and_not_taken_from_the_repository(
    tmp_path, lacks, said
):
    page = "from manygpu import records\nfrom manygpu.checks import check_count\n"
    page += "from manygpu.simulate.cluster import LINKS\nassert LINKS"
    files = standalone.module_files(needs.needed(page)) | {"page.py": page.encode()}
    kept = {n: b for n, b in files.items() if not (lacks and n.startswith(lacks))}
    assert len(kept) < len(files) if lacks else kept == files
    (why,) = imported_from(put(tmp_path / "page", kept)).values()
    assert re.match(said, why) if said else why == ""


def test_equal_files_give_equal_text_without_a_quote_or_backslash():
    files = {"a/b.txt": bytes(range(256)) * 40}
    text = standalone.pack(files)
    assert text == standalone.pack(dict(files))
    assert not set(text) & set("\"'\\\n")


# The first cell.


GREETINGS = "TF_CPP_MIN_LOG_LEVEL"


def run_loader(monkeypatch, level: str | None = None) -> None:
    """Run the cell for such a chapter; what it changes here is put back."""
    monkeypatch.setenv(GREETINGS, level or "")
    if level is None:
        monkeypatch.delenv(GREETINGS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv("PYTHONPATH", "given")
    exec(compile(standalone.loader(FEW), "cell", "exec"), {})


def test_it_unpacks_into_a_temporary_folder_on_both_paths(monkeypatch):
    run_loader(monkeypatch)
    folder = Path(sys.path[0])
    assert folder.name.startswith("manygpu-")
    assert os.environ["PYTHONPATH"] == os.pathsep.join([str(folder), "given"])
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*.py")}
    modules = needs.needed(FEW)
    assert found == {needs.file_of(m).relative_to(ROOT).as_posix() for m in modules}
    for file in found - {"manygpu/scratch/__init__.py"}:
        assert (folder / file).read_bytes() == (ROOT / file).read_bytes()


def test_what_is_unpacked_is_used_and_goes_when_the_process_ends():
    code = f"{standalone.loader('import manygpu')}\nimport manygpu\n"
    ran = [sys.executable, "-c", f"{code}print(manygpu.__file__)"]
    said = subprocess.run(ran, capture_output=True, text=True, check=True).stdout
    assert "manygpu-" in said and not Path(said.strip()).exists()


@pytest.fixture
def no_d2l(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Where d2l isn't; what was run to get it."""
    ran: list[list[str]] = []

    def run(command, **_):
        ran.append(command)
        folder = Path(command[command.index("--target") + 1])
        (folder / "d2l.py").write_text("here = 1", encoding="utf-8")
        return types.SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    run_loader(monkeypatch)
    fetch = [f for f in sys.meta_path if type(f).__name__ == "FetchD2L"]
    monkeypatch.setattr(sys, "meta_path", fetch)
    monkeypatch.setattr(sys, "modules", {"d2l": None} | sys.modules)
    monkeypatch.delitem(sys.modules, "d2l")
    return ran


def test_d2l_is_fetched_when_it_is_imported(no_d2l):
    assert no_d2l == []
    assert importlib.import_module("d2l").here == 1
    (command,) = no_d2l
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert "--no-deps" in command and command[-1] == "d2l==1.0.3"
    assert command[command.index("--target") + 1] == sys.path[0]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("nothing_like_it")


def test_without_a_network_it_says_how_to_get_d2l(no_d2l, monkeypatch):
    done = types.SimpleNamespace(returncode=1, stderr="no route to host")
    monkeypatch.setattr(subprocess, "run", lambda c, **_: done)
    with pytest.raises(RuntimeError, match="pip install --no-deps d2l==1.0.3") as said:
        importlib.import_module("d2l")
    assert "no route to host" in str(said.value)


@pytest.mark.parametrize(("asked", "level"), [(None, "3"), ("0", "0")])
def test_tensorflow_does_not_greet_unless_that_is_asked_for(monkeypatch, asked, level):
    run_loader(monkeypatch, asked)
    assert os.environ[GREETINGS] == level


def test_it_imports_what_the_shared_cell_imports():
    """A later cell may use what the shared cell imported."""
    found = [
        {line for line in text.splitlines() if line.startswith("import ")}
        for text in (notebooks.first_cell(), standalone.loader("import manygpu"))
    ]
    assert found[0] and found[0] <= found[1]


# Every chapter of the book.


@pytest.fixture(scope="module", params=CHAPTERS, ids=lambda p: p.stem)
def chapter(request: pytest.FixtureRequest) -> nbformat.NotebookNode:
    path = request.param
    return standalone.standalone(path, path.relative_to(ROOT).as_posix())


imported = functools.cache(needs.direct)  # modules are carried by many chapters


def code_cells(notebook: nbformat.NotebookNode) -> list[str]:
    return [c.source for c in notebook.cells if c.cell_type == "code"]


@functools.cache  # most chapters carry the same images
def unpacked(text: str) -> dict[str, bytes]:
    archive = lzma.decompress(base64.b85decode(text))
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def carried(notebook: nbformat.NotebookNode) -> dict[str, bytes]:
    """The files in the notebook's first cell."""
    call = ast.parse(code_cells(notebook)[0]).body[-1].value
    parts = [unpacked(text.value) for text in call.args]
    return {name: content for part in parts for name, content in part.items()}


def test_a_chapter_fits_and_is_a_valid_notebook(chapter):
    nbformat.validate(chapter)
    assert len(standalone.text_of(chapter).encode()) <= standalone.MOST_BYTES


def test_a_chapter_carries_each_module_that_it_or_they_import(chapter):
    files = carried(chapter)
    names = {n[:-3].removesuffix("/__init__") for n in files if n.endswith(".py")}
    names = {name.replace("/", ".") for name in names}
    texts = [text.decode() for n, text in files.items() if n.endswith(".py")]
    for text in ["\n".join(code_cells(chapter)[1:]), *texts]:
        assert imported(text) <= names
    read = {file.relative_to(ROOT).as_posix() for n in names for file in needs.reads(n)}
    assert read <= set(files)


def test_a_chapter_shows_nothing_that_only_the_book_can_show(chapter):
    text = "\n".join(c.source for c in chapter.cells if c.cell_type == "markdown")
    assert "{cite}" not in text
    assert not re.findall(r"\]\((?!https?://)[^)\s]*\.(?:ipynb|md)[)#]", text)
    assert all(not c.startswith("#|") for c in code_cells(chapter))
    assert all(
        not c.outputs and c.execution_count is None
        for c in chapter.cells
        if c.cell_type == "code"
    )


def test_a_chapter_that_asks_says_that_run_all_answers(chapter):
    (note,) = [c.source for c in chapter.cells if c.id == "standalone"]
    asks = any("= guess(" in c.source for c in chapter.cells)
    assert ('"Run all" shows the number at once' in note) == asks


def test_outputs_of_an_executed_chapter_are_not_carried(tmp_path):
    notebook = nbformat.read(CHAPTERS[0], as_version=4)
    plain = standalone.text_of(standalone.standalone(CHAPTERS[0], "book/a/b.ipynb"))
    for number, cell in enumerate(c for c in notebook.cells if c.cell_type == "code"):
        cell.outputs = [nbformat.v4.new_output("stream", text="said")]
        cell.execution_count = number
    nbformat.write(notebook, tmp_path / "executed.ipynb")
    executed = standalone.standalone(tmp_path / "executed.ipynb", "book/a/b.ipynb")
    assert standalone.text_of(executed) == plain


# Prose.


@pytest.fixture
def book(tmp_path: Path) -> Path:
    (tmp_path / "book" / "back").mkdir(parents=True)
    (tmp_path / "book" / "back" / "references.bib").write_text(
        '@misc{a, author={Rossum, Guido and M{\\"u}ller, Ann}, year={2001}, '
        "doi={10.1/2}}\n@misc{b, author={A, B and C, D and E, F}, year={2002}, "
        "eprint={1234.5678}}\n",
        encoding="utf-8",
    )
    config = 'repository:\n  url: ""\n  branch: main\n'
    (tmp_path / "_config.yml").write_text(config, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "text, right",
    [
        ("See [one device](../start/one-device.ipynb).", "See one device."),
        ("[kept](../back/records.md#x)", "kept"),
        ("[doc](https://a.b/c)", "[doc](https://a.b/c)"),
        ("[here](#place)", "[here](#place)"),
        ("{cite}`a`", "[Rossum and Müller, 2001](https://doi.org/10.1/2)"),
        ("{cite}`b`", "[A et al., 2002](https://arxiv.org/abs/1234.5678)"),
        ("{term}`ring`", "`ring`"),
        ("$x_{ij}$ and `a[0](b)`", "$x_{ij}$ and `a[0](b)`"),
    ],
)
def test_prose_loses_its_links_into_the_book(book, text, right):
    assert standalone.prose(text, "book/data-parallel/x.ipynb", book) == right


def test_with_an_address_the_links_lead_there(book):
    config = 'repository:\n  url: "https://github.com/o/n"\n  branch: trunk\n'
    (book / "_config.yml").write_text(config, encoding="utf-8")
    found = standalone.prose("[it](../start/d.ipynb#a)", "book/part/x.ipynb", book)
    assert found == "[it](https://github.com/o/n/blob/trunk/book/start/d.ipynb)"


# Writing and trying them.


def test_a_chapter_is_written_in_its_parts_folder_and_no_old_one_stays(
    tmp_path, monkeypatch
):
    devices = ROOT / "book" / "start" / "devices.ipynb"
    monkeypatch.setattr(notebooks, "chapters", lambda: [devices])
    (tmp_path / "old.ipynb").touch()
    (file,) = standalone.write(tmp_path)
    assert file == tmp_path / "start" / "devices.ipynb"
    assert list(tmp_path.rglob("*.ipynb")) == [file]
    nbformat.validate(nbformat.read(file, as_version=4))


def test_one_can_be_written_alone(tmp_path):
    (file,) = standalone.write(tmp_path, ["two-devices"])
    assert file == tmp_path / "start" / "two-devices.ipynb"


def test_a_single_file_can_import_only_what_it_carries(tmp_path, monkeypatch):
    """Neither it nor a process that it starts finds the package of the repository."""
    asked = "import subprocess, sys\nfrom importlib.util import find_spec\n"
    asked += "assert find_spec('manygpu') is None\n"
    process = (
        "from importlib.util import find_spec as f; exit(f('manygpu') is not None)"
    )
    asked += f"subprocess.run([sys.executable, '-c', {process!r}], check=True)"
    file = notebook(tmp_path / "page.ipynb", asked)
    named = []
    monkeypatch.setattr(
        standalone, "write", lambda place, names: named.append(names) or [file]
    )
    build.execute_alone("page")
    assert named == [("page",)]


def test_the_gate_runs_three_chapters_that_exist():
    assert {*build.ALONE} < {path.stem for path in CHAPTERS} and len(build.ALONE) == 3


def test_each_runs_where_only_what_is_listed_is(tmp_path, monkeypatch):
    """Here, it is this environment; a failure fails all."""
    asked = []
    monkeypatch.setattr(standalone, "alone", lambda *given: asked.append(given) or [])
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), os.pathsep)
    monkeypatch.setenv("PYTHONPATH", "given")
    listed = next(ROOT.glob("hosted-*.txt"))
    cell = "import os\nassert os.environ['MANYGPU_OFFLINE'] == '1'\n"
    cell += "assert os.environ['MANYGPU_DATA'] == 'carried'\n"
    cell += "assert 'PYTHONPATH' not in os.environ"
    notebook(tmp_path / "passes.ipynb", cell)
    assert standalone.test(listed, tmp_path) == 0
    notebook(tmp_path / "fails.ipynb", "1 / 0")
    assert standalone.test(listed, tmp_path) == 1
    version, *needs = asked[0]
    assert version.startswith("3.") and ["--with-requirements", listed] == needs[:2]


def test_another_python_tries_it_where_there_is_none_of_a_version(capsys):
    words = standalone.alone("3.99")
    asked = "import sys; print(sys.version_info.minor, 'pytest' in sys.modules)"
    said = subprocess.check_output([*words, "python", "-c", asked], text=True)
    assert said.split() == [str(sys.version_info.minor), "False"]
    assert "no Python 3.99" in capsys.readouterr().out


@pytest.mark.parametrize("listed", sorted(ROOT.glob("hosted-*.txt")))
def test_a_list_has_its_day_its_python_and_one_version_of_each(listed):
    text = listed.read_text(encoding="utf-8")
    assert re.search(listed.stem.removeprefix("hosted-") + r"-\d\d", text)
    assert re.search(r"Python 3\.\d+", text)
    needs = [x for x in text.splitlines() if not x.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", need) for need in needs)
    assert {"tensorflow", "keras", "ipykernel"} <= {n.split("==")[0] for n in needs}
