"""The words in which this book was ordered; none of them may be lost on the way.

educational Jupyter Book / d2l-style course; packages tensorflow, d2l,
jupyter-book, matplotlib, nbmake; top level book/, _config.yml, _toc.yml,
requirements.txt, tests/, README.md; chapters build the from-scratch LeNet,
`get_params`, `allreduce`, `split_batch` and `train_batch` step by step, then
compare them with MirroredStrategy and the model and pipeline variants; nbmake
executes every notebook as a test; used by reading the rendered book, running
notebooks on Colab multi-GPU or CPU, nbmake in CI.
"""

import ast
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
import yaml

from manygpu.trainings.table import STRATEGIES
from workshop import build
from workshop.needs import exports, file_of
from workshop.notebooks import chapters
from workshop.pages import ROOT

BUILT = ("lenet", "get_params", "allreduce", "split_batch", "train_batch", "train")
TOP = ("book/", "_config.yml", "_toc.yml", "requirements.txt", "tests/", "README.md")


def visible_code(page: Path) -> str:
    """The code that a reader of a chapter sees without unfolding a cell."""
    cells = nbformat.read(page, as_version=4).cells
    code = [c for c in cells if c.cell_type == "code" and not c.metadata.get("tags")]
    return "\n\n".join(c.source for c in code)


CODE = {page.stem: visible_code(page) for page in chapters()}


def names_in(code: str) -> set[str]:
    """All names that code uses, those behind a dot included."""
    nodes = [*ast.walk(ast.parse(re.sub(r"^[%!].*$", "", code, flags=re.M)))]
    plain = {node.id for node in nodes if isinstance(node, ast.Name)}
    return plain | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def defined_in(code: str) -> set[str]:
    """The functions that code defines at its top."""
    return {n.name for n in ast.parse(code).body if isinstance(n, ast.FunctionDef)}


def imported_in(text: str) -> set[str]:
    """The packages that a module imports, anywhere in it."""
    nodes = [*ast.walk(ast.parse(text))]
    plain = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    taken = [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)]
    return {name.partition(".")[0] for name in plain + taken}


# Packages: asked for, and really used.


@pytest.mark.parametrize(
    "package", ["tensorflow", "d2l", "jupyter-book", "matplotlib", "nbmake"]
)
def test_a_package_of_the_order_is_asked_for_and_locked(package):
    for file in ("requirements.in", "requirements.txt"):
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^{package}\b(?!-)", text, flags=re.M), (file, package)


@pytest.mark.parametrize("package", ["tensorflow", "d2l", "matplotlib"])
def test_a_package_of_the_order_is_imported_by_what_chapters_use(package):
    files = (ROOT / "manygpu").rglob("*.py")
    users = [f for f in files if package in imported_in(f.read_text("utf-8"))]
    assert users, f"nothing of manygpu imports {package}"


def test_the_book_is_a_jupyter_book():
    assert "jupyter_book" in build.JUPYTER_BOOK
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    assert toc["format"] == "jb-book"
    assert yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["title"]


@pytest.mark.parametrize("name", TOP)
def test_what_the_order_puts_at_the_top_is_there(name):
    place = ROOT / name
    assert place.is_dir() if name.endswith("/") else place.is_file()


# Chapters build the five functions, and the training, step by step.


@pytest.mark.parametrize("name", BUILT)
def test_a_chapter_builds_it_where_readers_see_it(name):
    homes = [page for page, code in CODE.items() if name in defined_in(code)]
    assert homes, f"no visible cell of a chapter defines {name}"


@pytest.mark.parametrize("name", BUILT)
def test_it_can_be_imported_from_scratch(name):
    homes = [module for module, names in exports().items() if name in names]
    assert len(homes) == 1, f"manygpu.scratch offers {name} from {homes}"
    code = file_of(homes[0]).read_text(encoding="utf-8")
    assert name in defined_in(code)


def test_the_step_calls_what_the_chapters_have_built():
    tree = ast.parse(CODE["many-devices"])
    named = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    assert "split_batch" in names_in(ast.unparse(named["train_batch"]))
    assert "allreduce" in names_in(ast.unparse(named["allreduce_gradients"]))
    assert {"get_params", "lenet"} <= names_in(ast.unparse(named["train"]))


# Then they compare.


def test_a_chapter_compares_them_with_mirrored_strategy():
    code = CODE["mirrored-strategy"]
    assert {"MirroredStrategy", "train_batch", "split_batch"} <= names_in(code)
    assert "assert " in code


@pytest.mark.parametrize(
    ("variant", "pages"),
    [
        ("data", ["many-devices", "why-slower"]),
        ("engine", ["mirrored-strategy"]),
        ("network", ["network"]),
        ("pipeline", ["pipeline", "running-a-pipeline"]),
        ("layerwise", ["layerwise"]),
    ],
)
def test_each_variant_has_its_chapter_and_its_row_beside_the_others(variant, pages):
    assert variant in STRATEGIES
    for page in pages:
        assert "assert " in CODE[page], f"{page} proves nothing"
    assert {"STRATEGIES", "survey"} & names_in(CODE["side-by-side"])


# nbmake executes every notebook as a test, in CI, too.


def test_nbmake_executes_every_notebook_in_make_test(monkeypatch):
    words: list[str] = []
    monkeypatch.setattr(build, "copy_pages", lambda target: None)
    monkeypatch.setattr(build.shutil, "rmtree", lambda *given, **options: None)
    monkeypatch.setattr(build.pytest, "main", lambda told, **_: words.extend(told) or 0)
    build.execute_all()
    assert "--nbmake" in words
    run = [Path(word).stem for word in words if word.endswith(".ipynb")]
    assert sorted(run) == sorted(page.stem for page in chapters())


def test_make_test_executes_them(monkeypatch):
    done: list[Callable] = []
    monkeypatch.setattr(
        build, "steps", lambda title, tasks: done.extend(task for _, task in tasks)
    )
    build.test()
    assert build.execute_all in done
    told = subprocess.run(
        ["make", "--dry-run", "test"], cwd=ROOT, capture_output=True, text=True
    )
    assert "workshop.build test" in told.stdout, told.stderr


@pytest.mark.parametrize("file", [".ci/run", ".github/workflows/book.yml"])
def test_ci_calls_make_test(file):
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(r"^[\s-]*(run: )?make test$", text, flags=re.M), file


def test_readme_says_how_the_book_is_read_run_and_tested():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for words in ("make book", "make test", "--nbmake", "Colab"):
        assert words in text, words
