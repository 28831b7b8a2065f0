"""The lines of PyTorch of the book, taken out of its pages."""

import ast
import hashlib
import json
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results.csv"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
OTHERS = "tf.", "jax", "lax.", "socket_allreduce"  # TensorFlow, JAX, the book's own


class Block(NamedTuple):
    """Some lines of a page. number: the first of its page is 1."""

    page: str
    number: int
    text: str

    @property
    def hash(self) -> str:
        """Return what changes whenever the lines do."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    def on_cpu(self, changes: dict[str, str]) -> "Block":
        """Return the lines with these changes; ValueError if they lack one of them."""
        text = self.text
        for old, new in changes.items():
            if old not in text:
                raise ValueError(f"the block has no {old!r} any more: see its case")
            text = text.replace(old, new)
        return self._replace(text=text)

    def run(self, names: dict) -> dict:
        """Run all lines with these names; return the names afterwards."""
        code = compile(self.text, f"{self.page}, block {self.number}", "exec")
        exec(code, names)
        return names

    def statements(self) -> list[str]:
        """Return the statements, without comments, to be run one by one."""
        return [ast.unparse(one) for one in ast.parse(self.text).body]


def is_pytorch(language: str, text: str) -> bool:
    """Say whether a block is to be run here: PyTorch in Python, or its commands."""
    if language == "python":
        return not any(other in text for other in OTHERS)
    return language == "bash" and "torch" in text


def blocks_in(text: str, page: str) -> list[Block]:
    """Return the blocks of a text in the order of the page."""
    found = [
        code for language, code in FENCE.findall(text) if is_pytorch(language, code)
    ]
    return [Block(page, number, code) for number, code in enumerate(found, 1)]


def of_pages() -> list[Block]:
    """Return all blocks of PyTorch in the notebooks of the book."""
    found = []
    for path in sorted((ROOT / "book").glob("*/*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
        page = f"{path.parent.name}/{path.stem}"
        found += blocks_in("\n\n".join(texts), page)
    return found


def of_drafts(folder: Path) -> list[Block]:
    """Return the blocks of texts that aren't in a page yet: PART--PAGE.md."""
    found = []
    for path in sorted(folder.glob("*--*.md")):
        page = path.stem.replace("--", "/")
        found += blocks_in(path.read_text(encoding="utf-8"), page)
    return found


def corrected(blocks: list[Block], file: Path) -> list[Block]:
    """Return the blocks that a list of {"page", "old", "new"} changes, changed."""
    found = []
    fixes = json.loads(file.read_text(encoding="utf-8"))
    for block in blocks:
        text = block.text
        for fix in fixes:
            if fix["page"] == block.page:
                text = text.replace(fix["old"], fix["new"])
        if text != block.text:
            found.append(block._replace(text=text))
    return found
