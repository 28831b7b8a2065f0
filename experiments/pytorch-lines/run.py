"""Run the book's lines of PyTorch, and compare them with the book's own functions.

    PYTHONPATH=. .venv/bin/python -m uv run --no-project --python 3.11 \\
        --with torch --with numpy python experiments/pytorch-lines/run.py

with a CPU build of torch (experiments/README.md).
Takes the blocks out of the pages, runs each on CPUs, and lets the project's own
environment compute the same with `manygpu.scratch` (in a process of its own, since
TensorFlow needs different packages). Prints a row per block; writes results.csv.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import blocks as of_book
import numpy as np
import theirs  # noqa: F401 (it notes the cases)
from blocks import RESULTS, ROOT, Block
from ranks import CASES, run

FIELDS = ["page", "block", "hash", "compared", "ranks", "changed for CPUs"]
FIELDS += ["largest difference", "allowed", "verdict"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="a part of the page's name")
    parser.add_argument("--drafts", type=Path, help="a folder of PART--PAGE.md")
    parser.add_argument("--fixes", type=Path, help="a file of corrections: run both")
    parser.add_argument("--ours", default=".venv/bin/python", help="has TensorFlow")
    return parser.parse_args()


def to_run(asked: argparse.Namespace) -> list[Block]:
    """Return the blocks of the pages, of drafts, and those that are corrected."""
    found = of_book.of_pages()
    known = {block.page for block in found}
    if asked.drafts:
        drafts = of_book.of_drafts(asked.drafts)
        found += [block for block in drafts if block.page not in known]
    if asked.fixes:
        found += of_book.corrected(found, asked.fixes)
    return sorted(found, key=lambda block: block[:2])


def key_of(block: Block) -> str:
    return f"{block.page}#{block.number}#{block.hash}"


def ours_for(found: dict[str, list | str], python: str) -> dict[str, dict]:
    """Let the project's environment compute the same; return its arrays by block."""
    sent = {}
    for key, of_ranks in found.items():
        if not isinstance(of_ranks, str):
            sent |= {f"{key}|": np.zeros(0)}  # also a case that has found nothing
            for rank, own in enumerate(of_ranks):
                sent |= {f"{key}|{name}@{rank}": a for name, a in own.items()}
    with tempfile.TemporaryDirectory() as place:
        given, answer = Path(place, "given.npz"), Path(place, "answer.npz")
        np.savez(given, **sent)
        script = Path(__file__).parent / "reference.py"
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
        env = os.environ | quiet | {"PYTHONPATH": str(ROOT), "MANYGPU_OFFLINE": "1"}
        subprocess.run([python, script, given, answer], check=True, env=env, cwd=ROOT)
        arrays = dict(np.load(answer))
    ours = {}
    for name, array in arrays.items():
        key, name = name.split("|")
        ours.setdefault(key, {})[name] = array
    return ours


def difference(ours: np.ndarray, found: np.ndarray) -> float:
    """Return the largest difference, relative to the largest number of ours."""
    if ours.shape != found.shape:
        return float("inf")
    if ours.dtype.kind not in "fiub" or found.dtype.kind not in "fiub":
        return float("inf") if (ours != found).any() else 0.0
    largest = np.abs(ours.astype(float)).max(initial=0)
    apart = np.abs(ours.astype(float) - found.astype(float)).max(initial=0)
    apart = float(apart / largest) if largest else float(apart)
    return apart if np.isfinite(apart) else float("inf")


def compared(ours: dict, of_ranks: list[dict]) -> tuple[float, str]:
    """Return the largest difference of all ranks and arrays, and what is missing."""
    used, worst = set(), 0.0
    for rank, own in enumerate(of_ranks):
        for name, found in own.items():
            if name.startswith("for ours"):
                continue
            key = f"{name}@{rank}" if f"{name}@{rank}" in ours else name
            if key not in ours:
                return worst, f"ours has no {name!r}"
            used.add(key)
            worst = max(worst, difference(ours[key], found))
    missing = sorted(set(ours) - used - {""})
    return worst, f"PyTorch has no {missing}" if missing else ""


def row_of(block: Block, found: list | str, ours: dict) -> dict[str, str]:
    """Return a row of the results."""
    row = dict(zip(FIELDS, [block.page, str(block.number), block.hash], strict=False))
    of = CASES.get((block.page, block.number))
    if of is None:
        return row | {"verdict": "not run: no case for it"}
    changed = "; ".join(f"{old} -> {new}" for old, new in of.changes.items())
    row |= {"compared": of.compared, "ranks": str(max(of.ranks, 1))}
    row |= {"changed for CPUs": changed, "allowed": f"{of.tolerance:.0e}"}
    if isinstance(found, str) and found.startswith("NeedsGPUError: "):
        return row | {"verdict": found.replace("NeedsGPUError", "needs a GPU")}
    if isinstance(found, str):
        return row | {"verdict": f"fails: {found.splitlines()[0][:150]}"}
    if "error" in ours:
        return row | {"verdict": f"ours fails: {ours['error']}"}
    worst, missing = compared(ours, found)
    verdict = missing or ("equal" if worst <= of.tolerance else "differs")
    return row | {"largest difference": f"{worst:.1e}", "verdict": verdict}


def write(rows: list[dict], kept: set[tuple]) -> None:
    """Write the rows in place of those of the same blocks; keep others of `kept`."""
    old, new = [], {(row["page"], row["block"], row["hash"]) for row in rows}
    if RESULTS.exists():
        with RESULTS.open(encoding="utf-8", newline="") as file:
            old = list(csv.DictReader(file))
    for row in old:
        key = row["page"], row["block"], row["hash"]
        if key in kept and key not in new:
            rows.append(row)
    rows.sort(key=lambda row: (row["page"], int(row["block"]), row["hash"]))
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    asked = arguments()
    blocks, found = to_run(asked), {}
    chosen = [block for block in blocks if asked.only in block.page]
    for block in chosen:
        if of := CASES.get((block.page, block.number)):
            print(f"{block.page}, block {block.number}", file=sys.stderr, flush=True)
            found[key_of(block)] = run(of, block)
    ours = ours_for(found, asked.ours)
    rows = []
    for block in chosen:
        key = key_of(block)
        rows.append(row_of(block, found.get(key, ""), ours.get(key, {})))
        named = {name: rows[-1].get(name, "") for name in FIELDS}
        line = "{page:40} {block:2} {hash} {largest difference:9}{allowed:7} {verdict}"
        print(line.format(**named), f"[{named['compared']}]")
    equal = sum(row["verdict"].startswith(("equal", "needs a GPU")) for row in rows)
    print(f"{equal} of {len(rows)} blocks are equal, or need a GPU")
    write(rows, {(block.page, str(block.number), block.hash) for block in blocks})
    sys.exit(equal < len(chosen))


if __name__ == "__main__":
    main()
