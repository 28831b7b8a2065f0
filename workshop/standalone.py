"""Each chapter as one file that runs anywhere: it carries what it imports.

python -m workshop.standalone write [--to FOLDER] [--only NAMES]
    write every chapter of book/ as a single notebook into _standalone/
python -m workshop.standalone test [--tensorflow 2.17.1] [--jobs N] [--only NAMES]
    write them, and run each by nbmake in an environment without manygpu
python -m workshop.standalone test --hosted hosted-2026-08.txt [--jobs N] [--only NAMES]
    the same with what a hosted notebook had that day, and the Python nearest to its
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
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import nbformat
import numpy as np

from workshop import build
from workshop.needs import PACKAGE, SCRATCH, Package, offer, package_in

ROOT = Path(__file__).resolve().parent.parent
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
        for folder in re.findall(r'Path\(__file__\)\.parent(?: / "(\w+)")?', text):
            # The shipped images are too many to carry: see `images`.
            inside = sorted(p for p in (file.parent / folder).iterdir() if p.is_file())
            inside = [p for p in inside if p.suffix != ".py"]
            files |= {_path(p, package.root): p.read_bytes() for p in inside}
        if module == SCRATCH:
            text = scratch_init(package, modules)
        files[_path(file, package.root)] = text.encode("utf-8")
    return files


def scratch_init(package: Package, modules: Iterable[str]) -> str:
    """The package `scratch` with no more than these modules, in its own order."""
    kept = {m: names for m, names in package.exports.items() if m in set(modules)}
    return '"""What the chapters built: the part carried here."""\n\n' + offer(kept)


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


def environment(needs: list[str], target: Path, python: str = sys.executable) -> Path:
    """Make an environment of these requirements; return its Python."""
    uv = [sys.executable, "-m", "uv"]
    made = [*uv, "venv", "--quiet", "--clear", "--seed", "--python", python]
    subprocess.run([*made, str(target)], check=True)
    scripts = target / ("Scripts" if os.name == "nt" else "bin")
    inside = scripts / ("python.exe" if os.name == "nt" else "python")
    install = [*uv, "pip", "install", "--quiet", "--python", str(inside)]
    subprocess.run([*install, *needs], check=True)
    return inside


def hosted_python(listed: str) -> str:
    """Of the Pythons on this machine, the one nearest to a list's "Python 3.x"."""
    wanted = int(re.search(r"Python 3\.(\d+)", listed)[1])
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    there = [str(p) for p in home.glob("versions/3.*/bin/python")]
    there += [shutil.which(f"python3.{minor}") or "" for minor in range(10, 20)]
    minors = {p: minor_of(p) for p in [sys.executable, *filter(None, there)]}
    usable = [p for p, minor in minors.items() if minor and minor >= 10]
    return min(usable, key=lambda p: abs(minors[p] - wanted))


def minor_of(python: str) -> int | None:
    """12 of a Python 3.12; None if it doesn't run, as a shim may not."""
    command = [python, "-c", "import sys; print(sys.version_info.minor)"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if told.returncode else int(told.stdout)


def locked_tensorflow(root: Path = ROOT) -> str:
    """The version of TensorFlow in the lock."""
    text = (root / "requirements.txt").read_text(encoding="utf-8")
    return re.search(r"^tensorflow==(\S+)", text, flags=re.M).group(1)


def variables() -> dict[str, str | None]:
    """What a run has: it is alone, offline, with the images that a file carries."""
    alone = {"PYTHONPATH": None, "PYTHONHOME": None}
    given = os.environ.get("MANYGPU_DATA", "carried")
    return {"MANYGPU_OFFLINE": "1", "MANYGPU_DATA": given, **alone}


def check_python(python: Path) -> None:
    """Refuse an environment that has manygpu, where the files would prove nothing."""
    code = (
        "import importlib.util as u, sys; sys.exit(u.find_spec('manygpu') is not None)"
    )
    with tempfile.TemporaryDirectory() as empty, build.environment(variables()):
        if subprocess.run([str(python), "-c", code], cwd=empty).returncode:
            message = f"--python: {python} has manygpu, or doesn't run; leave --python "
            raise SystemExit(message + "out, and an environment is made")


def test(python: Path, jobs: int, only: list[str] | None) -> None:
    """Write the files and run them with `python`; stop with an error if one fails."""
    check_python(python)
    with tempfile.TemporaryDirectory() as folder:
        files = write(Path(folder) / "book", only)
        kernel = Path(folder) / "kernels" / "alone" / "kernel.json"
        kernel.parent.mkdir(parents=True)
        argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": "alone", "language": "python"}
        kernel.write_text(json.dumps(spec), encoding="utf-8")
        alone = {**variables(), "JUPYTER_PATH": folder}
        build.execute(files, "--nbmake-kernel=alone", at_once=jobs, **alone)
    print(f"{len(files)} of {len(files)} files run alone with {python}")


def arguments(words: list[str]) -> argparse.Namespace:
    """What is to be done, from the words of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write", help="write the files")
    writing.add_argument("--to", type=Path, default=TARGET)
    trying = commands.add_parser("test", help="run the files")
    trying.add_argument("--python", type=Path, help="else an environment is made")
    trying.add_argument(
        "--tensorflow", default=locked_tensorflow(), help="for that one"
    )
    trying.add_argument("--hosted", type=Path, help="a list of what it is to have")
    trying.add_argument("--jobs", type=int, default=1)
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
    if given.python:
        # Not resolved: an environment's Python is a link out of it.
        test(given.python.absolute(), given.jobs, given.only)
        return 0
    needs, python = [f"tensorflow=={given.tensorflow}", *HOSTED], sys.executable
    if given.hosted:
        needs = ["--requirement", str(given.hosted)]
        python = hosted_python(given.hosted.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        test(environment(needs, Path(folder) / "alone", python), given.jobs, given.only)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
