"""How well the judge of `manygpu.prove` does: what it names, and its false alarms."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import tensorflow as tf

from manygpu.prove import judge, steps, todays_steps
from manygpu.prove.invariants import INVARIANCES
from manygpu.prove.judge import abilities, counting, looked, trial
from manygpu.prove.patience import exact_case, is_coarse, patiently
from manygpu.prove.planted import BUGS, Bug, bugs, planted
from manygpu.prove.rules import RULES
from manygpu.prove.small import rounded, subject
from manygpu.prove.subject import Case, Subject
from manygpu.prove.trials import Trial
from manygpu.prove.verdict import Finding
from manygpu.scratch.data_parallel.gradient_accumulation import accumulate
from manygpu.scratch.data_parallel.many_devices import (
    allreduce_gradients,
    shard_gradients,
    split_batch,
)
from manygpu.trainings.contract import Training
from manygpu.trainings.copies import Copies
from manygpu.trainings.task import Task


def judged(bug: Bug, subject: Subject) -> list[Finding]:
    """Return what the judge finds while a bug is planted, the likeliest first."""
    with planted(bug):
        return list(judge(subject).findings)


def after_one_step(subject: Subject) -> list[np.ndarray] | None:
    """Return the weights after a step on 4 samples on 2 devices; None if it stops."""
    devices = min(2, subject.most_devices)
    running = subject.start([w.copy() for w in subject.weights], devices)
    try:
        running.take(*subject.draw(4, 0))
    except Exception:  # whatever a broken step may raise: everybody notices
        return None
    return running.copies()[0]


def usual_test_passes(bug: Bug, subject: Subject) -> bool:
    """Whether the weights after one step on even shares are those of a right step."""
    right = after_one_step(subject)
    with planted(bug):
        found = after_one_step(subject)
    return found is not None and all(map(np.allclose, found, right))


def confusion(part: str = "") -> bool:
    """Print what each planted bug is called, and which ones the usual test misses.

    part: of the names of the steps that are judged, such as "context"; "" for all.
    """
    named, missed, ranks, small = Counter(), [], Counter(), 0
    asked = [bug for bug in BUGS if part in bug.subject]
    for bug in asked:
        subject = steps.BY_NAME[bug.subject](bug.subject)
        findings = judged(bug, subject)
        if findings and (smallest := findings[0].smallest):
            small += smallest.samples <= 4 and smallest.devices <= 3
        found = list(dict.fromkeys(one.broken for one in findings))
        named[bug.broken, found[0] if found else "nothing"] += 1
        ranks[found.index(bug.broken) if bug.broken in found else -1] += 1
        if not found or found[0] != bug.broken:
            print(f"named {found}: {bug}")
        if usual_test_passes(bug, subject):
            missed.append(bug)
    for planted_as in dict.fromkeys(bug.broken for bug in asked):
        row = [f"{name} {n}" for (own, name), n in named.items() if own == planted_as]
        print(f"{planted_as:>10}: {', '.join(row)}")
    unseen = sum(n for (_, name), n in named.items() if name == "nothing")
    threads = {bug.thread for bug in asked} - {""}
    print(f"{len(asked)} bugs, {len(threads)} threads; detected {len(asked) - unseen}")
    print(f"named first {ranks[0]}, among the first two {ranks[0] + ranks[1]}")
    print(f"shown by at most 4 samples on at most 3 devices {small}")
    print(f"the usual test misses {len(missed)}:")
    for bug in missed:
        print(f"  {bug.broken}, {bug.subject}: {' '.join(bug.after.split())[:70]}")
    return unseen == 0


HUNDREDTHS = bugs(Path(__file__).with_name("hundredths.csv"))  # each of them is 1%


def first_broken(subject: Subject) -> str:
    """Return what the counts say is broken; "" for nothing."""
    for check in counting(subject):
        for case in check.cases:
            found = [saw for saw in looked(check, case) if isinstance(saw, Finding)]
            if found:
                return found[0].broken
    return ""


def hundredths() -> bool:
    """Print how many bugs of a hundredth are told from rounding; no right step is."""
    alarms = 0
    for dtype in (np.float32, ml_dtypes.bfloat16):
        told, right = 0, {}
        for bug in HUNDREDTHS:
            made = right[bug.subject] = rounded(
                steps.BY_NAME[bug.subject](bug.subject), dtype
            )
            with planted(bug):
                told += bool(first_broken(made))
        wrong = [name for name, own in right.items() if first_broken(own)]
        alarms += len(wrong)
        print(f"{np.dtype(dtype).name}: {told} of {len(HUNDREDTHS)} bugs of 1% are")
        print(f"  told from rounding; alarms on {len(right)} right steps: {wrong}")
    return alarms == 0


def by_rule(task: Task, devices: list[str], rule: str) -> Training:
    """Replicas, each with an optimizer of its own, in micro-batches or not."""
    copies = Copies(task, devices)
    rules = [RULES[rule](task.lr) for _ in devices]

    def take(X, y):
        pieces = min(task.pieces, len(y) // len(devices))
        part = partial(accumulate, micro_batches=pieces, of=copies.gradients)
        shards = split_batch(X, y, devices)
        losses, grads = shard_gradients(*shards, copies.replicas, devices, part)
        for own, sums, update in zip(
            copies.replicas, allreduce_gradients(grads), rules, strict=True
        ):
            means = [np.asarray(g, np.float64) / len(y) for g in sums]
            update.at([np.asarray(p, np.float64) for p in own])
            changes = update.change(means)
            update.follow(means)
            for p, change in zip(own, changes, strict=True):
                p.assign_sub(tf.cast(change, p.dtype))
        return tf.add_n(losses) / len(y)

    return copies.training(take)


ANY_DTYPE = ("data", "pipeline", "layerwise", "network", "mesh", "met", "recomputed")


def variant(rng: np.random.Generator) -> tuple[str, Subject, Case]:
    """Draw a step that is right, of some dtype, and a case: devices, samples, steps."""
    name, dtype = rng.choice([*steps.BY_NAME, *RULES] + [*RULES] * 2), np.float64
    if name in RULES:
        pieces = int(rng.integers(1, 4))
        make = partial(by_rule, rule=name)
        made = subject(make, f"{name}, in {pieces}", rule=name, pieces=pieces)
    else:
        made = steps.BY_NAME[name](name)
    if name in RULES or name.startswith(ANY_DTYPE):
        dtype = rng.choice([np.float64, np.float32, ml_dtypes.bfloat16])
        made = rounded(made, dtype)
    least, most = made.least_devices, made.most_devices
    allowed = [k for k in (1, 2, 3, 5, 8) if least <= k <= most]
    k = int(rng.choice(allowed or [least]))
    samples = max(4, 2 * k) + int(rng.integers(0, k + 1))  # for micro-batches
    case = Case(k, samples, int(rng.integers(1, 4)), int(rng.integers(1, 1000)))
    return f"{made.name}, {np.dtype(dtype).name}", made, case


def today(rng: np.random.Generator) -> tuple[str, Subject, Case]:
    """Draw a right step with tokens split along `context`, or with experts."""
    dtype = rng.choice([np.float64, np.float32])
    if rng.random() < 0.5:
        way, packed = str(rng.choice([*todays_steps.WAYS])), bool(rng.random() < 0.5)
        gathered = bool(rng.random() < 0.3)
        name = f"{way}, packed {packed}, logits gathered {gathered}"
        made = todays_steps.long_subject(name, way, packed, gathered)
    else:
        experts, k = int(rng.choice([3, 4, 5, 8])), int(rng.choice([1, 2, 3]))
        capacity, balance = int(rng.choice([0, 0, 1, 2])), str(rng.choice(BALANCES))
        name = (
            f"{k} of {experts} experts, capacity {capacity}, {balance or 'unbalanced'}"
        )
        made = todays_steps.experts_subject(name, k, capacity, balance, experts)
    made = rounded(made, dtype)
    least, most = made.least_devices, made.most_devices
    k = int(rng.choice([k for k in (1, 2, 3, 4, 5, 6, 8) if least <= k <= most]))
    samples = max(3, k) + int(rng.integers(0, 2 * k + 1))
    case = Case(k, samples, int(rng.integers(1, 3)), int(rng.integers(1, 1000)))
    return f"{name}, {np.dtype(dtype).name}", made, case


BALANCES = ("", "bias", "loss")


def alarms_in(made: Subject, case: Case, rng: np.random.Generator) -> list[Finding]:
    """Return what counts, and one invariance, find in a case of a right step."""
    found = list(trial(made, case)) if made.gradient else []
    if made.gradient and is_coarse(made):
        found += patiently(made, exact_case(made, case.seed))
    able = abilities(made)
    one = rng.choice([i for i, own in enumerate(INVARIANCES) if own.needs in able])
    asked = Trial(made, case._replace(steps=INVARIANCES[one].steps))
    found += [saw for saw in INVARIANCES[one].look(asked) if isinstance(saw, Finding)]
    return [saw for saw in found if saw.broken not in made.excused]


def right_ones(count: int, seed: int, drawn_by: Callable = variant) -> bool:
    """Print how many right variants were tried, and each alarm.

    drawn_by: `variant`, or `today`.
    """
    rng, alarms = np.random.default_rng(seed), 0
    for _ in range(count):
        name, made, case = drawn_by(rng)
        for found in alarms_in(made, case, rng):
            alarms += 1
            print(f"alarm: {name}, {case}, seed {case.seed}: {found.sentence}")
    print(f"{count} right variants, drawn with seed {seed}: {alarms} alarms")
    return alarms == 0


def main() -> None:
    """Print what is asked for; exit with 1 if that isn't as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounding", action="store_true", help="bugs of 1%% in float32 and bfloat16"
    )
    parser.add_argument(
        "--right", type=int, metavar="N", help="how many right variants to try"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the variants")
    parser.add_argument(
        "--today", action="store_true", help="only steps with context or experts"
    )
    parser.add_argument(
        "--of", default="", metavar="PART", help="only bugs of steps named so"
    )
    given = parser.parse_args()
    if given.rounding:
        good = hundredths()
    elif given.right:
        good = right_ones(given.right, given.seed, today if given.today else variant)
    else:
        good = confusion(given.of)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
