"""Kill a training at random moments and damage its checkpoints: is anything lost?

python -m workshop.faults [--count 200] [--damages 1000] [--seed 0]

Each kill is `kill -9` to a process that trains, at a moment that is drawn: a step, and
how long after it, up to the time of two steps, so that any moment can be hit, the
resuming before the first step too. Every second life dies while it writes a checkpoint,
slowly, so that there is time to be hit. The next life resumes; after four kills, one
trains to the end. A life that came to its end before its kill is not counted. Counted
are the steps lost past the last save that had returned, the trainings whose state
differs in any bit from an undisturbed run's, and the processes left behind.

Each damage is done to the newest of three checkpoints; it must be refused by name, and
the one before be taken, equal in every bit. How much work is lost by the clock, the
chapter on workers that die shows itself.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psutil

from manygpu.processes.deaths import end_when, noted
from manygpu.processes.workers import Worker

STEPS, EVERY, SAMPLES = 24, 5, 64
KILLS = 4  # of one training
HEADER_BYTES = 56
# A slow disk: so many bytes a call, so many seconds each.
PIECE, PAUSE_S = 2**16, 0.002
WRITE_S = 0.08  # about as long as such a write takes
WRONG = ("lost", "different", "left")


def chapter() -> ModuleType:
    """What is tried; it imports TensorFlow."""
    from manygpu.scratch.beyond import worker_dies

    return worker_dies


def fast_trainer(*job: Any) -> Callable[[int], dict]:
    """In a new process: the chapter's training."""
    return chapter().trainer(*job)


def slow_trainer(*job: Any) -> Callable[[int], dict]:
    """The same on a disk so slow that a kill can hit a write."""
    write = os.write

    def slowly(file: int, data: bytes) -> int:
        time.sleep(PAUSE_S)
        return write(file, data)

    chapter().PIECE, os.write = PIECE, slowly
    return fast_trainer(*job)


def training(folder: Path, serve: Callable = fast_trainer) -> Worker:
    """A process that trains on drawn images, the same each time, and saves there."""
    rng = np.random.default_rng(0)
    X = rng.random((SAMPLES, 28, 28, 1)).astype(np.float32)
    job = X, rng.integers(0, 10, SAMPLES).astype(np.int32), folder, EVERY
    return Worker(serve, *job, variables={"MANYGPU_DEVICES": "1"}, name="it")


def drawn(rng: random.Random, number: int, begins: int) -> dict[str, Any]:
    """How life `number`, from step `begins` on, is to end: when, and how much later.

    In a write, if another save is to come before the last; else after so many steps,
    perhaps none. `pause` is a share of the longest one.
    """
    next_save = begins // EVERY * EVERY + EVERY
    in_write = bool(number % 2) and next_save < STEPS
    step = next_save if in_write else begins + rng.randint(0, EVERY)
    # Far enough from the end, so that the kill comes before it.
    step = step if in_write else min(step, max(begins, STEPS - EVERY - 1))
    return {"in_write": in_write, "step": step, "pause": rng.random()}


def kill(plan: dict[str, Any], folder: Path, step_s: float) -> tuple[int, bool]:
    """Let the training live and kill it; its process id, and whether it was at work."""
    lived, begins = len(noted(folder / "steps")), saved(folder)
    torn = folder / f"step-{plan['step']:08d}.tmp"

    def reached() -> bool:
        if plan["in_write"] and torn.exists():
            return True
        return plan["step"] in [begins, *noted(folder / "steps")[lived:]]

    with training(folder, slow_trainer if plan["in_write"] else fast_trainer) as worker:
        torn.unlink(missing_ok=True)  # of the life before
        worker.send(STEPS)
        longest_s = WRITE_S if plan["in_write"] else 2 * step_s
        at_work = end_when(worker, reached, plan["pause"] * longest_s)
        worker.process.join()
        return worker.process.pid, at_work and worker.process.exitcode < 0


def saved(folder: Path) -> int:
    """The step of the last save that had returned; 0 before the first."""
    return max(noted(folder / "saves"), default=0)


def one_life(
    rng: random.Random, number: int, folder: Path, step_s: float
) -> dict[str, Any] | None:
    """Let one life end; what it left behind. None: it had come to its end before."""
    plan = drawn(rng, number, saved(folder))
    before = len(noted(folder / "steps"))
    pid, killed = kill(plan, folder, step_s)
    if not killed:
        return None
    found = chapter().newest_checkpoint(folder, lambda said: None)
    begins = found.step if found else 0
    after = max(noted(folder / "steps")[before:], default=begins)
    return plan | {
        "torn": any(folder.glob("*.tmp")),
        "twice": max(0, after - begins),
        "from": begins,
        "lost": max(0, saved(folder) - begins),
        "left": int(psutil.pid_exists(pid)),
    }


def tried(
    number: int, seed: int, reference: dict[str, np.ndarray], step_s: float
) -> list[dict]:
    """Kill a training a few times, then let it end; what came of each kill."""
    rng = random.Random(f"{seed} {number}")
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder, deaths, firsts = Path(name), [], []
        for life in range(KILLS):
            death = one_life(rng, life, folder, step_s)
            if death is None:
                break
            deaths.append(death)
            firsts.append(len(noted(folder / "steps")))
        with training(folder) as worker:
            different = not same(worker.ask(STEPS), reference)
        steps = noted(folder / "steps")
    for death, first in zip(deaths, firsts, strict=True):
        # The next step that anyone took is the one after the checkpoint.
        death["resumed"] = int(first < len(steps) and steps[first] == death["from"] + 1)
        death["different"] = int(different)
    return deaths


def same(state: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    """Whether two states have the same arrays, in every bit."""
    kept = [
        [(n, a.shape, a.dtype, a.tobytes()) for n, a in s.items()]
        for s in (state, other)
    ]
    return kept[0] == kept[1]


def undisturbed(folder: Path) -> tuple[dict[str, np.ndarray], float]:
    """The end of a training that nobody kills, and how long one of its steps took."""
    with training(folder) as worker:
        begun = time.monotonic()
        state = worker.ask(STEPS)
        return state, (time.monotonic() - begun) / STEPS


def damaged(data: bytes, before: bytes, rng: random.Random) -> tuple[str, bytes]:
    """What was done to a file's bytes, and what they became: never what they were.

    Every fifth place lies in the header, which is small.
    """
    while True:
        most = HEADER_BYTES if rng.random() < 0.2 else len(data)
        a = rng.randrange(most)
        b = rng.randrange(a + 1, len(data) + 1)
        end = min(b, a + 4096)
        byte = bytes([data[a] ^ rng.randrange(1, 256)])
        ways = {
            "a byte": data[:a] + byte + data[a + 1 :],
            "a block of zeros": data[:a] + bytes(end - a) + data[end:],
            "cut": data[:a],
            "a piece missing": data[:a] + data[b:],
            "a piece twice": data[:b] + data[a:],
            "more behind": data + data[a:end],
            "the one before": before,
        }
        kind = rng.choice(list(ways))
        if ways[kind] != data:
            return kind, ways[kind]


def try_damages(count: int, seed: int, folder: Path) -> tuple[int, Counter[str]]:
    """Damage the newest checkpoint in `folder` so often; how many were refused."""
    *_, before, last = chapter().files_in(folder).values()
    whole, older = last.read_bytes(), before.read_bytes()
    expected, kinds, good = chapter().unpack(older), Counter(), 0
    for number in range(count):
        kind, data = damaged(whole, older, random.Random(f"{seed} damage {number}"))
        last.write_bytes(data)
        said: list[str] = []
        found = chapter().newest_checkpoint(folder, said.append)
        named = said[:1] and said[0].startswith(f"{last.name} is refused")
        taken = found and found.step == expected.step
        good += bool(named and taken and same(found.state, expected.state))
        kinds[kind] += 1
        if (number + 1) % 100 == 0:
            print(f"{number + 1}/{count} damages: {good} refused by name", flush=True)
    last.write_bytes(whole)
    return good, kinds


def summary(
    deaths: list[dict[str, Any]], refused: int, kinds: Counter[str]
) -> tuple[list[str], bool]:
    """What to say in the end, and whether nothing was lost."""
    of = Counter()
    for death in deaths:
        of.update({name: int(value) for name, value in death.items() if name != "step"})
    said = ", ".join(f"{kind}: {number}" for kind, number in sorted(kinds.items()))
    lines = [
        f"{len(deaths)} kills, {of['in_write']} aimed at a write, {of['torn']} left a "
        "torn file",
        f"{of['resumed']} resumed, {of['lost']} steps lost past the last checkpoint, "
        f"{of['different']} with another state at the end, {of['left']} processes "
        "left behind",
        f"{of['twice'] / len(deaths):.2f} steps were taken twice for a kill, in the "
        f"mean; it saved after every {EVERY}",
        f"{kinds.total()} damages, {refused} refused by name, the one before taken, "
        f"equal in every bit ({said})",
    ]
    good = of["resumed"] == len(deaths) and not any(of[name] for name in WRONG)
    return lines, good and refused == kinds.total()


def main(words: Sequence[str]) -> int:
    """Try; say what was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--damages", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(words)
    if asked.count < 1 or asked.damages < 0:
        parser.error("--count must be at least 1, --damages at least 0")
    deaths: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        reference, step_s = undisturbed(Path(name))
        # Each gives a death or more, unless a life came to its end first.
        for number in range(asked.count):
            for death in tried(number, asked.seed, reference, step_s):
                deaths.append(death)
                what = ", ".join(f"{key} {death[key]}" for key in ("resumed", *WRONG))
                where = "while it wrote" if death["torn"] else "elsewhere"
                print(
                    f"{len(deaths)}/{asked.count} killed at step {death['step']}, "
                    f"{where}; from {death['from']}: {what}",
                    flush=True,
                )
            if len(deaths) >= asked.count:
                break
        refused, kinds = try_damages(asked.damages, asked.seed, Path(name))
    if not deaths:
        print("no life could be killed: each came to its end before")
        return 1
    lines, good = summary(deaths, refused, kinds)
    print(*lines, sep="\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
