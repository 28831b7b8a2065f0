"""The book's own text files, and marks of a merge that somebody forgot in one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from workshop.pages import ROOT

HIDDEN = {".github", ".ci"}  # of what begins with a dot, ours
BUILT = {"build", "dist", "node_modules", "__pycache__"}
LARGE = 5_000_000  # bytes: nobody merges that by hand
MARKS = ("<" * 7 + " ", ">" * 7 + " ")  # how git begins and ends a conflict


def text_files(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Each text file of the book with its text; nothing that was built."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if is_ours(name))
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_symlink() or path.stat().st_size > LARGE:
                continue
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:  # no text
                continue


def is_ours(folder: str) -> bool:
    """Whether a folder holds sources: not an environment, nor what was built."""
    if folder.startswith((".", "_")):
        return folder in HIDDEN
    return folder not in BUILT and not folder.endswith(".egg-info")


def conflicts(root: Path = ROOT) -> list[str]:
    """Where a merge was left undone, a sentence each."""
    return [
        f"{path.relative_to(root)}:{number}: a conflict is left from a merge: settle "
        "it, and take the marks out"
        for path, text in text_files(root)
        if any(mark in text for mark in MARKS)
        for number, line in enumerate(text.splitlines(), 1)
        if line.startswith(MARKS[0])
    ]
