"""`python -m manygpu choose`: the rule, asked from a terminal."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from manygpu.choosing.setting import GOALS, Machine, Model, Setting
from manygpu.choosing.tree import Choice, choose
from manygpu.simulate.cluster import LINKS, Cluster, Link

# What of a model and a machine a file or the command line may say, and what is taken
# where neither does.
MODEL = {"layers": None, "parameters": None, "flops": None, "handed": None}
MODEL |= {"kept": None, "state": 16.0, "sent": 4.0}
MACHINE = {"memory": None, "rate": None, "bandwidth": 1e12, "launch": 50e-6}
MACHINE |= {"price": 1.0}
CLUSTER = {"nodes": 1, "gpus": None, "cards": 1}
WHOLE = ("layers", "nodes", "gpus", "cards", "batch")


def parser() -> argparse.ArgumentParser:
    """The command's options, each of which a file may give as well."""
    made = argparse.ArgumentParser("manygpu choose", description=choose.__doc__)
    made.add_argument(
        "--file", help="JSON with the same names, such as bench's `choose`"
    )
    made.add_argument("--goal", choices=GOALS)
    for name in [*MODEL, *MACHINE, *CLUSTER, "batch"]:
        made.add_argument(f"--{name}", type=int if name in WHOLE else float)
    for name in ("inside", "across"):
        said = f"one of {list(LINKS)}, or SECONDS,BYTES_A_SECOND"
        made.add_argument(f"--{name}", help=said)
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def link_of(said: str | Sequence[float]) -> Link:
    """A link by its name, or from its latency and bandwidth.

    Raises ValueError for a name that is not known, or other than two numbers.
    """
    if isinstance(said, str):
        if said in LINKS:
            return LINKS[said]
        said = said.split(",")
    try:
        latency, bandwidth = map(float, said)
    except ValueError as wrong:
        raise ValueError(
            f"a link must be one of {list(LINKS)} or two numbers, got {said}"
        ) from wrong
    return Link(latency, bandwidth)


def setting_of(given: Mapping[str, Any]) -> Setting:
    """A setting from names and values, as a file or the options have them.

    Raises ValueError for names that miss, and what `Setting` and its parts refuse.
    """
    known = {**MODEL, **MACHINE, **CLUSTER, "batch": None, "inside": None}
    filled = known | {k: v for k, v in given.items() if v is not None}
    missing = sorted(name for name, value in filled.items() if value is None)
    if missing:
        raise ValueError(f"missing: {', '.join(missing)}; give --NAME, or a file")
    inside = link_of(filled["inside"])
    across = link_of(filled.get("across", filled["inside"]))
    counts = {name: int(filled[name]) for name in CLUSTER}
    cluster = Cluster(inside=inside, across=across, **counts)
    model = {name: filled[name] for name in MODEL} | {"layers": int(filled["layers"])}
    machine = {name: filled[name] for name in MACHINE}
    name = str(given.get("name", "your model"))
    goal = filled.get("goal", "time")
    batch = int(filled["batch"])
    return Setting(Model(name, **model), Machine(cluster, **machine), batch, goal)


def told(choice: Choice) -> str:
    """A choice in lines for a terminal."""
    lines = [f"{r.question} {r.answer}" for r in choice.reasons]
    if choice.plan is None:
        lines.append("Nothing fits: more devices, more memory, or a smaller model.")
    else:
        lines.append(f"-> {choice.plan.words}")
        lines.append(
            f"   {choice.seconds:.3g} s a step, {choice.memory / 1e9:.3g} GB a device, "
            f"{100 * choice.cost:.3g} cents a step"
        )
    return "\n".join([*lines, f"   see {', '.join(choice.chapters)}"])


def as_json(choice: Choice) -> dict[str, Any]:
    """A choice as JSON can hold it."""
    plan = choice.plan and choice.plan._asdict() | {"words": choice.plan.words}
    reasons = [reason._asdict() for reason in choice.reasons]
    return choice._asdict() | {"plan": plan, "reasons": reasons}


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 if nothing fits, or 2 for bad input."""
    options = vars(parser().parse_args(words))
    try:
        path = options.pop("file")
        given = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
        given = given.get("choose", given)
        given |= {name: value for name, value in options.items() if value is not None}
        choice = choose(setting_of(given))
    except (OSError, TypeError, ValueError) as wrong:
        print(f"manygpu choose: {wrong}", file=sys.stderr)
        return 2
    print(json.dumps(as_json(choice)) if options["json"] else told(choice))
    return 0 if choice.plan else 1
