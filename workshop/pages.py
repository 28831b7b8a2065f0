"""Which chapters there are, and in which order they are read: _toc.yml says it."""

from __future__ import annotations

import functools
from pathlib import Path

import nbformat
import yaml

ROOT = Path(__file__).resolve().parent.parent


def reading_order(root: Path = ROOT) -> list[str]:
    """The notebooks that _toc.yml names, such as "book/start/devices", in its order."""
    return [page for part in parts(root) for page in part]


@functools.cache
def parts(root: Path = ROOT) -> list[list[str]]:
    """The same, part by part."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    named = [[c["file"] for c in part["chapters"]] for part in toc["parts"]]
    only = [[p for p in part if (root / f"{p}.ipynb").is_file()] for part in named]
    return [part for part in only if part]


def title_of(page: str, root: Path = ROOT) -> str:
    """The heading that a page begins with, such as that of "book/start/devices"."""
    file = root / f"{page}.ipynb"
    if file.is_file():
        text = nbformat.read(file, as_version=4).cells[0].source
    else:
        text = (root / f"{page}.md").read_text(encoding="utf-8")
    return text.partition("\n")[0].lstrip("# ")
