"""What a training run's curves are: its losses, the lengths of its steps, its copies.

`experiments/loss_looks_right.py` compares the curves of a planted bug with those of
right runs on other data, as a person does who looks at a loss curve and remembers how
others looked. `manygpu.prove.shown` has what came out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from manygpu.prove import steps
from manygpu.prove.counts import wide
from manygpu.prove.more_steps import block_subject, own_batches
from manygpu.prove.rules import begun
from manygpu.prove.small import WIDTHS
from manygpu.prove.subject import Arrays, Subject
from manygpu.prove.todays_steps import (
    CLASSES,
    SEQUENCES,
    WORDS,
    documents_of,
    long_drawn,
    next_tokens,
)
from manygpu.prove.trials import alike, snapshot
from manygpu.trainings import table

STEPS, SAMPLES = 12, 25
BUG_SEED, RIGHT_SEEDS = 100, range(1, 21)  # of the data: a bug's, and of right runs
BLOCK_LR = 0.02  # the block's loss has no minimum: at the judge's rate it diverges
SURPRISE = 0.2  # how often a word of a text isn't the next one
OWN_BATCHES = {"own batches": 2, "own epochs": 6}  # samples per step

Draw = Callable[[int, int], tuple[np.ndarray, np.ndarray]]


class Run(NamedTuple):
    """The curves of a training run.

    Attributes:
        losses: the loss before each step.
        norms: how far each step moved the weights, divided by the rate. With plain SGD
            this is the norm of the gradient that the step followed.
        equal: whether all copies were equal after each step.
        stops: the number of the step that raised an error; 0 if none did.
    """

    losses: np.ndarray
    norms: np.ndarray
    equal: bool
    stops: int


class Bands(NamedTuple):
    """Right runs of a step: one row per run, one column per step.

    Attributes:
        losses, norms: as in `Run`.
    """

    losses: np.ndarray
    norms: np.ndarray

    def without(self, i: int) -> Bands:
        """Return all runs but one."""
        return Bands(*(np.delete(own, i, axis=0) for own in self))


# Data with something to learn: the judge's own labels are drawn at random.


def taught(draw: Draw, labels: Callable[[np.ndarray], np.ndarray]) -> Draw:
    """Return a function that draws the same X, with labels that follow from X."""

    def drawn(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        X, _ = draw(samples, seed)
        return X, labels(X)

    return drawn


def by_teacher(X: np.ndarray) -> np.ndarray:
    """Return the classes that a fixed linear model gives to samples."""
    teacher = np.random.default_rng(9).normal(size=(WIDTHS[0], WIDTHS[-1]))
    return np.argmax(X.astype(np.float64) @ teacher, axis=1)


def by_token(X: np.ndarray) -> np.ndarray:
    """Return a class for each row's token, the same class whenever it comes."""
    return X[np.arange(len(X)), X[:, -1]] % CLASSES


def counting_text(
    samples: int, seed: int, packed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of a text that counts on from word to word, with surprises."""
    X, _ = long_drawn(samples, seed, packed)
    rng, places = np.random.default_rng(seed), X[:, -1]
    text = X[0, :-1].reshape(SEQUENCES, -1)
    for t in range(1, text.shape[1]):
        surprise = rng.random(SEQUENCES) < SURPRISE
        text[:, t] = np.where(surprise, text[:, t], (text[:, t - 1] + 1) % WORDS)
    labels, _ = next_tokens(text, documents_of(text.shape[1], packed))
    whole = np.broadcast_to(text.ravel(), (samples, text.size))
    return np.column_stack([whole, places]), labels.ravel()[places]


def watched(name: str, seed: int = 0) -> Subject:
    """Return a subject of the judge's by name, with data from which it can learn.

    seed: of the data, for a subject that draws its batches itself.
    """
    if size := OWN_BATCHES.get(name):
        return own_batches(name, size, seed)
    if name == "cut tokens":
        return block_subject(name, BLOCK_LR)
    # With bounded logits, no mistake could make the loss large.
    subject = steps.subject_of(table.judged()[name], bounded=False)
    if name.startswith("context"):
        packed = name != "context, all-gather"
        return replace(subject, draw=partial(counting_text, packed=packed))
    labels = by_token if name.startswith("experts") else by_teacher
    return replace(subject, draw=taught(subject.draw, labels))


def devices_of(subject: Subject) -> int:
    """Return on how many devices a subject runs: 3, or 4 for two axes of a mesh."""
    wanted = 4 if any(case.devices == 4 for case in subject.cases) else 3
    return min(wanted, subject.most_devices)


# Runs.


def batches(subject: Subject, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return a fresh batch for each step."""
    return [subject.draw(SAMPLES, 1000 * seed + t) for t in range(STEPS)]


def train(subject: Subject, seed: int) -> Run:
    """Train on several devices, each step on a fresh batch; return the curves.

    A training that can be saved is saved halfway, and a new one goes on from there.
    """
    drawn, losses, norms, equal, stops = batches(subject, seed), [], [], True, 0
    try:
        for loss, before, copies in taken(subject, drawn):
            losses.append(loss)
            norms.append(moved(before, copies[0]) / subject.lr)
            equal &= all(alike(copies[0], own) for own in copies[1:])
    except Exception:  # whatever a broken step may raise: everybody notices
        stops = len(losses) + 1
    return Run(np.array(losses), np.array(norms), equal, stops)


def taken(subject: Subject, drawn: Sequence[tuple]) -> Iterator[tuple]:
    """Take a step on each batch; yield the loss, the weights before, and all copies."""
    devices = devices_of(subject)
    running = subject.start([w.copy() for w in subject.weights], devices)
    for t, (X, y) in enumerate(drawn):
        if t == len(drawn) // 2 and running.save:
            saved = running.save()
            running = subject.start([w.copy() for w in subject.weights], devices)
            running.resume(saved)
        before = snapshot(running.copies())[0]
        loss = running.take(X, y)
        if loss is None:  # such as a server's: computed on one device
            loss = subject.gradient(X, y, before)[0] / len(X)
        yield loss, before, snapshot(running.copies())


def moved(before: Arrays, after: Arrays) -> float:
    """Return the length of the change of all weights together."""
    pairs = zip(before, after, strict=True)
    return float(np.sqrt(sum(np.sum((wide(b) - wide(a)) ** 2) for a, b in pairs)))


def on_one_device(subject: Subject, seed: int) -> Run:
    """Train as one device does: by the subject's gradient, and by its optimizer's rule.

    A step without such a gradient takes its own way, on several devices.
    """
    if subject.gradient is None:
        return train(subject, seed)
    rule, weights, losses, norms = begun(subject), subject.weights, [], []
    for X, y in batches(subject, seed):
        rule.at(weights)
        total, sums = subject.gradient(X, y, weights)
        mean = [wide(g) / len(X) for g in sums]
        pairs = list(zip(weights, rule.change(mean), strict=True))
        rule.follow(mean)
        after = [(w - c.reshape(w.shape)).astype(w.dtype) for w, c in pairs]
        losses.append(total / len(X))
        norms.append(moved(weights, after) / subject.lr)
        weights = after
    return Run(np.array(losses), np.array(norms), True, 0)


def bands(name: str, seeds: Sequence[int] = RIGHT_SEEDS) -> Bands:
    """Return the curves of right runs, one per seed of the data."""
    runs = [on_one_device(watched(name, seed), seed) for seed in seeds]
    return Bands(*(np.stack([run[i] for run in runs]) for i in range(2)))


def same_data(run: Run, right: Run) -> float:
    """Return the largest difference of a loss from the right run's.

    It is a part of the right run's largest loss.
    """
    if len(run.losses) < len(right.losses) or not np.isfinite(run.losses).all():
        return np.inf
    off = np.abs(run.losses - right.losses)
    return float(np.max(off) / np.max(np.abs(right.losses)))
