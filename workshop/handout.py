"""What a teacher gives to a class: the book, and nothing that holds the answers.

python -m workshop.handout [FOLDER]     default: _handout

A clone has the solutions in a folder beside the chapters, and the tests try right
answers. This copies what git tracks, all but these.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from manygpu.records import write_whole
from workshop.build import SOLUTIONS, without_solutions
from workshop.pages import ROOT

TARGET = ROOT / "_handout"
ANSWERS = ("solutions/", "tests/", "workshop/tests/", f"{SOLUTIONS}.md")


def handed_out(tracked: Iterable[str]) -> list[str]:
    """What of these paths holds no answer."""
    return [name for name in tracked if not name.startswith(ANSWERS)]


def write(target: Path = TARGET, root: Path = ROOT) -> int:
    """Copy what is handed out into `target`, and pack it; return how many files.

    Raises:
        ValueError: `root` is no clone, so that nobody knows what belongs to the book.
    """
    command = ["git", "ls-files", "-z"]
    done = subprocess.run(command, cwd=root, capture_output=True, check=False)
    if done.returncode:
        raise ValueError(
            f"the book must be a clone made by git, got {root}: clone it and try again"
        )
    names = handed_out(done.stdout.decode("utf-8").rstrip("\0").split("\0"))
    shutil.rmtree(target, ignore_errors=True)
    book = target / "book-of-manygpu"
    for name in names:
        place = book / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, place)
    contents = (root / "_toc.yml").read_text(encoding="utf-8")
    write_whole(without_solutions(contents), book / "_toc.yml")
    shutil.make_archive(str(book), "zip", target, book.name)
    return len(names)


def main(words: list[str]) -> int:
    """Write the hand-out; return the exit status."""
    target = Path(words[0]).absolute() if words else TARGET
    try:
        print(f"{write(target)} files, without solutions and tests: {target}")
    except ValueError as wrong:
        print(wrong, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
