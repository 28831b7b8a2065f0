"""Compare the steps of the book on this machine: ratios, side by side."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from typing import NamedTuple

from manygpu.bench import Case, compare, ideal, ratio
from manygpu.bench.table import CHAIN_LAYERS, CHAIN_PIECES


class Row(NamedTuple):
    """What is timed, and the most that its ratio may be, if that is promised."""

    case: Case
    target: float | None = None


MEASURED = "compiled, 2 devices"  # it is divided by each other one
STEPS = {
    MEASURED: Row(Case("data", 2)),
    "eager, 2 devices (the source's)": Row(Case("eager", 2), 0.50),
    "compiled, 1 device of 1 thread": Row(Case("one", 1), 0.56),
    "compiled, 2 that never communicate": Row(Case("apart", 2), 1.05),
    "engine, 2 devices (MirroredStrategy)": Row(Case("engine", 2), 1.00),
    "fit, 2 devices (Keras)": Row(Case("fit", 2)),
}
STEP = "step, unsplit"  # it divides each of these
# GPipe and 1F1B are held to 15% above the bubble's formula.
CHAINS = {
    STEP: Row(Case("one", 1, model="chain")),
    "step, GPipe": Row(Case("gpipe", 2, model="chain"), 1.15 * ideal(2)),
    "step, 1F1B": Row(Case("pipeline", 2, model="chain"), 1.15 * ideal(2)),
    "step, interleaved": Row(Case("interleaved", 2, model="chain")),
    "step, zero bubble": Row(Case("zero-bubble", 2, model="chain")),
}


def divided(name: str) -> tuple[str, str]:
    """Whose time is divided by whose in a case's row; its own by its own: none is."""
    return (MEASURED, name) if name in STEPS else (name, STEP)


def report(times: dict[str, list[float]]) -> None:
    """Print each case's milliseconds, its ratio, round by round, and its target."""
    print(f"{'case':37}{'ms':>10}{'ratio':>8}{'least, most':>16}{'target':>10}")
    for name, own in times.items():
        row = f"{name:37}{statistics.median(own):10.1f}"
        one, other = divided(name)
        if one != other:
            middle, least, most = ratio(times, one, other)
            spread, limit = f"{least:.2f}, {most:.2f}", (STEPS | CHAINS)[name].target
            target = f"<= {limit:.2f}" if limit else "none"
            row += f"{middle:8.2f}{spread:>16}{target:>10}"
        print(row)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=10)
    words = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores: cases in processes of their")
    print(f"own take turns. '{MEASURED}' divided by each other one:\n", flush=True)
    steps = {name: row.case for name, row in STEPS.items()}
    report(compare(steps, words.rounds, words.steps))
    print(
        f"\n{CHAIN_LAYERS} equal layers, {CHAIN_PIECES} micro-batches, divided by one"
    )
    print(f"device of 1 thread; ideal of GPipe and 1F1B: {ideal(2):.2f}\n", flush=True)
    chains = {name: row.case for name, row in CHAINS.items()}
    report(compare(chains, words.rounds, max(1, words.steps // 3)))


if __name__ == "__main__":
    main()
