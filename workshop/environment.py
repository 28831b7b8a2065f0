"""Make an environment from a lock, quickly, and never half.

python3 workshop/environment.py [LOCK] [--to FOLDER] [--with REQUIREMENT ...]

It needs nothing but Python: pip installs uv as the lock has it, uv installs the rest
and shows how far it is. What was downloaded is kept, so after a broken-off try the next
one starts anew and downloads little. The environment counts as made only when a note
of what it was made from has been written, as the last step.
"""

from __future__ import annotations

import argparse
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
EXACT = ["--no-deps", "--require-hashes", "--requirement"]
PACKAGE = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
OLDEST, NEWEST = (3, 10), (3, 13)


def main(words: list[str]) -> int:
    """Make the environment unless it is there; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lock", nargs="?", default="requirements.txt")
    parser.add_argument("--to", default=".venv", help="its folder")
    parser.add_argument(
        "--with",
        dest="others",
        action="append",
        default=[],
        metavar="REQUIREMENT",
        help="another version than the lock's, such as keras==3.12.0",
    )
    given = parser.parse_args(words)
    check_python()
    try:
        make(ROOT / given.lock, ROOT / given.to, given.others)
    except subprocess.CalledProcessError as failed:
        print(f"\nfailed: {' '.join(map(str, failed.cmd))}", file=sys.stderr)
        print("The environment is not made; the next try starts anew.", file=sys.stderr)
        return failed.returncode or 1
    except KeyboardInterrupt:
        print("\nbroken off; the next try starts anew and keeps what was downloaded")
        return 130
    return 0


def check_python(version: tuple[int, ...] = sys.version_info[:2]) -> None:
    """Stop if this Python is none that the lock is written for."""
    if not OLDEST <= version <= NEWEST:
        found = ".".join(map(str, version))
        sys.exit(
            f"Python {found}: the book needs 3.10 to 3.13. Name one, such as "
            f"make PYTHON=python3.12"
        )


def make(lock: Path, folder: Path, others: list[str]) -> None:
    """Install the lock, and the package in place, into `folder`, if that is not so."""
    wanted, note, begun = recipe(lock, others), folder / NOTE, time.monotonic()
    found = note.read_text(encoding="utf-8").splitlines() if note.is_file() else []
    if found == wanted:
        return
    note.unlink(missing_ok=True)
    python = python_of(folder)
    if found[:-1] == wanted[:-1]:  # the lock is installed; the package has changed
        install(python, [PACKAGE])
    else:
        install_lock(python, lock, folder, others)
    note.write_text("\n".join(wanted) + "\n", encoding="utf-8")
    print(f"[environment] made in {time.monotonic() - begun:.0f} s", flush=True)


def install_lock(python: Path, lock: Path, folder: Path, others: list[str]) -> None:
    """Install everything anew."""
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"[environment] Python {version}, {lock.name}, into {folder.name}")
    say("1/3", "an empty environment")
    run(sys.executable, "-m", "venv", "--clear", folder)
    say("2/3", "uv, by pip")
    with tempfile.TemporaryDirectory() as place:
        only = Path(place) / "uv.txt"
        only.write_text(uv_line(lock), encoding="utf-8")
        pip(python, *EXACT, str(only))
    say("3/3", f"{count(lock)} packages, by uv")
    exchanged = [["--no-deps", *others]] if others else []
    install(python, [[*EXACT, str(lock)], *exchanged, PACKAGE])


def install(python: Path, jobs: list[list[str]]) -> None:
    """Install with uv; where uv can't, with pip, which is slower."""
    uv = [python, "-m", "uv", "pip", "install", "--python", python, *cache()]
    if sys.dont_write_bytecode:  # nobody would keep what the first import compiles
        uv.append("--compile-bytecode")
    try:
        for job in jobs:
            run(*uv, *job)
    except subprocess.CalledProcessError:
        print("  uv could not; pip tries, which knows your pip.conf", flush=True)
        for job in jobs:
            pip(python, *job)


def recipe(lock: Path, others: list[str]) -> list[str]:
    """What an environment is made from; the last line is about the package alone."""
    version = ".".join(map(str, sys.version_info[:3]))
    locked = hashlib.sha256(lock.read_bytes()).hexdigest()
    package = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    return [lock.name, version, str(ROOT), locked, *others, package]


def uv_line(lock: Path) -> str:
    """The lock's line for uv, with its hashes."""
    text = lock.read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = re.findall(r"^uv==.*$", text, flags=re.M)
    return line.split("#")[0] + "\n"


def count(lock: Path) -> int:
    """How many packages the lock names, those for other machines among them."""
    return len(re.findall(r"^\w\S*==", lock.read_text(encoding="utf-8"), flags=re.M))


def cache() -> list[str]:
    """uv keeps downloads below the home folder; without a home to write in, nowhere."""
    try:
        home = Path(os.environ.get("UV_CACHE_DIR") or Path.home() / ".cache" / "uv")
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            return []
    except (OSError, RuntimeError):  # RuntimeError: there is no home at all
        return ["--no-cache"]


def python_of(folder: Path) -> Path:
    """The Python of an environment."""
    windows = folder / "Scripts" / "python.exe"
    return windows if os.name == "nt" else folder / "bin" / "python"


def pip(python: Path, *words: str) -> None:
    """Install with the environment's pip."""
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *words)


def run(*command: object) -> None:
    """Run a command in the root; raise if it fails."""
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True)


def say(number: str, what: str) -> None:
    """Say which step begins."""
    print(f"[environment {number}] {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
