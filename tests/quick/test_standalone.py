"""The files that run alone: they carry what they import, no more, and fit."""

from __future__ import annotations

import ast
import base64
import importlib.metadata
import io
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

from tests.quick.small_book import notebook
from tools import needs, notebooks, standalone

ROOT = standalone.ROOT
CHAPTERS = standalone.chapters()
MODULES = {
    "manygpu/__init__.py": '__version__ = "7.8"\n',
    "manygpu/checks.py": "def check(x): ...\ndef draw():\n    import d2l\n",
    "manygpu/data.py": (
        "import json\nfrom pathlib import Path\n"
        'HERE = Path(__file__).parent / "datasets"\n'
        "def load(): ...\ndef fashion_mnist(n):\n    return load()\n"
    ),
    "manygpu/datasets/sums.json": "{}\n",
    "manygpu/bench.py": "def times():\n    from manygpu.scratch import step\n",
    "manygpu/far.py": "",
    "manygpu/scratch/__init__.py": (
        "from manygpu.scratch.one import lenet\n"
        "from manygpu.scratch.many import step, train, data_of\n"
        "from manygpu.scratch.alone import lonely\n"
    ),
    "manygpu/scratch/one.py": "def lenet(): ...\n",
    "manygpu/scratch/many.py": (
        "from manygpu import checks\nfrom manygpu.data import fashion_mnist\n"
        "from manygpu.scratch.one import lenet\n"
        "def step():\n    checks.check(lenet())\n"
        "def train():\n    checks.draw()\n"
        "def data_of():\n    return fashion_mnist(3)\n"
    ),
    "manygpu/scratch/alone.py": "from manygpu import far\nlonely = 1\n",
}


@pytest.fixture
def package(tmp_path: Path) -> standalone.Package:
    """A small package in which each module is needed for a reason of its own."""
    for name, text in MODULES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return standalone.Package(tmp_path)


def needed(package: standalone.Package, code: str) -> set[str]:
    found = package.needed(ast.parse(code))
    return {name.removeprefix("manygpu").lstrip(".") for name in found}


@pytest.mark.parametrize(
    "code, right",
    [
        ("import numpy", ""),
        ("import manygpu", ""),
        ("from manygpu import checks", "checks"),
        ("from manygpu.scratch import lenet", "scratch scratch.one"),
        ("from manygpu.scratch.one import lenet", "scratch scratch.one"),
        ("from manygpu.scratch import lonely", "scratch scratch.alone far"),
        ("from manygpu import scratch\nscratch.lenet()", "scratch scratch.one"),
        (
            "def later():\n    from manygpu import bench",
            "bench scratch scratch.many scratch.one checks data",
        ),
        (
            "from manygpu import scratch\ngetattr(scratch, 'step')",
            "scratch scratch.one scratch.many scratch.alone checks data far",
        ),
        (
            'PROGRAM = """\nimport manygpu.bench\n"""',
            "bench scratch scratch.many scratch.one checks data",
        ),
    ],
)
def test_what_is_needed_is_found_and_nothing_else(package, code, right):
    assert needed(package, code) - {""} == set(right.split())
    assert ("" in needed(package, code)) == ("manygpu" in code)


def test_a_name_that_scratch_does_not_export_is_refused(package):
    with pytest.raises(ValueError, match="exports no 'leent': run `make export`"):
        needed(package, "from manygpu.scratch import leent")


@pytest.mark.parametrize(
    "code, d2l, images",
    [
        ("from manygpu.scratch import step\nstep()", False, False),
        ("from manygpu.scratch import train\ntrain()", True, False),
        ("from manygpu import scratch\nscratch.train()", True, False),
        ("from manygpu.scratch import data_of\ndata_of()", False, True),
        ("from manygpu.data import load\nload()", False, True),
        ("from manygpu.data import fashion_mnist\nfashion_mnist(1)", False, True),
        ("from d2l import tensorflow as d2l", True, False),
        ("from manygpu import checks\nchecks.check(1)", False, False),
        ("from manygpu import checks\nchecks.draw()", True, False),
    ],
)
def test_d2l_and_images_are_for_those_who_use_them(package, code, d2l, images):
    tree = ast.parse(code)
    assert package.needs_d2l(tree) == d2l
    assert package.needs_images(tree) == images


def test_a_module_brings_its_files_and_scratch_only_what_is_needed(package):
    modules = package.needed(ast.parse("from manygpu.scratch import data_of"))
    files = standalone.module_files(package, modules)
    assert files["manygpu/datasets/sums.json"] == b"{}\n"
    assert "manygpu/scratch/alone.py" not in files
    init = files["manygpu/scratch/__init__.py"].decode()
    taken = [n for n in ast.walk(ast.parse(init)) if isinstance(n, ast.ImportFrom)]
    taken = [n.module for n in taken if n.module.startswith("manygpu.scratch")]
    assert taken == ["manygpu.scratch.one", "manygpu.scratch.many"]


def test_equal_files_give_equal_text_without_a_quote_or_backslash():
    files = {"a/b.txt": bytes(range(256)) * 40}
    text = standalone.pack(files)
    assert text == standalone.pack(dict(files))
    assert not set(text) & set("\"'\\\n")


# The first cell.


def run_loader(package, code: str, monkeypatch, installed: str | None = None) -> dict:
    """Run the cell for such a chapter, as if manygpu were installed or not."""

    def version(name: str) -> str:
        assert name == "manygpu"
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "given")
    names: dict = {}
    exec(compile(standalone.loader(package, ast.parse(code)), "cell", "exec"), names)
    return names


def test_it_unpacks_into_a_temporary_folder_on_both_paths(package, monkeypatch):
    run_loader(package, "from manygpu.scratch import lenet", monkeypatch)
    folder = Path(sys.path[0])
    assert folder.name.startswith("manygpu-")
    assert os.environ["PYTHONPATH"] == os.pathsep.join([str(folder), "given"])
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*.py")}
    assert found == {f"manygpu/{n}__init__.py" for n in ("", "scratch/")} | {
        "manygpu/scratch/one.py"
    }
    for file in found - {"manygpu/scratch/__init__.py"}:
        assert (folder / file).read_bytes() == (package.root / file).read_bytes()


@pytest.mark.parametrize("installed, unpacks", [("7.8", False), ("7.7", True)])
def test_only_the_same_version_is_used_where_it_is_installed(
    package, monkeypatch, installed, unpacks
):
    before = list(sys.path)
    run_loader(package, "import manygpu", monkeypatch, installed)
    assert (sys.path != before) == unpacks


def test_what_is_unpacked_goes_when_the_process_ends(package):
    code = standalone.loader(package, ast.parse("import manygpu"))
    code = code.replace('!= "7.8"', '!= "none"')
    code += "\nimport manygpu\nprint(manygpu.__version__, manygpu.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    version, file = ran.stdout.split(maxsplit=1)
    assert version == "7.8"
    assert "manygpu-" in file
    assert not Path(file.strip()).exists()


def test_a_damaged_file_is_refused(package):
    code = standalone.loader(package, ast.parse("import manygpu"))
    packed = code.rindex('"\n    )')
    with pytest.raises(lzma.LZMAError):
        exec(code.replace('!= "7.8"', '!= "none"')[: packed - 40] + '"\n    )\n', {})


@pytest.fixture
def no_d2l(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "d2l" else find(name)
    )


def test_d2l_is_fetched_into_a_temporary_folder(package, monkeypatch, no_d2l):
    ran = []
    done = types.SimpleNamespace(returncode=0)
    monkeypatch.setattr(subprocess, "run", lambda c, **_: ran.append(c) or done)
    run_loader(package, "import d2l", monkeypatch, "7.8")
    command = ran[0]
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert "--no-deps" in command and command[-1] == "d2l==1.0.3"
    assert command[command.index("--target") + 1] == sys.path[0]


def test_without_a_network_it_says_how_to_get_d2l(package, monkeypatch, no_d2l):
    done = types.SimpleNamespace(returncode=1, stderr="no route to host")
    monkeypatch.setattr(subprocess, "run", lambda c, **_: done)
    with pytest.raises(RuntimeError, match="pip install --no-deps d2l==1.0.3") as said:
        run_loader(package, "import d2l", monkeypatch, "7.8")
    assert "no route to host" in str(said.value)


def test_it_imports_what_the_shared_cell_imports(package):
    """A later cell may use what the shared cell imported."""
    loader = ast.parse(standalone.loader(package, ast.parse("import manygpu")))
    shared = ast.parse(notebooks.first_cell())
    assert set(needs._imports(shared)) <= set(needs._imports(loader))


# The images.


def test_the_carried_images_are_what_their_checksums_say():
    data = (ROOT / "manygpu" / "datasets" / "sha256.json").read_text(encoding="utf-8")
    assert standalone.sums(standalone.images()) == ast.literal_eval(data)["carried"]


# Every chapter of the book.


@pytest.fixture(scope="module", params=CHAPTERS, ids=lambda p: p.stem)
def chapter(request: pytest.FixtureRequest) -> nbformat.NotebookNode:
    path = request.param
    return standalone.standalone(path, path.relative_to(ROOT).as_posix())


def code_cells(notebook: nbformat.NotebookNode) -> list[str]:
    return [c.source for c in notebook.cells if c.cell_type == "code"]


def carried(notebook: nbformat.NotebookNode) -> dict[str, bytes]:
    """The files in the notebook's first cell."""
    call = ast.parse(code_cells(notebook)[0]).body[-1].body[0].value
    found = {}
    for text in call.args:
        archive = lzma.decompress(base64.b85decode(text.value))
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            found |= {name: opened.read(name) for name in opened.namelist()}
    return found


def test_a_chapter_fits_and_is_a_valid_notebook(chapter):
    nbformat.validate(chapter)
    assert len(standalone.text_of(chapter).encode()) <= 1_500_000


def test_a_chapter_carries_each_module_that_it_or_they_import(chapter):
    files = carried(chapter)
    package = standalone.package_in(ROOT)
    names = {n: n[:-3].removesuffix("/__init__") for n in files if n.endswith(".py")}
    names = {n: module.replace("/", ".") for n, module in names.items()}
    init = ast.parse(files.get("manygpu/scratch/__init__.py", b""))
    trees = {"the chapter": ast.parse("\n".join(code_cells(chapter)[1:]))}
    for name, module in names.items():
        trees[module] = init if module == "manygpu.scratch" else package.tree(module)
        if module != "manygpu.scratch":
            assert files[name] == (ROOT / name).read_bytes()
    for where, tree in trees.items():
        missing = package.direct(tree) - set(names.values())
        assert not missing, f"{where} imports {missing}"


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
        "journal={arXiv:1234.5678}}\n",
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


# The commands.


def test_an_unknown_chapter_is_named(tmp_path):
    with pytest.raises(SystemExit, match="no chapter nothing-like-it"):
        standalone.write(tmp_path, ["devices", "nothing-like-it"])
    assert list(tmp_path.iterdir()) == []


def test_a_chapter_is_written_in_its_parts_folder(tmp_path):
    (file,) = standalone.write(tmp_path, ["devices"])
    assert file == tmp_path / "start" / "devices.ipynb"
    nbformat.validate(nbformat.read(file, as_version=4))


def test_an_environment_with_the_package_is_refused(tmp_path, monkeypatch):
    (tmp_path / "manygpu").mkdir()
    (tmp_path / "manygpu" / "__init__.py").write_text("", encoding="utf-8")
    real = standalone.variables
    monkeypatch.setattr(
        standalone, "variables", lambda: {**real(), "PYTHONPATH": str(tmp_path)}
    )
    with pytest.raises(SystemExit, match="has manygpu"):
        standalone.check_python(Path(sys.executable))


# Running them, here in kernels of this environment.

PASSES = (
    "import os\nassert os.environ['MANYGPU_OFFLINE'] == '1'\n"
    "assert len(os.listdir()) == 1\n"
    "assert os.environ['MANYGPU_DATA'] == 'carried' and 'PYTHONPATH' not in os.environ"
)


def test_each_runs_alone_and_a_failure_fails_all(tmp_path, monkeypatch, capfd):
    passes = notebook(tmp_path / "passes.ipynb", PASSES)
    fails = notebook(tmp_path / "fails.ipynb", "1 / 0")
    monkeypatch.delenv("MANYGPU_DATA", raising=False)
    monkeypatch.setattr(standalone, "check_python", lambda python: None)
    monkeypatch.setattr(standalone, "write", lambda folder, only: [passes, fails])
    with pytest.raises(SystemExit) as stopped:
        standalone.test(Path(sys.executable), 2, None)
    assert stopped.value.code == 1
    said = capfd.readouterr().out
    assert re.search(r"[12]/2  .*/passes +\d+ s$", said, flags=re.M)
    assert "ZeroDivisionError" in said
    monkeypatch.setattr(standalone, "write", lambda folder, only: [passes])
    standalone.test(Path(sys.executable), 1, None)
    assert "1 of 1 files run alone" in capfd.readouterr().out


# What a hosted notebook has.


@pytest.mark.parametrize(
    ("wanted", "there", "right"),
    [
        (13, (11, 13), 13),
        (13, (10, 12), 12),
        (9, (8, 10, 12), 10),
        (12, (None, 11), 11),
    ],
)
def test_the_nearest_python_is_taken(monkeypatch, wanted, there, right):
    pythons = {f"python{i}": minor for i, minor in enumerate(there)}
    monkeypatch.setattr(standalone.Path, "glob", lambda *a: map(Path, pythons))
    monkeypatch.setattr(standalone.shutil, "which", lambda name: None)
    monkeypatch.setattr(standalone, "minor_of", pythons.get)
    chosen = standalone.hosted_python(f"# a list, Python 3.{wanted}")
    assert pythons[chosen] == right


def test_a_python_that_does_not_run_is_none(tmp_path):
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    shim.chmod(0o755)
    assert standalone.minor_of(str(shim)) is None
    assert standalone.minor_of(sys.executable) == sys.version_info.minor


@pytest.mark.parametrize("listed", sorted(ROOT.glob("hosted-*.txt")))
def test_a_list_has_its_day_its_python_and_one_version_of_each(listed):
    text = listed.read_text(encoding="utf-8")
    assert re.search(listed.stem.removeprefix("hosted-") + r"-\d\d", text)
    assert re.search(r"Python 3\.\d+", text)
    needs = [x for x in text.splitlines() if not x.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", need) for need in needs)
    assert {"tensorflow", "keras", "ipykernel"} <= {n.split("==")[0] for n in needs}
