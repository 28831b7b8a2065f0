"""Make an environment from a lock, quickly, and never half.

python3 workshop/environment.py [LOCK [FOLDER [REQUIREMENT]]]
    REQUIREMENT: a version that isn't the lock's, such as keras==3.12.0

It needs nothing but Python: pip installs uv as the lock has it, and uv makes the
environment what the lock says. It counts as made only when a note of what it was made
from has been written, as the last step.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTE = "made-from.txt"
EXACT = ["--require-hashes", "--no-deps", "--requirement"]
PACKAGE = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]


def check_python(version: tuple[int, ...] = sys.version_info[:2]) -> None:
    """Stop if this Python is none that the lock is written for."""
    if not (3, 10) <= version <= (3, 13):
        found = f"Python {version[0]}.{version[1]}: the book needs 3.10 to 3.13."
        sys.exit(f"{found} Name one, such as make PYTHON=python3.12")


def make(lock: Path, folder: Path, other: str = "") -> None:
    """Install the lock, and the package in place, into `folder`, if that is not so."""
    wanted, note, begun = recipe(lock, other), folder / NOTE, time.monotonic()
    found = note.read_text(encoding="utf-8").splitlines() if note.is_file() else []
    if found == wanted:
        return
    note.unlink(missing_ok=True)
    python = python_of(folder)
    print(f"[environment] {wanted[1]}, {lock.name}, into {folder.name}", flush=True)
    if found[:2] != wanted[:2]:
        run(sys.executable, "-m", "venv", "--clear", folder)
        with tempfile.TemporaryDirectory() as place:
            only = Path(place) / "uv.txt"
            only.write_text(uv_line(lock), encoding="utf-8")
            pip(python, *EXACT, only)
    if sys.dont_write_bytecode:  # nobody would keep what the first import compiles
        os.environ["UV_COMPILE_BYTECODE"] = "1"
    try:
        sync = ["-m", "uv", "pip", "sync", "--require-hashes", "--python", python]
        run(python, *sync, lock)
    except subprocess.CalledProcessError:
        print("  uv could not; pip tries, which knows your pip.conf", flush=True)
        pip(python, *EXACT, lock)
    if other:
        pip(python, "--no-deps", other)
    pip(python, *PACKAGE)
    note.write_text("\n".join(wanted) + "\n", encoding="utf-8")
    print(f"[environment] made in {time.monotonic() - begun:.0f} s", flush=True)


def recipe(lock: Path, other: str) -> list[str]:
    """What an environment is made from; what begins otherwise is made anew."""
    version = "Python " + ".".join(map(str, sys.version_info[:3]))
    files = [lock, ROOT / "pyproject.toml"]
    sums = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return [str(ROOT), version, lock.name, other, *sums]


def uv_line(lock: Path) -> str:
    """The lock's line for uv, with its hashes."""
    text = lock.read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = re.findall(r"^uv==.*$", text, flags=re.M)
    return line.split("#")[0] + "\n"


def python_of(folder: Path) -> Path:
    """The Python of an environment."""
    windows = folder / "Scripts" / "python.exe"
    return windows if os.name == "nt" else folder / "bin" / "python"


def pip(python: Path, *words: str | Path) -> None:
    """Install with the environment's pip."""
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *words)


def run(*command: str | Path) -> None:
    """Run a command in the root; raise if it fails."""
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True)


if __name__ == "__main__":
    lock, folder, other, *_ = [*sys.argv[1:], "", "", ""]
    check_python()
    try:
        make(ROOT / (lock or "requirements.txt"), ROOT / (folder or ".venv"), other)
    except subprocess.CalledProcessError as failed:
        print("\nThe environment is not made; the next try starts anew.")
        sys.exit(f"failed: {' '.join(map(str, failed.cmd))}")
    except KeyboardInterrupt:
        sys.exit("\nbroken off; the next try starts anew and keeps what it downloaded")
