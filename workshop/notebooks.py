"""The rules of a notebook, kept in one place: lint, export, address.

python -m workshop.notebooks export     write manygpu/scratch from `#| export` cells
python -m workshop.notebooks lint       say which notebook breaks which rule, which
                                        name in a text is stale, what a merge left
python -m workshop.notebooks address OWNER/NAME  where a lone notebook finds the package
"""

from __future__ import annotations

import ast
import functools
import os
import re
import sys
import tempfile
import textwrap
from collections import defaultdict
from pathlib import Path

import nbformat
import yaml
from nbdev.export import nb_export
from pybtex.database import parse_file

from workshop import goals, reading
from workshop.files import conflicts
from workshop.pages import ROOT, reading_order
from workshop.reading import is_asked
from workshop.stale_names import stale_names

BOOK = ROOT / "book"
SCRATCH = ROOT / "manygpu" / "scratch"
TESTS = ROOT / "tests" / "unit"

# Where a page's buttons launch its notebook, by the name in _config.yml.
LAUNCHERS = {
    "colab_url": "https://colab.research.google.com",
    "kaggle_url": "https://kaggle.com/kernels/welcome",
    "binderhub_url": "https://mybinder.org",
}
# Buttons to a page's source, which Jupyter Book refuses without an address.
SOURCE_BUTTONS = ("use_repository_button", "use_edit_page_button", "use_issues_button")
GITHUB = "https://github.com/"
VALUE = r'(?:"[^"]*"|true|false)'

# The last comma keeps its line apart, however long an address is.
FIRST_CELL = """\
# Nothing to do where the book is installed. On Colab, or with this file alone, this
# fetches its package; MANYGPU_SOURCE (a git+https address, a folder) says from where.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("manygpu") is None:
    source = os.environ.get(
        "MANYGPU_SOURCE",
        "{address}",
    )
    if not source:
        raise RuntimeError("Set MANYGPU_SOURCE to the book's git address or folder.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "d2l==1.0.3", source], check=True)"""

ALLOWED_TAGS = {"hide-input", "remove-cell"}
ALLOWED_METADATA = {"kernelspec", "language_info"}
MOST_CELLS = 50  # of code, that a reader sees
MOST_LINES = 25
MOST_CLASS_LINES = 45  # of a cell that holds one class: its methods belong together
SUMMARY_POINTS = 5
LEAST_EXERCISES = 3
CHECKLIST = "book/choosing/checklist.md"
BIBLIOGRAPHY = "book/back/references.bib"
CITED = re.compile(r"\{cite(?::\w+)?\}`([^`]+)`")  # keys, with commas between them
# A bound that is rounded to the nearest number may be none.
NUMBER = r"\{[^{}]*:[^{}]*[%ef]\}"  # as it is written in a text of Python
ROUNDED_BOUND = re.compile(
    rf"(?:at least|at most|more than|less than) {NUMBER}"
    rf"|{NUMBER}[^{{}}\"]{{0,8}} (?:at least|at most|or more|or less)\b"
)
SECTIONS = ("## In the engine", "## Summary", "## Exercises")


def chapters(folder: Path = BOOK) -> list[Path]:
    """Every notebook below `folder`, in a stable order."""
    found = folder.rglob("*.ipynb")
    return sorted(p for p in found if ".ipynb_checkpoints" not in p.parts)


def address(root: Path = ROOT) -> str:
    """Where pip finds the package when a notebook is opened alone; "" if nowhere yet.

    `make address REPO=...` writes it.
    """
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    url = config["repository"]["url"]
    return f"git+{url}" if url else ""


def first_cell(found_at: str | None = None) -> str:
    """The source that every notebook's first code cell must have."""
    return FIRST_CELL.replace("{address}", address() if found_at is None else found_at)


def lint(path: Path) -> list[str]:
    """What is wrong with one notebook, a sentence each; empty if nothing is."""
    notebook = nbformat.read(path, as_version=4)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    prose = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    wrong = []
    if not code or code[0].source != first_cell():
        wrong.append("its first code cell is not the one all notebooks share")
    for number, cell in enumerate(code):
        wrong += [f"code cell {number}: {w}" for w in _lint_code(cell)]
    if not any(re.search(r"^\s*assert\b", c.source, flags=re.M) for c in code):
        wrong.append("nothing is proved: no cell holds an assert")
    if strange := set(notebook.metadata) - ALLOWED_METADATA:
        wrong.append(f"has metadata {sorted(strange)}, which could hide a failure")
    seen = [c for c in code if "remove-cell" not in c.metadata.get("tags", [])]
    seen = [c for c in seen if not is_asked(c.source)]
    if len(seen) > MOST_CELLS:
        wrong.append(f"has {len(seen)} code cells, {MOST_CELLS} at most")
    exports = any(re.match(r"#\|\s*exporti?\b", c.source) for c in code)
    module, own = default_module(path), own_module(path)
    if module != own and (module or exports):
        found = f"exports to {module!r}" if module else "exports, and doesn't say where"
        wrong.append(f"{found}: write `#| default_exp {own}`")
    return wrong + _lint_prose(prose)


def wrong_time(path: Path) -> list[str]:
    """What is wrong with the minutes that a chapter's box promises."""
    right = reading.right_time(path)
    said = f"its words and lines take {right}, rounded to 5: write it as its Time"
    return [] if right is None else [said]


def told(path: Path) -> list[str]:
    """All that is wrong with one chapter, as it is printed."""
    wrong = lint(path) + lacking(path, ROOT) + wrong_time(path)
    wrong += goals.wrong(path, ROOT)
    return [f"{path.relative_to(ROOT)}: {w}" for w in wrong]


def lacking(path: Path, root: Path = ROOT) -> list[str]:
    """What the rest of the book lacks of a chapter, a sentence each."""
    page = path.relative_to(root).with_suffix("").as_posix()
    checklist = root / CHECKLIST
    link = Path(os.path.relpath(path, checklist.parent)).as_posix()
    wrong = []
    if page not in reading_order(root):
        wrong.append(f"is there, but not in _toc.yml: add a line `- file: {page}`")
    if not re.search(rf"\]\({re.escape(link)}[)#]", checklist.read_text("utf-8")):
        wrong.append(f"no point of {CHECKLIST} leads to it: add one, [...]({link})")
    wrong += unknown_sources(path, root)
    if not default_module(path):
        return wrong
    module = own_module(path)  # where it belongs, whatever it says
    back = [p.read_text("utf-8") for p in (root / "book" / "back").glob("api*.md")]
    entry = f".. automodule:: manygpu.scratch.{module}"
    if not any(f"{entry}\n   :members:\n" in text for text in back):
        wrong.append(f"book/back/api.md lacks `{entry}` and, below, `   :members:`")
    part, name = module.split(".")
    test = root / "tests" / "unit" / "scratch" / part / f"test_{name}.py"
    if not test.is_file():
        place = test.relative_to(root).as_posix()
        wrong.append(f"exports, and has no unit tests: write {place}")
    return wrong


def unknown_sources(path: Path, root: Path = ROOT) -> list[str]:
    """Which keys a page cites that the bibliography lacks, a sentence each.

    Rendering refuses them, too: after everything has run, and with a trace.
    """
    cited = CITED.findall(path.read_text(encoding="utf-8"))
    keys = dict.fromkeys(key.strip() for each in cited for key in each.split(","))
    return [
        f"cites {key!r}, which is not in {BIBLIOGRAPHY}: add an entry with this key"
        for key in keys
        if key not in bibliography(root)
    ]


@functools.cache
def bibliography(root: Path = ROOT) -> frozenset[str]:
    """The keys of all entries."""
    return frozenset(parse_file(root / BIBLIOGRAPHY).entries)


def _lint_code(cell: nbformat.NotebookNode) -> list[str]:
    wrong = []
    if cell.outputs or cell.execution_count is not None:
        wrong.append("has outputs: run `make strip`")
    if strange := set(cell.metadata.get("tags", [])) - ALLOWED_TAGS:
        wrong.append(f"has tags {sorted(strange)}, which could hide a failure")
    if others := set(cell.metadata) - {"tags"}:
        wrong.append(f"has metadata {sorted(others)}, which could hide a failure")
    lines = cell.source.splitlines()
    most = MOST_CLASS_LINES if _is_one_class(cell.source) else MOST_LINES
    count = sum(line != "@patch" for line in lines)  # it stands for a class' indent
    if count > most:
        wrong.append(f"has {count} lines, {most} at most")
    if any(re.match(r"\s*(!|%(?!matplotlib))", line) for line in lines):
        wrong.append("uses ! or %: a failure there passes; use subprocess.run")
    if re.search(r"(?<![\w.])(exit|quit|get_ipython)\(", cell.source):
        wrong.append("ends or drives its own kernel: what fails after that passes")
    if ROUNDED_BOUND.search(cell.source):
        wrong.append("rounds a bound: use here.least(...) or here.most(...)")
    directive = len(lines) == 1 and lines[0].startswith("#| default_exp")
    if "remove-cell" in cell.metadata.get("tags", []) and not directive:
        wrong.append("is removed from the page, and is more than a directive")
    # Checks and plumbing (exporti) may be folded; what the book teaches may not.
    public = lines and re.match(r"#\|\s*export\s*$", lines[0])
    if "hide-input" in cell.metadata.get("tags", []) and public:
        wrong.append("is hidden, and exports what later chapters need")
    return wrong


def _is_one_class(source: str) -> bool:
    """Whether a cell holds a class and nothing else; a magic is nothing of Python's."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return False
    return len(statements) == 1 and isinstance(statements[0], ast.ClassDef)


def _lint_prose(prose: str) -> list[str]:
    wrong = []
    if bare := re.findall(r"\\[dt]?frac\s*\d.{3}", prose):
        wrong.append(f"has {bare[0]!r}: write \\frac{{1}}{{2}}, it is misread so")
    if not re.match(r"# .+\n\n> .+", prose):
        wrong.append("doesn't open with a title and, as a quote, its question")
    headings = prose.splitlines()
    wrong += [f"has no section {s!r}" for s in SECTIONS if s not in headings]
    points = re.findall(r"^- ", _section(prose, "## Summary"), flags=re.M)
    if not 1 <= len(points) <= SUMMARY_POINTS:
        wrong.append(f"has {len(points)} summary points, not 1 to {SUMMARY_POINTS}")
    exercises = re.findall(r"^\d+\. ", _section(prose, "## Exercises"), flags=re.M)
    if len(exercises) < LEAST_EXERCISES:
        wrong.append(f"has {len(exercises)} exercises, {LEAST_EXERCISES} at least")
    return wrong


def _section(prose: str, heading: str) -> str:
    """The text from `heading` to the next heading of its level."""
    _, _, rest = f"\n{prose}".partition(f"\n{heading}\n")
    return re.split(r"^## ", rest, flags=re.M)[0]


def export(target: Path = SCRATCH) -> list[Path]:
    """Write what the notebooks export below `target`; return the modules' files.

    A file that would not change is left alone, and one that does is replaced whole:
    a test or a notebook that runs beside this never finds half a package.
    """
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        fresh = {p.relative_to(folder): p for p in _export_into(Path(folder))}
        for old in {p.relative_to(target) for p in target.rglob("*.py")} - set(fresh):
            (target / old).unlink()
        for name, path in fresh.items():
            place = target / name
            if not place.is_file() or place.read_bytes() != path.read_bytes():
                place.parent.mkdir(exist_ok=True)
                os.replace(path, place)
    return sorted(target.rglob("*.py"))


# The imports are the one list of names: an editor, a type checker and `needs` read it.
# Python only reads it, too: a chapter is imported when a name of it is asked for, and
# no other, because some need no TensorFlow.
OFFER = '''\
import ast
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
{imports}

# Which chapter made each name, read from the imports above, which nothing runs.
HOMES = {{
    alias.name: node.module
    for node in ast.walk(ast.parse(__spec__.loader.get_source(__name__)))
    if isinstance(node, ast.ImportFrom) and node.module.startswith("manygpu.scratch.")
    for alias in node.names
}}
__all__ = [*HOMES]


def __getattr__(name):
    """Import the chapter that made `name`, and remember it."""
    if name not in HOMES:
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
    globals()[name] = getattr(import_module(HOMES[name]), name)
    return globals()[name]


def __dir__():
    return [*globals(), *HOMES]
'''


def offer(exported: dict[str, list[str]]) -> str:
    """Code of the package of the chapters that offers these names of its modules."""
    imports = []
    for module, names in exported.items():
        if names:
            listed = [f"        {name}," for name in names]
            imports += [f"    from {module} import (", *listed, "    )"]
    return OFFER.format(imports="\n".join(imports or ["    pass"]))


def _export_into(folder: Path) -> list[Path]:
    """Write the whole package `scratch` into an empty folder."""
    exported, taken = {}, taken_names()
    for page in reading_order():
        path = ROOT / f"{page}.ipynb"
        name = default_module(path)
        if name:
            # nbdev notes the notebook's place relative to where it writes: with
            # both given from the root, the file is the same wherever it is made.
            nb_export(path, lib_path=folder)
            file = folder.joinpath(*name.split(".")).with_suffix(".py")
            offered = public_names(file)
            make_public(file, taken[f"manygpu.scratch.{name}"])
            offered = [name for name in public_names(file) if name in offered]
            exported[f"manygpu.scratch.{name}"] = offered
            part = path.parent.name
            title = f'"""What the chapters in book/{part} built, exported from them."""'
            (file.parent / "__init__.py").write_text(title + "\n")
    head = '"""What the chapters built, in reading order: never edit it by hand."""'
    (folder / "__init__.py").write_text(f"{head}\n\n{offer(exported)}")
    return sorted(folder.rglob("*.py"))


# What a module exports, as nbdev writes it.
LIST_OF_NAMES = re.compile(r"^__all__ = (\[.*?\])", flags=re.M | re.S)


def public_names(module: Path) -> list[str]:
    """A module's `__all__`; as nbdev writes it, what stands below `#| export`."""
    text = module.read_text(encoding="utf-8")
    return ast.literal_eval(LIST_OF_NAMES.search(text)[1])


def taken_names() -> dict[str, set[str]]:
    """What the notebooks and the package import from the module of each chapter."""
    package = SCRATCH.parent.rglob("*.py")
    files = [file for file in package if SCRATCH not in file.parents]
    codes = [file.read_text(encoding="utf-8") for file in files]
    for path in chapters():
        cells = nbformat.read(path, as_version=4).cells
        codes += [cell.source for cell in cells if cell.cell_type == "code"]
    found = defaultdict(set)
    for code in codes:
        if "manygpu.scratch." in code:
            for node in ast.walk(ast.parse(code)):
                if isinstance(node, ast.ImportFrom):
                    found[node.module] |= {alias.name for alias in node.names}
    return found


def make_public(file: Path, taken: set[str]) -> None:
    """Put what others take of a module in its `__all__`, in the order of its lines.

    Below `#| exporti` stands what means something only beside its chapter: it is
    public there, and `manygpu.scratch` doesn't offer it by its name alone.
    """
    source = file.read_text(encoding="utf-8")
    names, made = {*public_names(file)} | taken, []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            made.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            stored = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
            made += [n.id for n in stored if isinstance(n.ctx, ast.Store)]
    listed = repr([*dict.fromkeys(name for name in made if name in names)])
    listed = textwrap.fill(listed, 77)
    listed = f"__all__ = {textwrap.indent(listed, ' ' * 11).strip()}"
    file.write_text(LIST_OF_NAMES.sub(listed, source, count=1), encoding="utf-8")


def default_module(path: Path) -> str | None:
    """The module a notebook exports to, such as splitting.pipeline, or None."""
    found = re.search(r"#\| default_exp ([\w.]+)", path.read_text())
    return found.group(1) if found else None


def own_module(path: Path) -> str:
    """The module that a notebook may export to: its own path, other ending."""
    return f"{path.parent.name}.{path.stem}".replace("-", "_")


def tests_of(chapter: Path) -> list[Path]:
    """The unit tests of what a chapter exports: test_CHAPTER.py, test_CHAPTER_*.py."""
    module = default_module(chapter)
    if not module:
        return []
    part, name = module.split(".")
    folder = TESTS / "scratch" / part
    return sorted([*folder.glob(f"test_{name}.py"), *folder.glob(f"test_{name}_*.py")])


def set_address(given: str, root: Path = ROOT) -> None:
    """Let a notebook that is opened alone find the package, and each page its source.

    `given` is owner/name or the repository's address on GitHub. The pages themselves
    are taken to lie where GitHub Pages puts them.

    Raises:
        ValueError: it is no such address.
    """
    found = re.fullmatch(rf"(?:{GITHUB})?([\w.-]+)/([\w.-]+?)(?:\.git)?/?", given)
    if not found:
        raise ValueError(
            f"REPO must be owner/name, or {GITHUB}owner/name, got {given!r}"
        )
    owner, name = found.groups()
    url, home = f"{GITHUB}{owner}/{name}", f"https://{owner.lower()}.github.io/"
    pages = home if name.lower() == f"{owner.lower()}.github.io" else f"{home}{name}/"
    config = root / "_config.yml"
    _set_line(config, "  url: ", f'"{url}"')
    _set_line(config, "  baseurl: ", f'"{pages}"')
    _set_line(root / "manygpu" / "chapters.py", "BOOK = ", f'"{pages}"')
    for button, launcher in LAUNCHERS.items():
        _set_line(config, f"  {button}: ", f'"{launcher}"')
    for button in SOURCE_BUTTONS:
        _set_line(config, f"  {button}: ", "true")
    runs, cited = f"{url}/actions/workflows/book.yml", root / "CITATION.cff"
    badges = f" [![tests]({runs}/badge.svg)]({runs}) [Read the book]({pages})"
    _set_line(root / "README.md", "<!-- badges -->", badges, ".*")
    said = cited.read_text(encoding="utf-8").splitlines()
    said = [x for x in said if not x.startswith(("repository-code:", "url:"))]
    said += [f'repository-code: "{url}"', f'url: "{pages}"', ""]
    cited.write_text("\n".join(said), encoding="utf-8")
    for path in chapters(root / "book"):
        notebook = nbformat.read(path, as_version=4)
        cell = next(c for c in notebook.cells if c.cell_type == "code")
        cell.source = first_cell(f"git+{url}")
        nbformat.write(notebook, path)


def _set_line(path: Path, start: str, value: str, was: str = VALUE) -> None:
    """Set what a file's one line that begins so says; keep the comment behind it."""
    line, text = rf"^({re.escape(start)}){was}", path.read_text(encoding="utf-8")
    text, found = re.subn(line, lambda kept: kept[1] + value, text, flags=re.M)
    if found != 1:
        raise ValueError(f"{path} must have one line that begins {start!r}")
    path.write_text(text, encoding="utf-8")


def all_wrong() -> list[str]:
    """What breaks a rule: of each notebook, of the pages' sources, of names."""
    wrong = [w for page in chapters() for w in told(page)]
    for page in sorted(BOOK.rglob("*.md")):
        name = page.relative_to(ROOT)
        told_of = unknown_sources(page, ROOT) + goals.wrong(page, ROOT)
        wrong += [f"{name}: {w}" for w in told_of]
    return wrong + stale_names()


def main(words: list[str]) -> int:
    """Run one command; return the exit status."""
    if words == ["export"]:
        for path in export():
            print(path.relative_to(ROOT))
    elif words == ["lint"]:
        # A notebook with marks of a conflict is none: what is wrong else comes later.
        wrong = conflicts() or all_wrong()
        print("\n".join(wrong) or f"{len(chapters())} notebooks keep the rules")
        return bool(wrong)
    elif len(words) == 2 and words[0] == "address":
        try:
            set_address(words[1])
        except ValueError as wrong:
            print(wrong, file=sys.stderr)
            return 2
        print("The book has its address. Next: `make quick`, commit all of it, push.")
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
