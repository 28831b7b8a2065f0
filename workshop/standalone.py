"""Each chapter as one file that runs anywhere: it carries what it imports.

python -m workshop.standalone [hosted-2026-08.txt]
    Write every chapter of book/ as a single notebook into _standalone/; run each in an
    environment without manygpu, with what a hosted notebook had that day.
"""

from __future__ import annotations

import base64
import functools
import gzip
import io
import lzma
import os
import posixpath
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import nbformat
import numpy as np
import yaml
from pybtex.database import Entry, parse_file

from workshop import notebooks
from workshop.extensions.citations import authors
from workshop.needs import (
    PACKAGE,
    ROOT,
    SCRATCH,
    direct,
    exports,
    file_of,
    needed,
    reads,
)
from workshop.notebook_runs import at_once

TARGET = ROOT / "_standalone"
MOST_BYTES = 2_000_000
LINE = 50_000  # characters of the packed text in one line of the cell
# Of each class, this many of the first training and test images are carried.
A_CLASS = {"train": 200, "t10k": 50}
D2L = "d2l==1.0.3"

NOTE = """\
*This file runs alone, from top to bottom, wherever TensorFlow, NumPy, pandas,
matplotlib, IPython and requests are. The folded cell below carries what it imports of
the book's package; run it first.*"""
GUESS = """

*Below "Guess first", "Run all" shows the number at once, because nothing waits for an
answer here. To guess, stop above that cell, and write your number into it.*"""

LOADER = '''\
# @title Run this first: what this file carries
# Below, packed, are the modules of the book's package that this file imports{more}.
# They are unpacked into a temporary folder, which goes when the kernel stops. d2l,
# which training loops that draw ask for, is fetched when they do.
import atexit
import base64
import importlib.machinery
import importlib.util
import io
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

# TensorFlow greets with red lines that look like failures; "0" shows them.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


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


class FetchD2L:
    """Gets d2l by pip, without its pins, which are old, once it is imported."""

    def find_spec(self, name, path=None, target=None):
        """Asked for what nobody else has found."""
        if name != "d2l":
            return None
        folder = new_place()
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        pip += ["--disable-pip-version-check", "--target", folder, "{d2l}"]
        done = subprocess.run(pip, capture_output=True, text=True)
        if done.returncode:
            message = "This needs d2l, and pip could not fetch it. With a network, run "
            message += "`pip install --no-deps {d2l}`. pip said:\\n"
            raise RuntimeError(message + done.stderr)
        return importlib.machinery.PathFinder.find_spec(name, [folder])


sys.meta_path.append(FetchD2L())
unpack(
{packed}
)
'''

# What a file carries, packed.


def pack(files: dict[str, bytes], effort: int = 2) -> str:
    """The files as text: a zip, squeezed as a whole; equal files give equal text.

    Effort 6, for what is squeezed once, takes four times as long for an eighth less.
    """
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    packed = lzma.compress(target.getvalue(), preset=effort)
    return base64.b85encode(packed).decode("ascii")


def module_files(modules: list[str]) -> dict[str, bytes]:
    """The modules and the files that they declare, by their paths in the package."""
    files = {}
    for module in modules:
        for file in (file_of(module), *reads(module)):
            files[file.relative_to(ROOT).as_posix()] = file.read_bytes()
        if module == SCRATCH:  # no more than these modules, in its own order
            kept = {m: names for m, names in exports().items() if m in modules}
            text = f'"""What the chapters built: a part."""\n\n{notebooks.offer(kept)}'
            files[file_of(module).relative_to(ROOT).as_posix()] = text.encode("utf-8")
    return files


@functools.cache
def images() -> dict[str, bytes]:
    """The first images of each class, as files for manygpu.data to find and check."""
    source, files = ROOT / PACKAGE / "datasets" / "fashion-mnist", {}
    for kind, a_class in A_CLASS.items():
        names = [f"{kind}-{part}-ubyte.gz" for part in ("images-idx3", "labels-idx1")]
        raw = [gzip.decompress((source / name).read_bytes()) for name in names]
        labels = np.frombuffer(raw[1], np.uint8, offset=8)
        kept = [np.flatnonzero(labels == c)[:a_class] for c in range(10)]
        kept = np.sort(np.concatenate(kept))
        for name, content, header in zip(names, raw, (16, 8), strict=True):
            samples = np.frombuffer(content, np.uint8, offset=header)
            chosen = samples.reshape(len(labels), -1)[kept].tobytes()
            # The header says how many there are in its second four bytes.
            content = content[:4] + struct.pack(">I", len(kept)) + content[8:header]
            # Not squeezed here: what is squeezed twice grows.
            squeezed = gzip.compress(content + chosen, compresslevel=0, mtime=0)
            files[f"{PACKAGE}/datasets/carried/{name}"] = squeezed
    return files


@functools.cache
def packed_images() -> str:
    """The images as text: the same for every chapter, so squeezed once."""
    return pack(images(), effort=6)


def loader(code: str) -> str:
    """The first code cell of a chapter with this code: it unpacks what that needs."""
    parts, more = [pack(module_files(needed(code)))], ""
    if f"{PACKAGE}.data" in direct(code):
        parts.append(packed_images())
        more = ",\n# and a few images for when there is no network"
    lines = []
    for text in parts:  # it holds no quote and no backslash
        lines += [f'    "{text[i : i + LINE]}"' for i in range(0, len(text), LINE)]
        lines[-1] += ","
    packed = "\n".join(lines).removesuffix(",")
    return LOADER.format(more=more, d2l=D2L, packed=packed)


# The chapter itself.


def standalone(source: Path, page: str) -> nbformat.NotebookNode:
    """A chapter as a single file.

    Args:
        source: the chapter's notebook, with or without outputs.
        page: its place in the book, such as book/start/devices.ipynb.

    Raises:
        ValueError: it imports what the package doesn't have, or gets too large.
    """
    notebook = nbformat.read(source, as_version=4)
    cells = [c for c in notebook.cells if not c.source.startswith("#| default_exp")]
    code = [c for c in cells if c.cell_type == "code"]
    for cell in code:
        cell.outputs, cell.execution_count = [], None
        cell.source = re.sub(r"\A(#\|\s*export[^\n]*\n)+", "", cell.source)
        if "hide-input" in cell.metadata.get("tags", []):
            cell.metadata["jupyter"] = {"source_hidden": True}
    for cell in cells:
        if cell.cell_type == "markdown":
            cell.source = prose(cell.source, page)
    # The first code cell is the shared one, which would fetch the package.
    code[0].source = loader("\n\n".join(c.source for c in code[1:]))
    code[0].metadata.update({"cellView": "form", "_kg_hide-input": True})
    asks = any("= guess(" in cell.source for cell in code)
    note = nbformat.v4.new_markdown_cell(NOTE + GUESS * asks, id="standalone")
    cells.insert(cells.index(code[0]), note)
    notebook.cells = cells
    if (size := len(text_of(notebook).encode("utf-8"))) > MOST_BYTES:
        raise ValueError(f"{page}: {size:,} bytes, {MOST_BYTES:,} at most")
    return notebook


def text_of(notebook: nbformat.NotebookNode) -> str:
    """The notebook's file, as nbformat writes it."""
    return nbformat.writes(notebook) + "\n"


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
    code = r"(?s:```.*?```)|`[^`]+`"
    return re.sub(rf"{code}|(?<!!)\[([^][]+)\]\((?![a-z]+:|#)([^()\s]+)\)", link, text)


@functools.cache
def published(root: Path = ROOT) -> str:
    """Where the book's files can be read, once `make address` has said so; else ""."""
    text = (root / "_config.yml").read_text(encoding="utf-8")
    repository = yaml.safe_load(text)["repository"]
    url = repository["url"]
    return f"{url}/blob/{repository['branch']}" if url else ""


@functools.cache
def references(root: Path = ROOT) -> dict[str, str]:
    """Each entry of the bibliography as a link: who, when, and where it is."""

    def link(entry: Entry) -> str:
        label = f"{authors(entry)}, {entry.fields.get('year', 'no year')}"
        return f"[{label}]({url})" if (url := _url(entry.fields)) else label

    found = parse_file(root / notebooks.BIBLIOGRAPHY).entries
    return {key: link(entry) for key, entry in found.items()}


def _url(fields: dict[str, str]) -> str:
    if "doi" in fields:
        return f"https://doi.org/{fields['doi']}"
    arxiv = f"https://arxiv.org/abs/{fields['eprint']}" if "eprint" in fields else ""
    return fields.get("url") or arxiv


def write(target: Path = TARGET, names: Sequence[str] = ()) -> list[Path]:
    """Write chapters as single files into `target`, all if none is named.

    Returns:
        The files, in the order of the chapters.
    """
    shutil.rmtree(target, ignore_errors=True)
    written = []
    for source in notebooks.chapters():
        if names and source.stem not in names:
            continue
        file = target / source.relative_to(notebooks.BOOK)
        file.parent.mkdir(parents=True, exist_ok=True)
        notebook = standalone(source, source.relative_to(ROOT).as_posix())
        file.write_text(text_of(notebook), encoding="utf-8")
        written.append(file)
    return written


# Trying them.


def alone(python: str, *needs: str | Path) -> list[str | Path]:
    """The words before a command that let it run where there is nothing but `needs`.

    `python` is a version, such as "3.12"; this one's where uv has none of it.
    """
    words = [sys.executable, "-m", "uv", "run", "--quiet", "--isolated", "--no-project"]
    asked = [*words, "--python", python, "python", "-c", ""]
    if subprocess.run(asked, check=False).returncode:
        print(f"There is no Python {python}: this one tries it.", flush=True)
        python = sys.executable
    return [*words, "--python", python, *needs]


def test(listed: Path, folder: Path = TARGET) -> int:
    """Run the files by nbmake with what is listed; return the exit status."""
    version = re.search(r"Python (3\.\d+)", listed.read_text(encoding="utf-8"))[1]
    tools = ["--with", "nbmake", "--with", "pytest-xdist", "--with", "psutil"]
    words = [*alone(version, "--with-requirements", listed, *tools), "python", "-m"]
    words += ["pytest", "--nbmake", "-q", "--tb=no", "-n", str(at_once())]
    # Offline, with the images that a file carries.
    given = {**os.environ, "MANYGPU_OFFLINE": "1", "MANYGPU_DATA": "carried"}
    given.pop("PYTHONPATH", None)
    words += ["--dist", "worksteal", folder]
    return subprocess.run(words, cwd=ROOT, env=given, check=False).returncode


if __name__ == "__main__":
    for file in write():
        print(f"{file.stat().st_size:9,} bytes  {file}", flush=True)
    sys.exit(test(Path(sys.argv[1])) if sys.argv[1:] else 0)
