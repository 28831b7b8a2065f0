"""Compare the steps of the book on this machine: ratios, side by side."""

from __future__ import annotations

import argparse
import os
import platform
import statistics

from manygpu.bench import Case, compare, ratio
from manygpu.bench.chains import LAYERS, MICRO_BATCHES, ideal

MEASURED = "compiled, 2 devices"
CASES = {
    MEASURED: Case("compiled", 2),
    "eager, 2 devices (the source's)": Case("eager", 2),
    "compiled, 1 device of 1 thread": Case("compiled", 1),
    "compiled, 2 that never communicate": Case("apart", 2),
    "engine, 2 devices (MirroredStrategy)": Case("engine", 2),
    "fit, 2 devices (Keras)": Case("fit", 2),
}
TARGETS = {
    "eager, 2 devices (the source's)": 0.50,
    "compiled, 1 device of 1 thread": 0.56,
    "compiled, 2 that never communicate": 1.05,
    "engine, 2 devices (MirroredStrategy)": 1.00,
}

FORWARD, STEP = "forward, unsplit", "step, unsplit"
CHAINS = {
    FORWARD: Case("chain-forward", 1),
    "forward, pipeline": Case("pipeline-forward", 2),
    STEP: Case("chain", 1),
    "step, GPipe": Case("gpipe", 2),
    "step, 1F1B": Case("1f1b", 2),
    "step, interleaved": Case("interleaved", 2),
    "step, zero bubble": Case("zero-bubble", 2),
}
# Forward is held to a number; GPipe and 1F1B to 15% above the bubble's formula.
CHAIN_TARGETS = {"forward, pipeline": 0.60}
CHAIN_TARGETS |= dict.fromkeys(("step, GPipe", "step, 1F1B"), 1.15 * ideal(2))


def table(
    times: dict[str, list[float]],
    pairs: dict[str, tuple[str, str]],
    targets: dict[str, float],
) -> None:
    """Print each case's milliseconds; where `pairs` has it, a ratio and its target."""
    print(f"{'case':37}{'ms':>10}{'ratio':>8}{'least, most':>16}{'target':>10}")
    for name, own in times.items():
        row = f"{name:37}{statistics.median(own):10.1f}"
        if name in pairs:
            middle, least, most = ratio(times, *pairs[name])
            spread = f"{least:.2f}, {most:.2f}"
            target = f"<= {targets[name]:.2f}" if name in targets else "none"
            row += f"{middle:8.2f}{spread:>16}{target:>10}"
        print(row)


def report(times: dict[str, list[float]]) -> None:
    """Print each case's step time and the measured case's share of it."""
    rounds = len(times[MEASURED])
    batch = CASES[MEASURED].samples
    print(f"{platform.machine()}, {os.cpu_count()} cores, batch {batch}")
    print(f"'{MEASURED}' divided by each other case, round by round, {rounds} rounds\n")
    table(times, {n: (MEASURED, n) for n in times if n != MEASURED}, TARGETS)


def report_chains(times: dict[str, list[float]]) -> None:
    """Print each pipeline's share of the unsplit time."""
    rounds = len(times[STEP])
    print(f"\n{LAYERS} equal layers on 2 devices, {MICRO_BATCHES} micro-batches;")
    print(f"divided by one device of 1 thread, round by round, {rounds} rounds\n")
    against = {n: FORWARD if n.startswith("forward") else STEP for n in times}
    pairs = {n: (n, unsplit) for n, unsplit in against.items() if n != unsplit}
    table(times, pairs, CHAIN_TARGETS)
    print(f"ideal of equal stages, forward, GPipe and 1F1B: {ideal(2):.2f}")


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=10)
    words = parser.parse_args()
    print(f"{len(CASES)} cases take turns in processes of their own ...", flush=True)
    report(compare(CASES, words.rounds, words.steps))
    report_chains(compare(CHAINS, words.rounds, max(1, words.steps // 3)))


if __name__ == "__main__":
    main()
