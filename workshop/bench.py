"""Compare the steps of the book on this machine: ratios, side by side."""

from __future__ import annotations

import argparse
import os
import platform
import statistics

from manygpu.bench import Case, compare, ideal, ratio
from manygpu.bench.table import CHAIN_LAYERS, CHAIN_PIECES

# Each case, and the most that its ratio may be, if that is promised.
MEASURED = "compiled, 2 devices"  # it is divided by each other one
STEPS = {
    MEASURED: (Case("data", 2), None),
    "eager, 2 devices (the source's)": (Case("eager", 2), 0.50),
    "compiled, 1 device of 1 thread": (Case("one", 1), 0.56),
    "compiled, 2 that never communicate": (Case("apart", 2), 1.05),
    "engine, 2 devices (MirroredStrategy)": (Case("engine", 2), 1.00),
    "fit, 2 devices (Keras)": (Case("fit", 2), None),
}
STEP = "step, unsplit"  # it divides each of these
# GPipe and 1F1B are held to 15% above the bubble's formula.
CHAINS = {
    STEP: (Case("one", 1, model="chain"), None),
    "step, GPipe": (Case("gpipe", 2, model="chain"), 1.15 * ideal(2)),
    "step, 1F1B": (Case("pipeline", 2, model="chain"), 1.15 * ideal(2)),
    "step, interleaved": (Case("interleaved", 2, model="chain"), None),
    "step, zero bubble": (Case("zero-bubble", 2, model="chain"), None),
}


def report(times: dict[str, list[float]]) -> None:
    """Print each case's milliseconds, its ratio, round by round, and its target."""
    print(f"{'case':37}{'ms':>10}{'ratio':>8}{'least, most':>16}{'target':>10}")
    for name, own in times.items():
        print(f"{name:37}{statistics.median(own):10.1f}", end="")
        one, other = (MEASURED, name) if name in STEPS else (name, STEP)
        if one != other:
            middle, least, most = ratio(times, one, other)
            spread, limit = f"{least:.2f}, {most:.2f}", (STEPS | CHAINS)[name][1]
            target = f"<= {limit:.2f}" if limit else "none"
            print(f"{middle:8.2f}{spread:>16}{target:>10}", end="")
        print()


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=10)
    words = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores: cases in processes of their")
    print("own take turns.")
    layers = f"{CHAIN_LAYERS} equal layers, {CHAIN_PIECES} micro-batches, divided by"
    layers += f" one device of 1 thread; ideal of GPipe and 1F1B: {ideal(2):.2f}"
    for title, cases, steps in (
        (f"'{MEASURED}' divided by each other one:", STEPS, words.steps),
        (layers, CHAINS, max(1, words.steps // 3)),
    ):
        print(f"\n{title}\n", flush=True)
        timed = {name: case for name, (case, _) in cases.items()}
        report(compare(timed, words.rounds, steps))


if __name__ == "__main__":
    main()
