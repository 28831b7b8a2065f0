"""Each chapter as one file that runs anywhere: it carries what it imports.

python tools/standalone.py write [--to FOLDER] [--only NAMES]
    write every chapter of book/ as a single notebook into _standalone/
python tools/standalone.py environment --tensorflow 2.17.1 --to FOLDER
    make an environment that holds what a hosted notebook has, and no manygpu
python tools/standalone.py test [--python PYTHON] [--jobs N] [--only NAMES]
    write them, and run each in an empty folder with the Python of such an environment
"""

from __future__ import annotations

import argparse
import ast
import base64
import functools
import gzip
import hashlib
import io
import json
import lzma
import os
import posixpath
import re
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, SCRATCH = "manygpu", "manygpu.scratch"
TARGET = ROOT / "_standalone"
MOST_BYTES = 1_500_000
LINE = 50_000  # characters of the packed text in one line of the cell
# Of each class, this many of the first training and test images are carried.
TRAIN_A_CLASS, TEST_A_CLASS = 200, 50
PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3")
PARTS += ("t10k-labels-idx1",)
D2L = "d2l==1.0.3"
HOSTED = ("pandas", "matplotlib", "ipython", "requests", "ipykernel")

NOTE = """\
*This file runs alone, from top to bottom, wherever TensorFlow, NumPy, pandas,
matplotlib, IPython and requests are. The folded cell below carries what it imports of
the book's package; run it first.*"""

LOADER = '''\
# @title Run this first: what this file carries
# Below, packed, are the modules of the book's package that this file imports{more}.
# They are unpacked into a temporary folder, which goes when the kernel stops. Where
# manygpu {version} is installed, nothing is unpacked and that one is used.
import atexit
import base64
import importlib.metadata
import importlib.util
import io
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile


def new_place():
    """A temporary folder to import from, here and in processes started from here."""
    folder = tempfile.mkdtemp(prefix="manygpu-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sys.path.insert(0, folder)
    paths = [folder, os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return folder


def unpack(*packed):
    """Put the packed modules and files where they can be imported."""
    folder = new_place()
    for text in packed:
        archive = lzma.decompress(base64.b85decode(text))
        zipfile.ZipFile(io.BytesIO(archive)).extractall(folder)


def installed_version():
    """The version of manygpu that is installed, or None."""
    try:
        return importlib.metadata.version("manygpu")
    except importlib.metadata.PackageNotFoundError:
        return None
{d2l}

if installed_version() != "{version}":
    unpack(
{packed}
    )
'''

FETCH_D2L = """

if importlib.util.find_spec("d2l") is None:  # small; without its pins, as they are old
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    pip += ["--disable-pip-version-check", "--target", new_place(), "{d2l}"]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        message = "This chapter needs d2l, and pip could not fetch it. With a network, "
        message += "run `pip install --no-deps {d2l}`. pip said:\\n"
        raise RuntimeError(message + done.stderr)
"""


# What a chapter imports of the package.


@dataclass(eq=False)
class Package:
    """The package's modules, read and never imported: TensorFlow is not needed."""

    root: Path = ROOT
    trees: dict[str, ast.Module] = field(default_factory=dict)

    def file(self, module: str) -> Path | None:
        """The file of a module, or None if there is no such module."""
        place = self.root.joinpath(*module.split("."))
        found = (place / "__init__.py", place.with_suffix(".py"))
        return next((f for f in found if f.is_file()), None)

    def tree(self, module: str) -> ast.Module:
        """A module's code, parsed once."""
        if module not in self.trees:
            text = self.file(module).read_text(encoding="utf-8")
            self.trees[module] = ast.parse(text)
        return self.trees[module]

    @functools.cached_property
    def exports(self) -> dict[str, list[str]]:
        """What each module of manygpu.scratch exports, in the order it imports them."""
        modules = [n.module for n in self.tree(SCRATCH).body if _is_import(n)]
        return {m: _all(self.tree(m)) for m in modules}

    @functools.cached_property
    def providers(self) -> dict[str, str]:
        """The module of each name that `from manygpu.scratch import name` finds."""
        return {name: m for m, names in self.exports.items() for name in names}

    @property
    def version(self) -> str:
        """The version, from the one place where it stands."""
        return _constant(self.tree(PACKAGE), "__version__")

    def direct(self, tree: ast.Module) -> set[str]:
        """The modules that this code imports, at its top or inside a function."""
        found = set()
        for module, name in _imports(tree):
            if module.split(".")[0] != PACKAGE:
                continue
            if name is None or not self.file(f"{module}.{name}"):
                found |= self._of_scratch(name) if module == SCRATCH else {module}
            else:
                found.add(f"{module}.{name}")
        return found | self._through_scratch(tree)

    def _of_scratch(self, name: str | None) -> set[str]:
        if name is None:
            return {SCRATCH}
        if name == "*":
            return set(self.exports)
        if name not in self.providers:
            raise ValueError(f"{SCRATCH} exports no {name!r}: run `make export`")
        return {self.providers[name]}

    def _through_scratch(self, tree: ast.Module) -> set[str]:
        """What is meant by `scratch.name`; by `scratch` alone, anything may be."""
        if (PACKAGE, "scratch") not in _imports(tree):
            return set()
        names = [n for n in _walk(tree) if _named(n, "scratch")]
        reads = [n for n in _walk(tree) if isinstance(n, ast.Attribute)]
        reads = [n.attr for n in reads if _named(n.value, "scratch")]
        if len(reads) < len(names):
            return {SCRATCH, *self.exports}
        return {SCRATCH}.union(*map(self._of_scratch, reads))

    def needed(self, tree: ast.Module) -> list[str]:
        """All modules that this code needs, directly or through others, sorted."""
        found, new = set(), self.direct(tree)
        while new:
            module = new.pop()
            parents = {
                module.rsplit(".", i)[0] for i in range(1, module.count(".") + 1)
            }
            found.add(module)
            # scratch/__init__ imports what is needed, not the other way round.
            inner = set() if module == SCRATCH else self.direct(self.tree(module))
            new |= (inner | parents) - found
        return sorted(found)

    @functools.cache  # noqa: B019 (a package is kept for as long as the process)
    def used(self, tree: ast.Module) -> set[tuple[str, str]]:
        """Module and name of all that this code uses, directly or through others.

        It follows functions, not modules: a module may need d2l, or the images, in one
        function only, and a chapter that uses another one does without.
        """
        new, seen = self._uses(tree, tree, None), set()
        while new:
            module, name = new.pop()
            seen.add((module, name))
            body = _definition(self.tree(module), name)
            if body is not None:
                new |= self._uses(self.tree(module), body, module) - seen
        return seen

    def needs_d2l(self, tree: ast.Module) -> bool:
        """Whether d2l is imported by the code, at a module's top or in use."""
        bodies = [_definition(self.tree(m), name) for m, name in self.used(tree)]
        tops = [_top_imports(self.tree(m)) for m in self.needed(tree)]
        imports = [_imports(b) for b in [tree, *bodies, *tops] if b is not None]
        return any(m.split(".")[0] == "d2l" for pairs in imports for m, _ in pairs)

    def needs_images(self, tree: ast.Module) -> bool:
        """Whether the code, or what it uses, loads Fashion-MNIST."""
        return (f"{PACKAGE}.data", "load") in self.used(tree)

    @functools.cache  # noqa: B019
    def _uses(
        self, tree: ast.Module, code: ast.AST, own: str | None
    ) -> set[tuple[str, str]]:
        """Module and name of what `code`, a part of `tree`, uses of the package."""
        names = [n.id for n in _walk(code) if isinstance(n, ast.Name)]
        reads = [n for n in _walk(code) if isinstance(n, ast.Attribute)]
        reads = [(n.value.id, n.attr) for n in reads if isinstance(n.value, ast.Name)]
        modules, found = {}, {(own, name) for name in names if own}
        for module, name in _imports(tree):
            if name is None or module.split(".")[0] != PACKAGE:
                continue
            if self.file(f"{module}.{name}"):
                modules[name] = f"{module}.{name}"
            elif name in names:
                found.add((module, name))
        found |= {(modules[n], attribute) for n, attribute in reads if n in modules}
        return {self._home(module, name) for module, name in found}

    def _home(self, module: str, name: str) -> tuple[str, str]:
        """Where a name that a module offers is defined: scratch itself defines none."""
        return (self.providers.get(name, module) if module == SCRATCH else module), name


@functools.cache
def _walk(tree: ast.AST) -> list[ast.AST]:
    """All nodes of some code; asked for again and again, found once."""
    return list(ast.walk(tree))


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module != "__future__"


@functools.cache
def _imports(tree: ast.AST) -> tuple[tuple[str, str | None], ...]:
    """Each import as module and name; name is None for `import module`."""
    found = []
    for node in _walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A program in a string, for another process.
            named = re.findall(r"^import (\S+)", node.value, flags=re.M)
            found += [(module, None) for module in named]
    return tuple(found)


def _named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _constant(tree: ast.Module, name: str):
    """The value of a constant at the top of a module."""
    assigned = [n for n in tree.body if isinstance(n, ast.Assign)]
    return next(
        ast.literal_eval(n.value) for n in assigned if _named(n.targets[0], name)
    )


def _all(tree: ast.Module) -> list[str]:
    return _constant(tree, "__all__")


def _definition(tree: ast.Module, name: str) -> ast.AST | None:
    """The function or class of that name at the top of a module."""
    return next((n for n in tree.body if getattr(n, "name", None) == name), None)


def _top_imports(tree: ast.Module) -> ast.Module:
    """The imports that are done when the module is."""
    kept = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    return ast.Module(kept, [])


@functools.cache
def package_in(root: Path) -> Package:
    """The package below `root`, read once for all chapters."""
    return Package(root)


# What a file carries, packed.


def pack(files: dict[str, bytes]) -> str:
    """The files as text: a zip, squeezed as a whole; equal files give equal text."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    packed = lzma.compress(target.getvalue(), preset=6 | lzma.PRESET_EXTREME)
    return base64.b85encode(packed).decode("ascii")


def module_files(package: Package, modules: list[str]) -> dict[str, bytes]:
    """The modules and the folders of files that they read, by path in the package."""
    files = {}
    for module in modules:
        file = package.file(module)
        text = file.read_text(encoding="utf-8")
        for folder in re.findall(r'Path\(__file__\)\.parent / "(\w+)"', text):
            # The shipped images are too many to carry: see `images`.
            inside = sorted(p for p in (file.parent / folder).iterdir() if p.is_file())
            files |= {_path(p, package.root): p.read_bytes() for p in inside}
        if module == SCRATCH:
            text = scratch_init(package, modules)
        files[_path(file, package.root)] = text.encode("utf-8")
    return files


def scratch_init(package: Package, modules: Iterable[str]) -> str:
    """The package `scratch` with no more than these modules, in its own order."""
    kept = [m for m in package.exports if m in set(modules)]
    lines = [f"from {m} import *  # noqa: F403" for m in kept]
    return '"""What the chapters built: the part carried here."""\n\n' + "\n".join(
        [*lines, ""]
    )


def _path(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix()


@functools.cache
def images(root: Path = ROOT) -> dict[str, bytes]:
    """The first images of each class, as files for manygpu.data to find and check."""
    source = root / PACKAGE / "datasets" / "fashion-mnist"
    raw = [gzip.decompress((source / f"{p}-ubyte.gz").read_bytes()) for p in PARTS]
    files = {}
    for i, a_class in ((0, TRAIN_A_CLASS), (2, TEST_A_CLASS)):
        labels = np.frombuffer(raw[i + 1], np.uint8, offset=8)
        pixels = np.frombuffer(raw[i], np.uint8, offset=16).reshape(len(labels), -1)
        kept = [np.flatnonzero(labels == c)[:a_class] for c in range(10)]
        kept = np.sort(np.concatenate(kept))
        for part, header, array in (
            (PARTS[i], raw[i][:16], pixels[kept]),
            (PARTS[i + 1], raw[i + 1][:8], labels[kept]),
        ):
            count = struct.pack(">I", len(kept))
            content = header[:4] + count + header[8:] + array.tobytes()
            # Not squeezed here: what is squeezed twice grows.
            name = f"{PACKAGE}/datasets/carried/{part}-ubyte.gz"
            files[name] = gzip.compress(content, compresslevel=0, mtime=0)
    return files


@functools.cache
def packed_images(root: Path = ROOT) -> str:
    """The images as text: the same for every chapter, so squeezed once."""
    return pack(images(root))


def sums(files: dict[str, bytes]) -> dict[str, str]:
    """SHA-256 of what each of the images' files holds once unpacked, by part."""
    return {
        posixpath.basename(name).removesuffix("-ubyte.gz"): hashlib.sha256(
            gzip.decompress(content)
        ).hexdigest()
        for name, content in files.items()
    }


def loader(package: Package, tree: ast.Module) -> str:
    """The first code cell of a chapter with this code: it unpacks what that needs."""
    parts = [pack(module_files(package, package.needed(tree)))]
    data = package.needs_images(tree)
    if data:
        parts.append(packed_images(package.root))
    return LOADER.format(
        more=",\n# and a few images for when there is no network" if data else "",
        version=package.version,
        d2l=FETCH_D2L.format(d2l=D2L) if package.needs_d2l(tree) else "",
        packed=",\n".join(map(_literal, parts)),
    )


def _literal(text: str) -> str:
    """The text as a string in a few long lines; it holds no quote and no backslash."""
    lines = [text[i : i + LINE] for i in range(0, len(text), LINE)]
    return "\n".join(f'        "{line}"' for line in lines)


# The chapter itself.


def standalone(source: Path, page: str, root: Path = ROOT) -> nbformat.NotebookNode:
    """A chapter as a single file.

    Args:
        source: the chapter's notebook, with or without outputs.
        page: its place in the book, such as book/start/devices.ipynb.
        root: the book's root, which holds the package.

    Raises:
        ValueError: it imports what the package doesn't have, or gets too large.
    """
    notebook = nbformat.read(source, as_version=4)
    cells = [c for c in notebook.cells if not _is_directive(c)]
    code = [c for c in cells if c.cell_type == "code"]
    for cell in code:
        cell.outputs, cell.execution_count = [], None
        cell.source = re.sub(r"\A(#\|\s*export[^\n]*\n)+", "", cell.source)
        if "hide-input" in cell.metadata.get("tags", []):
            cell.metadata["jupyter"] = {"source_hidden": True}
    for cell in cells:
        if cell.cell_type == "markdown":
            cell.source = prose(cell.source, page, root)
    # The first code cell is the shared one, which would fetch the package.
    tree = ast.parse("\n\n".join(c.source for c in code[1:]))
    code[0].source = loader(package_in(root), tree)
    code[0].metadata.update({"cellView": "form", "_kg_hide-input": True})
    note = nbformat.v4.new_markdown_cell(NOTE, id="standalone")
    cells.insert(cells.index(code[0]), note)
    notebook.cells = cells
    size = len(text_of(notebook).encode("utf-8"))
    if size > MOST_BYTES:
        raise ValueError(f"{page}: {size:,} bytes, {MOST_BYTES:,} at most")
    return notebook


def text_of(notebook: nbformat.NotebookNode) -> str:
    """The notebook's file, as nbformat writes it."""
    return nbformat.writes(notebook) + "\n"


def _is_directive(cell: nbformat.NotebookNode) -> bool:
    return cell.cell_type == "code" and cell.source.startswith("#| default_exp")


def prose(text: str, page: str, root: Path = ROOT) -> str:
    """Markdown without what only the book can show: its links, its references."""

    def link(found: re.Match) -> str:
        label, target = found.groups()
        if label is None:
            return found.group()
        if not published(root):
            return label
        path, _, _ = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        return f"[{label}]({published(root)}/{path})"

    def role(found: re.Match) -> str:
        name, content = found.groups()
        if name != "cite":
            return f"`{content}`"
        known = references(root)
        return "; ".join(known[key.strip()] for key in content.split(","))

    text = re.sub(r"\{([a-z:-]+)\}`([^`]+)`", role, text)
    # Code, which is left alone, or a link that leads into the book.
    return re.sub(r"`[^`]+`|(?<!!)\[([^][]+)\]\((?![a-z]+:|#)([^()\s]+)\)", link, text)


def published(root: Path = ROOT) -> str:
    """Where the book's files can be read, once `make address` has said so; else ""."""
    text = (root / "_config.yml").read_text(encoding="utf-8")
    url, branch = (
        re.search(rf"^  {name}: *\"?([^\"\s]*)", text, flags=re.M).group(1)
        for name in ("url", "branch")
    )
    return f"{url}/blob/{branch}" if url else ""


@functools.cache
def references(root: Path = ROOT) -> dict[str, str]:
    """Each entry of the bibliography as a link: who, when, and where it is."""
    from pybtex.database import parse_file
    from pybtex.richtext import Text

    known = {}
    for key, entry in parse_file(
        root / "book" / "back" / "references.bib"
    ).entries.items():
        names = [" ".join(p.last_names) for p in entry.persons.get("author", [])]
        names = [str(Text.from_latex(n)) for n in names] or [entry.fields["title"]]
        who = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
        label = f"{who}, {entry.fields.get('year', 'no year')}"
        known[key] = f"[{label}]({url})" if (url := _url(entry.fields)) else label
    return known


def _url(fields: dict[str, str]) -> str:
    arxiv = re.search(r"arXiv:(\S+)", " ".join(fields.values()))
    if "doi" in fields:
        return f"https://doi.org/{fields['doi']}"
    return fields.get("url") or (f"https://arxiv.org/abs/{arxiv[1]}" if arxiv else "")


def chapters(root: Path = ROOT) -> list[Path]:
    """Every notebook of the book, in a stable order."""
    found = (root / "book").rglob("*.ipynb")
    return sorted(p for p in found if ".ipynb_checkpoints" not in p.parts)


def write(
    target: Path = TARGET, only: list[str] | None = None, root: Path = ROOT
) -> list[Path]:
    """Write the chapters as single files into `target`; return the files."""
    found = chapters(root)
    unknown = sorted(set(only or ()) - {p.stem for p in found})
    if unknown:
        raise SystemExit(f"--only: book/ has no chapter {', '.join(unknown)}")
    chosen = [p for p in found if not only or p.stem in only]
    written = []
    for source in chosen:
        file = target / source.relative_to(root / "book")
        file.parent.mkdir(parents=True, exist_ok=True)
        notebook = standalone(source, _path(source, root), root)
        file.write_text(text_of(notebook), encoding="utf-8")
        written.append(file)
    return written


# Trying them.


def environment(tensorflow: str, target: Path) -> Path:
    """Make an environment of what a hosted notebook has; return its Python."""
    uv = [sys.executable, "-m", "uv"]
    made = [*uv, "venv", "--quiet", "--clear", "--seed", "--python", sys.executable]
    subprocess.run([*made, str(target)], check=True)
    scripts = target / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / ("python.exe" if os.name == "nt" else "python")
    install = [*uv, "pip", "install", "--quiet", "--python", str(python)]
    subprocess.run([*install, f"tensorflow=={tensorflow}", *HOSTED], check=True)
    return python


def locked_tensorflow(root: Path = ROOT) -> str:
    """The version of TensorFlow in the lock."""
    text = (root / "requirements.txt").read_text(encoding="utf-8")
    return re.search(r"^tensorflow==(\S+)", text, flags=re.M).group(1)


def variables() -> dict[str, str]:
    """The environment of a run: alone, offline, with the images that a file carries."""
    kept = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")
    }
    return {"MANYGPU_OFFLINE": "1", "MANYGPU_DATA": "carried", **kept}


def check_python(python: Path) -> None:
    """Refuse an environment that has manygpu, where the files would prove nothing."""
    code = (
        "import importlib.util as u, sys; sys.exit(u.find_spec('manygpu') is not None)"
    )
    with tempfile.TemporaryDirectory() as empty:
        command = [str(python), "-c", code]
        if subprocess.run(command, cwd=empty, env=variables()).returncode:
            raise SystemExit(
                f"--python: {python} has manygpu, or doesn't run; make one "
                "with `tools/standalone.py environment`"
            )


def kernel_of(python: Path, folder: Path):
    """A manager of a kernel that this Python runs; its specification is in `folder`."""
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpecManager

    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "alone", "language": "python"}
    (folder / "alone").mkdir(exist_ok=True)
    (folder / "alone" / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    specs = KernelSpecManager(kernel_dirs=[str(folder)], ensure_native_kernel=False)
    manager = AsyncKernelManager(kernel_name="alone", kernel_spec_manager=specs)
    manager.shutdown_wait_time = 60.0  # seconds: a busy machine tidies up slowly
    return manager


def run_one(file: Path, manager, timeout: int) -> str:
    """Run one file in an empty folder; return what went wrong, or ""."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = nbformat.read(file, as_version=4)
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryFile() as log:
        empty, other = Path(place, "empty"), Path(place, "temporary")
        empty.mkdir()
        other.mkdir()
        given = variables() | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(other))
        where = {"metadata": {"path": str(empty)}}
        client = NotebookClient(notebook, manager, timeout=timeout, resources=where)
        try:
            # What it says aside is TensorFlow's greetings.
            client.execute(env=given, cleanup_kc=True, stdout=log, stderr=log)
        except CellExecutionError as failed:
            return _failure(failed)
        except Exception as failed:  # a kernel that died, a cell that took too long
            log.seek(0)
            end = log.read().decode("utf-8", "replace")[-2000:]
            return f"{type(failed).__name__}: {failed}\n{end}"
        left = sorted(p.name for p in empty.iterdir())
        return f"it left {left} in the folder it ran in" if left else ""


def _failure(failed) -> str:
    """The message first, then the end of the trace; a packed line is cut short."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", failed.traceback)
    lines = [line[:200] for line in plain.splitlines()][-25:]
    return "\n".join([f"{failed.ename}: {failed.evalue}"[:600], "", *lines])


def run_all(files: list[Path], python: Path, jobs: int, timeout: int) -> int:
    """Run the files, so many at a time; say each as it ends. Returns the failures."""
    failures, managers = 0, []

    def run(file: Path) -> tuple[str, float]:
        start = time.monotonic()
        managers.append(kernel_of(python, Path(folder)))
        return run_one(file, managers[-1], timeout), time.monotonic() - start

    # In threads, where the client leaves Ctrl-C to us.
    pool = futures.ThreadPoolExecutor(jobs)
    with tempfile.TemporaryDirectory() as folder:
        started = {pool.submit(run, file): file for file in files}
        try:
            for number, done in enumerate(futures.as_completed(started), 1):
                wrong, seconds = done.result()
                said = f"{number}/{len(files)} {seconds:4.0f} s  {started[done].stem}"
                print(said, f" FAILED\n{wrong}\n" if wrong else "", flush=True)
                failures += bool(wrong)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            stop(managers)
            pool.shutdown()
    return failures


def stop(managers: list) -> None:
    """Kill the kernels that still run."""
    for manager in managers:
        process = getattr(manager.provisioner, "process", None)
        if process is not None and process.poll() is None:
            process.kill()


def test(python: Path, jobs: int, only: list[str] | None, timeout: int) -> int:
    """Write the files and run them with `python`; return the exit status."""
    check_python(python)
    with tempfile.TemporaryDirectory() as folder:
        files = write(Path(folder), only)
        failures = run_all(files, python, jobs, timeout)
    print(f"{len(files) - failures} of {len(files)} files run alone with {python}")
    return int(failures > 0)


def arguments(words: list[str]) -> argparse.Namespace:
    """What is to be done, from the words of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write", help="write the files")
    writing.add_argument("--to", type=Path, default=TARGET)
    making = commands.add_parser("environment", help="make one without manygpu")
    making.add_argument("--tensorflow", default=locked_tensorflow())
    making.add_argument("--to", type=Path, required=True)
    trying = commands.add_parser("test", help="run the files")
    trying.add_argument("--python", type=Path, help="else an environment is made")
    trying.add_argument(
        "--tensorflow", default=locked_tensorflow(), help="for that one"
    )
    trying.add_argument("--jobs", type=int, default=1)
    trying.add_argument("--timeout", type=int, default=600, help="seconds for a cell")
    for command in (writing, trying):
        command.add_argument("--only", nargs="+", help="chapters, such as pipeline")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Run one command; return the exit status."""
    given = arguments(words)
    if given.command == "write":
        for file in write(given.to, given.only):
            print(f"{file.stat().st_size:9,} bytes  {file}")
        return 0
    if given.command == "environment":
        print(environment(given.tensorflow, given.to))
        return 0
    if given.python:
        # Not resolved: an environment's Python is a link out of it.
        return test(given.python.absolute(), given.jobs, given.only, given.timeout)
    with tempfile.TemporaryDirectory() as folder:
        python = environment(given.tensorflow, Path(folder) / "alone")
        return test(python, given.jobs, given.only, given.timeout)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
