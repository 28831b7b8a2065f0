"""Python for the pages that run some: Pyodide, fetched once, checked, and kept.

python -m workshop.page_python    fetch it, or say what is missing

It is the npm package of that name, by its own client. Only the files that a page asks
for are taken out of it. MANYGPU_PYODIDE may name the package's file, where npm or its
registry can't be reached. What is kept lies in ~/.cache/manygpu.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "314.0.7"
FILE = f"pyodide-{VERSION}.tgz"  # as npm calls it
SHA512 = (  # as the package's page has it: npm view pyodide@VERSION dist.integrity
    "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyM"
    "cWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
)
FILES = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
PATIENCE_S = 120
OWN_FILE = "MANYGPU_PYODIDE"
ADVICE = f"""\
Python for the puzzles' page is missing: {{why}}.
It is the npm package pyodide, version {VERSION}. Either install npm (Debian, Ubuntu:
apt install npm; macOS: brew install node) and let it reach its registry, or set
{OWN_FILE} to a copy of {FILE}. Without it, the puzzles work in notebooks only."""


def kept() -> Path:
    """Where the package's file is kept, between builds."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "manygpu" / FILE


def is_right(file: Path) -> bool:
    """Whether a file is there and has the checksum."""
    if not file.is_file():
        return False
    found = hashlib.sha512(file.read_bytes()).digest()
    return base64.b64encode(found).decode() == SHA512


def found() -> tuple[Path | None, str]:
    """The package's file, fetched if need be; or None, and why there is none."""
    if own := os.environ.get(OWN_FILE):
        return _checked(Path(own), f"{OWN_FILE} is {own}, which isn't {FILE}")
    if is_right(kept()):
        return kept(), ""
    return _fetched()


def _checked(file: Path, why: str) -> tuple[Path | None, str]:
    return (file, "") if is_right(file) else (None, why)


def _fetched() -> tuple[Path | None, str]:
    if not (npm := shutil.which("npm")):
        return None, "there is no npm"
    with tempfile.TemporaryDirectory() as place:
        command = [npm, "pack", f"pyodide@{VERSION}", "--pack-destination", place]
        told = {"capture_output": True, "encoding": "utf-8", "errors": "replace"}
        try:
            ran = subprocess.run(command, timeout=PATIENCE_S, check=False, **told)
        except subprocess.TimeoutExpired:
            return None, f"npm gave no answer in {PATIENCE_S} s"
        file, why = _checked(Path(place) / FILE, "npm brought another file")
        if file is None:
            said = " ".join(ran.stderr.split())[-300:]
            return None, f"npm failed: {said}" if ran.returncode else why
        kept().parent.mkdir(parents=True, exist_ok=True)
        half = kept().with_suffix(f".{os.getpid()}")  # nobody sees a half one
        shutil.copyfile(file, half)
        half.replace(kept())
    return kept(), ""


@functools.cache
def package() -> tuple[Path | None, str]:
    """As `found`, asked once a process."""
    return found()


def size(file: Path) -> int:
    """The bytes of those files that a page asks for."""
    with tarfile.open(file) as packed:
        return sum(packed.getmember(f"package/{name}").size for name in FILES)


def unpack(file: Path, folder: Path) -> None:
    """Put the files that a page asks for into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file) as packed:
        for name in FILES:
            content = packed.extractfile(f"package/{name}")
            (folder / name).write_bytes(content.read())


def ensure() -> Path:
    """The package's file.

    Raises:
        SystemExit: it can't be had; the message says what to do.
    """
    file, why = package()
    if file is None:
        sys.exit(ADVICE.format(why=why))
    return file


if __name__ == "__main__":
    print(ensure())
