"""Names in prose, docstrings and comments that the book's code doesn't have any more.

A rename changes code, and tests see to that. Nothing else reads a sentence. So each
name in backticks that looks like one of ours, with an underscore or with brackets, must
occur in code: in the package, a notebook, a test, a script or a table that one reads.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from workshop.files import text_files
from workshop.pages import ROOT

# They say what things were called once.
HISTORY = ("CHANGELOG.md", "book/back/errata.md")
WORD = re.compile(r"[A-Za-z_]\w*")
QUOTED = re.compile(r"`([A-Za-z_][\w.]*)(\([^`\n]*)?`")
BLOCK = re.compile(r"```.*?```", flags=re.S)
OTHERS = ("d2l.", "jax.", "tf.", "torch.")  # what a name begins with that isn't ours
TENSORFLOW, PYTORCH = "TensorFlow's or Keras'", "PyTorch's or a library's for it"
READER = "an exercise asks the reader to write it"
ALLOWED = {
    "Dataset.list_files": TENSORFLOW,
    "_all_reduce_sum_gradients": TENSORFLOW,
    "_make_rebatch_fn": TENSORFLOW,
    "get_next_as_optional": TENSORFLOW,
    "map_parallelization": TENSORFLOW,
    "merge_call": TENSORFLOW,
    "scale_loss": TENSORFLOW,
    "scale_loss_for_distribution": TENSORFLOW,
    "steps_per_execution": TENSORFLOW,
    "tf_keras": TENSORFLOW,
    "set_gradient_divide_factor": PYTORCH,
    "bucket_cap_mb": PYTORCH,
    "communication_data_type": PYTORCH,
    "current_device": PYTORCH,
    "fp16_compress_hook": PYTORCH,
    "gradient_as_bucket_view": PYTORCH,
    "initialize_model_parallel": PYTORCH,
    "local_rank": PYTORCH,
    "map_location": PYTORCH,
    "num_items_in_batch": PYTORCH,
    "set_epoch": PYTORCH,
    "set_rotate_method": PYTORCH,
    "vocab_parallel_cross_entropy": PYTORCH,
    "all_reduce_perf": "NVIDIA's, of its tests of NCCL",
    "sm_60": "NVIDIA's, of a kind of chips",
    "sm_61": "NVIDIA's, of a kind of chips",
    "pcast": "JAX'",
    "prevent_cse": "JAX'",
    "differing": READER,
    "share_a_variable": READER,
    "with_spares": READER,
}


def stale_names(root: Path = ROOT) -> list[str]:
    """Names in prose that no code has, a sentence each."""
    known, prose = names_and_prose(root)
    return [
        f"{place}: `{name}` is in the text, and in no code: write its name of today, "
        "or say in workshop/stale_names.py whose it is"
        for place, name in sorted(set(quoted(prose)))
        if name.rpartition(".")[2] not in known and name not in ALLOWED
    ]


def quoted(prose: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The places and names in backticks that look like ours."""
    for place, text in prose:
        for name, call in QUOTED.findall(text):
            ours = "_" in name or call
            # Environment variables and constants of others are in capitals.
            name = name.rstrip(".")
            whole = not name.endswith("_")  # else it is how several names begin
            if ours and whole and not name.startswith(OTHERS) and not name.isupper():
                yield place, name


def names_and_prose(root: Path) -> tuple[set[str], list[tuple[str, str]]]:
    """The words of all code, and each text that people read, with its place."""
    known: set[str] = set()
    prose: list[tuple[str, str]] = []
    for path, text in text_files(root):
        place = path.relative_to(root).as_posix()
        if path.suffix == ".py":
            _read_code(text, place, known, prose)
        elif path.suffix == ".ipynb":
            for cell in json.loads(text)["cells"]:
                source = "".join(cell["source"])
                if cell["cell_type"] == "code":
                    _read_code(source, place, known, prose)
                else:
                    _read_markdown(source, place, known, prose)
        elif path.suffix == ".md":
            if place not in HISTORY:
                _read_markdown(text, place, known, prose)
        else:
            known.update(WORD.findall(text))
    return known, prose


def _read_markdown(text: str, place: str, known: set, prose: list) -> None:
    """What a page says, and the words of its blocks of code."""
    for block in BLOCK.findall(text):
        known.update(WORD.findall(block))
    prose.append((place, BLOCK.sub("", text)))


def _read_code(text: str, place: str, known: set, prose: list) -> None:
    """The words of code and of its texts; docstrings and comments are prose."""
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:  # ruff names it
        return
    docs = {id(doc): doc.value for doc in _docstrings(tree)}
    prose += [(place, text) for text in docs.values()]
    prose += [(place, line.partition("#")[2]) for line in lines if "#" in line]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and id(node) not in docs:
                known.update(WORD.findall(node.value))
            continue
        for field in ("id", "name", "attr", "arg", "asname", "module"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                known.update(name.split("."))


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """The texts that begin a module, a class or a function."""
    kinds = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and node.body:
            first = getattr(node.body[0], "value", None)
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first
