"""Kill a training at random moments and damage its checkpoints: is anything lost?

python -m tools.faults [--count 200] [--damages 1000] [--lives 40] [--seed 0] [--to F]

Each kill is `kill -9` to a process that trains, at a moment that is drawn: a step, and
how long after it, up to the time of two steps, so that any moment can be hit, the
resuming before the first step too. Every second life dies while it writes a checkpoint,
slowly, so that there is time to be hit. The next life resumes; after four kills, one
trains to the end. A life that came to its end before its kill is not counted. Counted
are the steps lost past the last save that had returned, the numbers of the state that
differ in any bit from an undisturbed run's, and the processes left behind.

Each damage is done to the newest of three checkpoints; it must be refused by name, and
the one before be taken, equal in every bit.

At last, goodput by a real clock: processes that only wait and save are killed from
outside, so many lives for each of three intervals. What comes of that is shown beside
the formula and not judged: on a busy machine each wait takes longer.

What was tried is kept in a file: a run that is broken off is taken up there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.keys import write_whole

if TYPE_CHECKING:
    import numpy as np

ROOT = Path(__file__).resolve().parent.parent
STEPS, EVERY, SAMPLES = 24, 5, 64
KILLS = 4  # of one training
HEADER_BYTES = 56
ALONE = {"MANYGPU_DEVICES": "1"}
# A slow disk: so many bytes a call, so many seconds each.
PIECE, PAUSE_S = 2**16, 0.002
WRITE_S = 0.08  # about as long as such a write takes
# Goodput by a real clock: milliseconds of work between saves, and of all else.
WORKS_MS, SAVE_MS, RESTART_MS, LIFE_MS = (40, 160, 640), 16, 40, 800
GONE_S = 10.0  # within which a killed process is no more
COUNTED = ("resumed", "lost", "different", "left")


def images() -> tuple[np.ndarray, np.ndarray]:
    """What is trained on: drawn, the same each time."""
    import numpy as np

    rng = np.random.default_rng(0)
    X = rng.random((SAMPLES, 28, 28, 1)).astype(np.float32)
    return X, rng.integers(0, 10, SAMPLES).astype(np.int32)


def slow_trainer(*job: Any) -> Callable[[int], dict]:
    """In a new process: the training, on a disk so slow that a kill can hit a write."""
    from manygpu.scratch.beyond import worker_dies

    write = os.write

    def slowly(file: int, data: bytes) -> int:
        time.sleep(PAUSE_S)
        return write(file, data)

    worker_dies.PIECE, os.write = PIECE, slowly
    return worker_dies.trainer(*job)


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
    from manygpu.deaths import end_when, noted
    from manygpu.scratch.beyond.worker_dies import trainer
    from manygpu.workers import Worker

    serve = slow_trainer if plan["in_write"] else trainer
    lived, begins = len(noted(folder / "steps")), saved(folder)
    torn = folder / f"step-{plan['step']:08d}.tmp"

    def reached() -> bool:
        if plan["in_write"] and torn.exists():
            return True
        return plan["step"] in [begins, *noted(folder / "steps")[lived:]]

    with Worker(serve, *images(), folder, EVERY, variables=ALONE, name="it") as worker:
        torn.unlink(missing_ok=True)  # of the life before
        worker.send(STEPS)
        longest_s = WRITE_S if plan["in_write"] else 2 * step_s
        at_work = end_when(worker, reached, plan["pause"] * longest_s)
        worker.process.join()
        return worker.process.pid, at_work and worker.process.exitcode < 0


def saved(folder: Path) -> int:
    """The step of the last save that had returned; 0 before the first."""
    from manygpu.deaths import noted

    return max(noted(folder / "saves"), default=0)


def one_life(
    rng: random.Random, number: int, folder: Path, step_s: float
) -> dict[str, Any] | None:
    """Let one life end; what it left behind. None: it had come to its end before."""
    from manygpu.deaths import noted
    from manygpu.scratch.beyond.worker_dies import newest_checkpoint

    plan = drawn(rng, number, saved(folder))
    before = len(noted(folder / "steps"))
    pid, killed = kill(plan, folder, step_s)
    if not killed:
        return None
    said: list[str] = []
    found = newest_checkpoint(folder, said.append)
    begins = found.step if found else 0
    after = max(noted(folder / "steps")[before:], default=begins)
    return plan | {
        "torn": any(folder.glob("*.tmp")),
        "refused": said,
        "twice": max(0, after - begins),
        "from": begins,
        "lost": max(0, saved(folder) - begins),
        "left": int(lives(pid)),
    }


def tried(
    number: int, seed: int, reference: dict[str, np.ndarray], step_s: float
) -> list[dict]:
    """Kill a training a few times, then let it end; what came of each kill."""
    from manygpu.deaths import noted
    from manygpu.scratch.beyond.worker_dies import trainer
    from manygpu.workers import Worker

    rng = random.Random(f"{seed} {number}")
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder, deaths, firsts = Path(name), [], []
        for life in range(KILLS):
            death = one_life(rng, life, folder, step_s)
            if death is None:
                break
            deaths.append(death)
            firsts.append(len(noted(folder / "steps")))
        job = *images(), folder, EVERY
        with Worker(trainer, *job, variables=ALONE, name="the last") as worker:
            state = worker.ask(STEPS)
        steps = noted(folder / "steps")
    apart = different(state, reference)
    for death, first in zip(deaths, firsts, strict=True):
        # The next step that anyone took is the one after the checkpoint.
        death["resumed"] = int(first < len(steps) and steps[first] == death["from"] + 1)
        death["different"] = apart
    return deaths


def different(state: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> int:
    """How many numbers of the state are not the reference's, in any bit."""
    if list(state) != list(reference):
        return -1
    one, other = (b"".join(a.tobytes() for a in s.values()) for s in (state, reference))
    if len(one) != len(other):
        return -1
    words = (memoryview(data).cast("B").cast("Q") for data in (one, other))
    return sum(a != b for a, b in zip(*words, strict=True)) if one != other else 0


def lives(pid: int) -> bool:
    """Whether a process is still there, a while after its end was seen."""
    until = time.monotonic() + GONE_S
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        time.sleep(0.01)
    return True


def undisturbed(folder: Path) -> tuple[dict[str, np.ndarray], float]:
    """The state at the end of a training that nobody kills; it saves in `folder`.

    And how long one of its steps took, in seconds.
    """
    from manygpu.scratch.beyond.worker_dies import trainer
    from manygpu.workers import Worker

    job = *images(), folder, EVERY
    with Worker(trainer, *job, variables=ALONE, name="undisturbed") as worker:
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


def try_damages(count: int, seed: int, folder: Path) -> dict[str, int]:
    """Damage the newest checkpoint in `folder` so many times; how many were refused."""
    from manygpu.scratch.beyond.worker_dies import files_in, newest_checkpoint, unpack

    *_, before, last = files_in(folder).values()
    whole, older = last.read_bytes(), before.read_bytes()
    expected = unpack(older)
    kinds: dict[str, int] = {}
    good = 0
    for number in range(count):
        kind, data = damaged(whole, older, random.Random(f"{seed} damage {number}"))
        last.write_bytes(data)
        said: list[str] = []
        found = newest_checkpoint(folder, said.append)
        named = said[0].startswith(f"{last.name} is refused") if said else False
        good += bool(
            named
            and found
            and found.step == expected.step
            and not different(dict(found.state), dict(expected.state))
        )
        kinds[kind] = kinds.get(kind, 0) + 1
        if (number + 1) % 100 == 0:
            print(f"{number + 1}/{count} damages: {good} refused by name", flush=True)
    last.write_bytes(whole)
    return {"tried": count, "refused": good} | dict(sorted(kinds.items()))


def clocked(folder: Path) -> Callable[[tuple[int, float]], float]:
    """In a new process: let a child of it work and save; kill it after some seconds.

    A question is (work in ms, seconds); the answer, how many seconds all that took.
    """
    from manygpu.deaths import in_child
    from manygpu.scratch.beyond.worker_dies import live

    def wait(milliseconds: int) -> None:
        time.sleep(milliseconds / 1000)

    def answer(question: tuple[int, float]) -> float:
        work, after_s = question
        times = work, SAVE_MS, RESTART_MS
        begun = time.monotonic()
        in_child(live, folder, *times, wait, after_s=after_s)
        return time.monotonic() - begun

    return answer


def measure_goodput(work: int, count: int, seed: int) -> dict[str, float]:
    """The goodput of so many lives with a save every `work` ms, measured and foretold.

    least, most: 998 of 1000 drawn trainings of as many lives lie between.
    """
    import numpy as np

    from manygpu.scratch.beyond.worker_dies import goodput, newest_checkpoint
    from manygpu.workers import Worker

    draw = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        with Worker(clocked, folder, variables=ALONE, name="the lives") as worker:
            ends_s = draw.exponential(LIFE_MS / 1000, count)
            took_s = sum(worker.ask((work, float(end_s))) for end_s in ends_s)
        found = newest_checkpoint(folder)
    many = draw.exponential(LIFE_MS, (1000, count))
    rounds = np.floor(np.maximum(many - RESTART_MS, 0) / (work + SAVE_MS))
    least, most = np.quantile(work * rounds.sum(1) / many.sum(1), (0.001, 0.999))
    return {
        "measured": (found.step if found else 0) / 1000 / took_s,
        "formula": float(goodput(work, SAVE_MS, RESTART_MS, LIFE_MS)),
        "least": float(least),
        "most": float(most),
        "lives": count,
    }


def summary(known: dict[str, Any]) -> tuple[list[str], bool]:
    """What to say in the end, and whether nothing was lost."""
    deaths, damages = known["deaths"], known["damages"]
    in_write, torn, twice = (
        sum(death[key] for death in deaths) for key in ("in_write", "torn", "twice")
    )
    resumed, lost, apart, left = (sum(d[key] for d in deaths) for key in COUNTED)
    lines = [
        f"{len(deaths)} kills, {in_write} aimed at a write, {torn} left a torn file",
        f"{resumed} resumed, {lost} steps lost past the last checkpoint, {apart} "
        f"parameters differ, {left} processes left behind",
        f"{twice / max(1, len(deaths)):.2f} steps were taken twice for a kill, in the "
        f"mean; it saved after every {EVERY}",
    ]
    good = (resumed, lost, apart, left) == (len(deaths), 0, 0, 0)
    if damages:
        kinds = {k: n for k, n in damages.items() if k not in ("tried", "refused")}
        of = ", ".join(f"{name}: {number}" for name, number in kinds.items())
        lines.append(
            f"{damages['tried']} damages, {damages['refused']} refused by name, the "
            f"one before taken, equal in every bit ({of})"
        )
        good = good and damages["tried"] == damages["refused"]
    for work, found in known["goodput"].items():
        lines.append(
            f"goodput of {found['lives']} lives, a save every {work} ms: measured "
            f"{found['measured']:.3f}, formula {found['formula']:.3f}; by dice "
            f"{found['least']:.3f} to {found['most']:.3f}"
        )
    return lines, good


def record(path: Path, of: str) -> dict[str, Any]:
    """What was tried before, if it was this training; else nothing yet."""
    empty = {"of": of, "trainings": 0, "deaths": [], "damages": {}, "goodput": {}}
    if not path.is_file():
        return empty
    known = json.loads(path.read_text("utf-8"))
    if known["of"] != of:
        print(f"{path.name} is of another training or seed: begun anew")
        return empty
    return known


def try_kills(known: dict[str, Any], asked: argparse.Namespace, folder: Path) -> None:
    """Kill until there are as many deaths as asked for; keep each training's."""
    reference, step_s = undisturbed(folder)
    content = b"".join(a.tobytes() for a in reference.values())
    of = f"{asked.seed} {hashlib.sha256(content).hexdigest()}"
    known.update(record(asked.to, of))
    deaths = known["deaths"]
    while len(deaths) < asked.count:
        number = known["trainings"]
        for death in tried(number, asked.seed, reference, step_s):
            deaths.append(death)
            where = "while it wrote" if death["torn"] else "elsewhere"
            what = ", ".join(f"{key} {death[key]}" for key in COUNTED)
            print(
                f"{len(deaths)}/{asked.count} killed at step {death['step']}, "
                f"{where}; from {death['from']}: {what}",
                flush=True,
            )
        known["trainings"] = number + 1
        write_whole(asked.to, json.dumps(known, indent=1))


def main(words: Sequence[str]) -> int:
    """Try what has not been tried; say what was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--damages", type=int, default=1000)
    parser.add_argument("--lives", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, default=ROOT / "_build" / "kills.json")
    asked = parser.parse_args(words)
    if asked.count < 1 or asked.damages < 0 or asked.lives < 0:
        parser.error("--count must be at least 1, --damages and --lives at least 0")
    known: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        try_kills(known, asked, Path(name))
        if known["damages"].get("tried", 0) < asked.damages:
            known["damages"] = try_damages(asked.damages, asked.seed, Path(name))
            write_whole(asked.to, json.dumps(known, indent=1))
    for work in WORKS_MS if asked.lives else ():
        if known["goodput"].get(str(work), {}).get("lives", 0) < asked.lives:
            print(f"{asked.lives} lives with a save every {work} ms", flush=True)
            found = measure_goodput(work, asked.lives, asked.seed)
            known["goodput"][str(work)] = found
            write_whole(asked.to, json.dumps(known, indent=1))
    lines, good = summary(known)
    print(*lines, sep="\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
