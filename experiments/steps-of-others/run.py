"""Judge all steps of this folder, and write what the judge said of each."""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.util
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COLUMNS = ("name", "kind", "of_rule", "expected", "said", "named", "ok", "reason", "s")
FILES = ("right", "odd", "keras_steps", "wrong", "torch_cases", "jax_cases")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


class LateError(BaseException):
    """A case took too long; no `except Exception` of a judge may catch it."""


def late(*_: Any) -> None:
    raise LateError


def all_cases() -> list:
    """Return the list of all cases, which the files of this folder make."""
    sys.path.insert(0, str(HERE))
    from cases import CASES

    for name in FILES:
        importlib.import_module(name)
    return CASES


def judged(case: Any, limit_s: int) -> dict[str, Any]:
    """Return the row of one case."""
    from manygpu.prove import judge
    from manygpu.prove.elsewhere import CREWS

    row = {"name": case.name, "kind": case.kind, "expected": case.expected}
    row |= {"of_rule": "rule" if case.of_rule else "", "named": "", "reason": ""}
    began = time.perf_counter()
    signal.signal(signal.SIGALRM, late)
    signal.alarm(limit_s)
    try:
        verdict = judge(case.make())
    except LateError:
        CREWS.clear()  # its processes may still wait for each other
        row |= {"said": "late"}
    except Exception as error:
        row |= {"said": "stops", "reason": f"{type(error).__name__}: {error}"[:300]}
    else:
        said = "can't tell" if verdict.unsure else "right" if verdict.right else "wrong"
        named = verdict.findings[0].broken if verdict.findings else ""
        reason = verdict.unsure
        if verdict.findings:
            one = verdict.findings[0]
            reason += f" [{one.smallest or one.case}: {one.sentence}]"
        row |= {"said": said, "named": named, "reason": reason.strip()}
    finally:
        signal.alarm(0)
    row["s"] = f"{time.perf_counter() - began:.1f}"
    good = row["said"] == case.expected
    if case.names:  # a step that stops on one device is none that can be judged
        stops = row["said"] == "can't tell" and row["named"] == "runs"
        good = (good or stops) and row["named"] in case.names
    row["ok"] = "yes" if good else "no"
    return row


def summary(rows: list[dict[str, Any]]) -> str:
    """Count what was said of each kind."""
    lines = []
    for kind in ("right", "odd", "wrong", "hard"):
        own = [row for row in rows if row["kind"] == kind]
        said = Counter(row["said"] for row in own)
        named = sum(row["ok"] == "yes" for row in own)
        counted = ", ".join(f"{what} {n}" for what, n in sorted(said.items()))
        good = f"; named rightly {named}" if kind in ("wrong", "hard") else ""
        lines.append(f"{kind}, {len(own)}: {counted}{good}")
    return "\n".join(lines)


def kept_rows(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of a table that is there, by name: a run of a part keeps them."""
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def main() -> None:
    """Judge what is asked for; write a table; print what isn't as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    help_only = (
        "names, kinds (right, odd, wrong, hard), or packages (keras, torch, jax)"
    )
    parser.add_argument("--only", nargs="*", default=[], help=help_only)
    parser.add_argument("--out", type=Path, default=HERE / "verdicts.csv")
    parser.add_argument("--limit", type=int, default=300, help="seconds of a case")
    given = parser.parse_args()
    cases, rows = all_cases(), kept_rows(given.out)
    for case in cases:
        if given.only and not {case.name, case.kind, case.needs} & {*given.only}:
            continue
        if case.needs and importlib.util.find_spec(case.needs) is None:
            print(f"{case.name}: skipped, because {case.needs} isn't installed")
            continue
        row = rows[case.name] = judged(case, given.limit)
        if row["ok"] != "yes":
            told = " ".join(str(row[name]) for name in ("said", "named", "reason"))
            print(f"{case.kind} {case.name} ({row['s']} s): {told}", flush=True)
        with given.out.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            table.writeheader()
            table.writerows(rows[one.name] for one in cases if one.name in rows)
    print(summary(list(rows.values())))


if __name__ == "__main__":
    main()
