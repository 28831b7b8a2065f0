"""Lets `manygpu bench`'s rows train the models of this folder; writes what came out.

`.venv/bin/python experiments/models-of-others/run.py` in the repository's root: about
a quarter of an hour on two cores, and `results.csv`. Names of models after it run only
these. All rows of all models share one process, which is started again, one model on,
when it dies or one model takes longer than `PATIENCE_S`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]
PATIENCE_S = 300  # for a model
ROWS = ("one", "data", "engine", "fit", "pipeline")
PIECES = 2  # micro-batches; bench takes 8, which are traced one by one
DEVICES, GONE = 2, "its process has ended"
ERROR = re.compile(r"\b[A-Z]\w*(Error|Exception)\b")  # a class's name in a message
BARE = re.compile(r"no: [\d.e+-]+ off$")


def names() -> list[str]:
    """Return all models as `module:function`, without importing anything heavy."""
    found = []
    for module in ("kinds", "examples"):
        text = (HERE / f"{module}.py").read_text(encoding="utf-8")
        made = re.findall(r"^def (\w+)\(\) -> Made:", text, re.MULTILINE)
        found += [f"{module}:{name}" for name in made]
    return found


def outcome(facts: dict, cannot: str, verdict: str) -> tuple[str, str]:
    """Return a word for how a row came out, and what it said."""
    if cannot:
        return ("raw error" if ERROR.search(cannot) else "refused"), cannot
    if verdict.startswith("yes"):
        return "equal", verdict
    if verdict.startswith("no"):
        return ("no, bare" if BARE.match(verdict) else "no, with reason"), verdict
    return ("its own" if verdict.startswith("its own") else "can't tell"), verdict


def rows_of(
    model: str, devices: list[str], rows: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Return each row's name, how it came out, and what it said."""
    from manygpu.bench import serve
    from manygpu.bench.result import Row
    from manygpu.trainings import models, table

    def tried(make):
        try:
            return make(), ""
        except Exception as error:
            return None, serve.reason(error)

    task, why = tried(lambda: models.load(model))
    if why:  # as `survey` says it: no row is tried
        return [(name, *outcome({}, why, "")) for name in rows]
    task.pieces, found = min(PIECES, task.pieces), []
    for name in rows:
        row = table.STRATEGIES[name]
        count = 1 if row.alone else len(devices)

        def facts(row=row, count=count):
            cannot = table.unfit(row, task.about, count)
            if cannot:
                raise table.UnfitError(cannot)
            made = serve.timed(row, task, devices)
            facts = serve.facts_of(made)
            made.training.take(*made.task.batch)
            return facts

        known, cannot = tried(facts)
        said = Row(name, count, facts=known or {}).verdict
        found.append((name, *outcome(known or {}, cannot, said)))
    return found


def work(asked: list[str], rows: Sequence[str]) -> None:
    """In a process of its own: print what came out, a line a model."""
    import tensorflow as tf

    import manygpu

    devices = manygpu.devices(quiet=True)
    # Most of the time goes into graphs that run twice, so these aren't optimized.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    for model in asked:
        print(json.dumps([model, rows_of(model, devices, rows)]), flush=True)


def all_of(
    asked: list[str], rows: Sequence[str]
) -> Iterator[list[tuple[str, str, str, str]]]:
    """Yield for each model its rows: its name, the row's, how it came out, and why."""
    left = list(asked)
    more = {"MANYGPU_DEVICES": str(DEVICES), "TF_CPP_MIN_LOG_LEVEL": "3"}
    while left:
        words = [sys.executable, __file__, "--work", *left, "--rows", *rows]
        child = subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True, env=os.environ | more
        )
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=read, args=(child, lines), daemon=True).start()
        while left:
            try:
                line = lines.get(timeout=PATIENCE_S)
            except queue.Empty:
                line = GONE
            if line == GONE:
                break
            if line.startswith('["'):  # else it is a model that prints
                model, made = json.loads(line)
                left.remove(model)
                tell(model, made)
                yield [(model, *row) for row in made]
        child.kill()
        child.wait()
        if left:
            yield [(left.pop(0), "all", "raw error", "its process died")]


def read(child: subprocess.Popen, lines: queue.Queue) -> None:
    """Hand on what a process prints, and then that it has ended."""
    for line in child.stdout:
        lines.put(line)
    lines.put(GONE)


def tell(model: str, rows: list) -> None:
    """Say how far it is."""
    print(model, dict(Counter(row[1] for row in rows)), file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="default: all")
    parser.add_argument(
        "--rows", nargs="+", choices=ROWS, default=ROWS, help=f"default: {ROWS}"
    )
    parser.add_argument("--work", action="store_true", help="in the process that works")
    parser.add_argument("--out", type=Path, default=HERE / "results.csv")
    given = parser.parse_args()
    if given.work:
        work(given.models, given.rows)
        return
    kept = {}
    if given.out.exists():  # keep what other models and rows came to
        with given.out.open(newline="", encoding="utf-8") as file:
            _, *before = csv.reader(file)
        kept = {(row[0], row[1]): row for row in before}
    for rows in all_of(given.models or names(), given.rows):
        kept |= {(row[0], row[1]): row for row in rows}
        write(kept, given.out)
    print(dict(Counter(row[2] for row in kept.values()).most_common()))


def write(kept: dict[tuple[str, str], Sequence[str]], path: Path) -> None:
    """Write all rows so far, in the order of the models and of `ROWS`."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["model", "row", "outcome", "said"])
        places = ((model, row) for model in names() for row in (*ROWS, "all"))
        writer.writerows(kept[place] for place in places if place in kept)


if __name__ == "__main__":
    main()
