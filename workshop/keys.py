"""What an executed notebook was made from: one key, kept in a small file beside it.

jupyter-cache keeps such keys, but of a notebook's own cells only; here it is executed
anew, too, when a module of the package changes that it uses.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from pathlib import Path

import nbformat

from manygpu.records import write_whole
from workshop.needs import ROOT, file_of, needed, reads

# What a notebook's outputs depend on, beside its own text and the package's.
VARIABLES = re.compile(r"MANYGPU_|TF_|XLA_|KERAS_|CUDA_|OMP_")


class Keys:
    """Which executed notebook was made from what."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "keys.json"
        said = self.file.read_text(encoding="utf-8") if self.file.is_file() else "{}"
        self.known: dict[str, str] = json.loads(said)

    def fresh(self, page: str, key: str) -> bool:
        """Whether the page was executed from just this."""
        return self.known.get(page) == key

    def note(self, page: str, key: str) -> None:
        """Keep that the page was executed from this."""
        self.known[page] = key
        write_whole(json.dumps(self.known, indent=1), self.file)


def key(source: Path, variables: dict[str, str]) -> str:
    """What an executed notebook depends on, as one hash."""
    cells = nbformat.read(source, as_version=4).cells
    machine = [sys.version, platform.machine(), os.cpu_count()]
    own = {k: v for k, v in os.environ.items() if VARIABLES.match(k)} | variables
    texts = [[cell.cell_type, cell.source] for cell in cells]
    found = hashlib.sha256(json.dumps([texts, machine, sorted(own.items())]).encode())
    found.update((ROOT / "requirements.txt").read_bytes())
    for module in needed("\n\n".join(c.source for c in cells if c.cell_type == "code")):
        for file in (file_of(module), *reads(module)):
            found.update(file.read_bytes())
    return found.hexdigest()
