"""`manygpu choose` beside published answers, its own ranges, and published steps.

Run in the repository's root: `python experiments/choose-against-published/compare.py`.
Three tables are written beside this file. `answers.csv`: each of `questions.csv`, whose
answer somebody gave (in a thread, or by reading what the command said), our first plan,
and whether the two agree. `sweep.csv`: options of many questions, how many of them lie
outside of their own ranges. `steps.csv`: published steps, measured over forecast and
over what is printed, by table and by the way the work is shared out.

`--as NAME` writes `steps-NAME.csv` and `sweep-NAME.csv` alone, so that an older version
can be asked by the same file: `PYTHONPATH=/elsewhere python .../compare.py --as old`.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import itertools
import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from manygpu.__main__ import main
from manygpu.choosing import asking, experts, residuals, search, tables
from manygpu.choosing.question import Setting
from manygpu.costs.layout import Layout

HERE = Path(__file__).parent
WAYS = ("ZeRO 3", "layerwise", "stages")
MODELS = ("resnet-50", "gpt-2", "llama-3-8b", "llama-2-13b", "llama-3-70b")
GPUS = ("v100-32", "a100-40", "a100-80", "h100")
MACHINES = ((1, 4), (1, 8), (2, 8), (4, 8))  # nodes, GPUs of each
PLACES = {"first": 1, "any": 3}


def asked(words: Sequence[str]) -> tuple[int, str]:
    """Return the command's status, and all that it prints."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main(["choose", *words])
    out.seek(0)
    return status, out.read()


def plans_of(words: Sequence[str]) -> list[search.Option]:
    """Return the options for the same question; none where it is refused."""
    status, said = asked([*words, "--json"])
    if status:
        return []
    options = json.loads(said)["options"]
    for option in options:
        option["plan"].pop("words")
        option["plan"] = Layout(**option["plan"])
    return [search.Option(**option) for option in options]


def agrees(row: dict[str, str], status: int, said: str, options: list) -> bool:
    """Whether an answer is what was published, as far as the row says it."""
    if status != int(row["status"]) or row["says"] not in said:
        return False
    lacks, _, place = row["lacks"].partition("@")
    where = options[int(place) - 1].line if place else said
    if lacks and lacks in where:
        return False
    if row["among"] == "published first" and "nearest?" not in said:
        return False
    some = options[: PLACES.get(row["among"], 1)]
    wanted = row["families"].split("|") if row["families"] else []
    right = [o for o in some if experts.family(o.plan) in wanted]
    if wanted and not right:
        return False
    if not row["gb"]:
        return True
    measured = 1e9 * float(row["gb"])
    return any(o.least <= measured <= o.most for o in right)


def answers() -> Iterable[Sequence]:
    """Rows of `answers.csv`."""
    head = "number", "set", "source", "published", "asked", "status", "first plan"
    yield (*head, "seconds", "low", "high", "GB", "least", "most", "verdict")
    with (HERE / "questions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        about = [row[name] for name in head[:5]]
        status, said, options = 2, "", []
        if row["asked"]:
            words = shlex.split(row["asked"])
            status, said = asked(words)
            said, options = " ".join(said.split()), plans_of(words)
        right = bool(row["asked"]) and agrees(row, status, said, options)
        verdict = "agrees" if right else "differs"
        if not row["asked"] or "without experts" in said:
            verdict = "not asked"
        first = options[0] if options else None
        numbers = [f"{n:.4g}" for n in first[2:3] + first[5:7]] if first else [""] * 3
        held = [first.memory, first.least, first.most] if first else []
        numbers += [f"{n / 1e9:.4g}" for n in held] or [""] * 3
        plan = first.plan.words if first else "nothing" if status < 2 else "refused"
        yield (*about, status, plan, *numbers, verdict)


def swept() -> list[Setting]:
    """Questions of the sweep."""
    found = []
    for model, gpu, (nodes, gpus) in itertools.product(MODELS, GPUS, MACHINES):
        asked = asking.of_model(model)
        machine = asking.of_gpu(tables.gpu(gpu), asked, gpus, nodes)
        machine |= {"gpus": gpus, "nodes": nodes, "across": "InfiniBand HDR"}
        found.append(asking.setting_of(asked | machine))
    return found


def sweep() -> Iterable[Sequence]:
    """Rows of `sweep.csv`: an option each; 1 where a number is outside its range."""
    yield "model", "devices", "plan", "seconds", "low", "high", "outside", "first"
    for setting in swept():
        for i, option in enumerate(search.choose(setting).options):
            ends = option.low, option.high
            outside = not ends[0] <= option.seconds <= ends[1]
            if hasattr(option, "least"):
                outside |= not option.least <= option.memory <= option.most
            numbers = [f"{n:.4g}" for n in (option.seconds, *ends)]
            name, count = setting.model.name, setting.machine.cluster.count
            yield name, count, option.plan.words, *numbers, int(outside), int(not i)


def way(step: residuals.PublishedStep) -> str:
    """How a step shares the work out, in words."""
    sort, _ = residuals._sort(step.setting, step.layout)
    named = [name for name, used in zip(WAYS, sort, strict=True) if used]
    return " and ".join(named) or "copies"


def steps() -> Iterable[Sequence]:
    """Rows of `steps.csv`: by table, by way and by size."""
    yield "by", "which", "steps", "of", "median", "tenth", "ninetieth", "least", "most"
    found = {*residuals.steps(), *residuals.large()}  # Llama 3's were beside, once
    groups: dict[tuple[str, str], list] = {}
    for step in sorted(found, key=lambda step: (step.table, step.name, step.seconds)):
        kind, n = residuals.kind(step.setting), step.layout.devices
        sizes = [most for most in (8, 64, 256, 1024, 10**6) if n <= most]
        for key in (
            ("table", step.table),
            ("kind", kind),
            ("way", f"{kind}, {way(step)}"),
            ("devices, at most", f"{sizes[0]:,}"),
        ):
            groups.setdefault(key, []).append(step)
    for (by, which), some in groups.items():
        ratios = {"forecast": [s.ratio for s in some]}
        if hasattr(some[0], "corrected"):
            ratios["printed"] = [s.corrected for s in some]
        for name, values in ratios.items():
            ends = np.percentile(values, (50, 10, 90, 0, 100))
            numbers = [f"{n:.3f}" for n in ends]
            yield by, which, len(some), name, *numbers


def written(name: str, rows: Iterable[Sequence]) -> list[Sequence]:
    """Write a table and return its rows."""
    rows = list(rows)
    with (HERE / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    return rows


def run() -> None:
    """Write the tables and print how often what agrees."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--as", dest="name", help="of an older version")
    end = f"-{name}" if (name := made.parse_args().name) else ""
    _, *options = written(f"sweep{end}", sweep())
    outside = sum(row[-2] for row in options)
    print(f"{outside} of {len(options)} options are outside of their own range")
    written(f"steps{end}", steps())
    if not end:
        _, *rows = written("answers", answers())
        for of in ("thread", "setting"):
            verdicts = [row[-1] for row in rows if row[1] == of]
            said = {v: verdicts.count(v) for v in ("agrees", "differs", "not asked")}
            print(f"{len(verdicts)} of kind {of}: {said}")


if __name__ == "__main__":
    run()
