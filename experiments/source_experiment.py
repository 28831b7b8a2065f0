"""Run the source's own experiment in full and keep its numbers, with the machine.

LeNet on all of Fashion-MNIST as the source trains it, on one and on two devices:
eager, as the source does, and compiled; then from weights that learn from the first
step. Each run has a worker of its own, for TensorFlow fixes its devices when it
starts. The result is written when all runs are done, whole or not at all.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

import manygpu
from manygpu import records
from manygpu.checks import import_d2l
from manygpu.data import fashion_mnist, load
from manygpu.processes.workers import Worker
from manygpu.records import machine
from manygpu.scratch.data_parallel.many_devices import train_batch, train_epoch
from manygpu.scratch.data_parallel.parameters_and_devices import get_params
from manygpu.scratch.start.one_device import init_params, lenet

NAME = "source-experiment"
# The source's settings: its call train(num_gpus, batch_size=256, lr=0.2), the ten
# epochs inside its `train`, its `scale` of the initial weights.
BATCH_SIZE, LR, EPOCHS, SCALE = 256, 0.2, 10, 0.01
TRAIN_SAMPLES, TEST_SAMPLES, SEED = 60_000, 10_000, 0
# Ours: how often to look while the source's first epochs learn nothing.
EARLY_EPOCHS, EARLY_EVERY, EARLY_TEST_SAMPLES = 2, 25, 2_000
SETTINGS = ("batch_size", "lr", "scale", "seed", "train_samples", "test_samples")
SETTINGS += ("early_epochs", "early_every", "early_test_samples")
# (devices, step, init)
RUNS = [(1, "eager", "source"), (2, "eager", "source"), (1, "compiled", "source")]
RUNS += [(2, "compiled", "source"), (1, "compiled", "he"), (2, "compiled", "he")]
EPOCH_TIMEOUT_S = 36_000.0  # the longest that a record may hold


def main() -> None:
    """Run everything and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="fewer, for a try")
    parser.add_argument("--out", type=Path, help="write there and not into the package")
    words = parser.parse_args()
    if words.epochs < 1 or (words.epochs != EPOCHS and words.out is None):
        parser.error(f"{EPOCHS} epochs are kept: with fewer, at least 1, give --out")
    path = words.out or records.FOLDER / f"{NAME}.json"
    source, begun, runs = full_data(), time.monotonic(), []
    for number, kind in enumerate(RUNS, 1):
        print(f"[records {number}/{len(RUNS)}] {describe(*kind)}", flush=True)
        try:
            runs.append(run(*kind, words.epochs, source))
        except RuntimeError as failed:
            sys.exit(f"{failed}\nThat run failed. Nothing was written.")
    records.save(record(runs, words.epochs), path)
    print(f"{path.name} written after {time.monotonic() - begun:.0f} s")


def full_data() -> str:
    """The source that holds all of Fashion-MNIST; without one, say so and stop."""
    data = load()
    found = (len(data.y_train), len(data.y_test))
    if found != (TRAIN_SAMPLES, TEST_SAMPLES):
        said = "The source's experiment needs all {:,} + {:,} images of Fashion-MNIST; "
        said += "here are {:,} + {:,}. Connect to the network, or install the Debian "
        said += (
            "package dataset-fashion-mnist; unset MANYGPU_DATA. Nothing was written."
        )
        sys.exit(said.format(TRAIN_SAMPLES, TEST_SAMPLES, *found))
    return "keras" if data.source == "download" else data.source


def describe(devices: int, step: str, init: str) -> str:
    """One run in words."""
    weights = f"weights of deviation {SCALE}" if init == "source" else "He's weights"
    return f"{devices} device{'s' if devices > 1 else ''}, {step}, {weights}"


def run(devices: int, step: str, init: str, epochs: int, source: str) -> dict[str, Any]:
    """Train once in a worker, an epoch at a time; return the run for the record.

    Raises:
        RuntimeError: the worker failed; the message holds what it said.
    """
    variables = {"MANYGPU_DEVICES": str(devices), "MANYGPU_DATA": source}
    variables |= {"MANYGPU_INTER_OP": None}  # it would make one device two
    name, per_epoch = describe(devices, step, init), []
    with Worker(serve, step, init, variables=variables, name=name) as worker:
        for epoch in range(1, epochs + 1):
            per_epoch.append(worker.ask("epoch", EPOCH_TIMEOUT_S))
            said = ", ".join(f"{k} {v:.3f}" for k, v in per_epoch[-1].items())
            print(f"  epoch {epoch} of {epochs}: {said}", flush=True)
        found = {"hardware": worker.ask("hardware"), "early": worker.ask("early")}
    kind = {"devices": devices, "step": step, "init": init}
    return {**kind, **found, "per_epoch": per_epoch}


def serve(step: str, init: str) -> Callable[[str], Any]:
    """In the worker: make a training; return what answers questions about it."""
    made = Training(manygpu.devices(quiet=True), step, init)
    answers = {"epoch": made.epoch, "early": lambda: made.early}
    answers["hardware"] = lambda: hardware(made.devices)
    return lambda question: answers[question]()


class Training:
    """LeNet in training as the source trains it, and what is noted on the way.

    Attributes:
        devices: one replica on each.
        early: the test accuracy before the first step and now and then in the first
            epochs, as the record holds it.
    """

    def __init__(self, devices: list[str], step: str, init: str) -> None:
        self.devices, self.early = devices, []
        self.batches, self.test = fashion_mnist(BATCH_SIZE, seed=SEED, quiet=True)
        few = {"test_samples": EARLY_TEST_SAMPLES, "train_samples": BATCH_SIZE}
        _, self.few = fashion_mnist(BATCH_SIZE, **few, quiet=True)
        params = init_params(SEED, scale=SCALE if init == "source" else None)
        self.replicas = [get_params(params, d) for d in devices]
        self.step = tf.function(train_batch) if step == "compiled" else train_batch
        self.steps = self.epochs = 0
        self.look()

    def epoch(self) -> dict[str, float]:
        """Train for an epoch; return its seconds, test accuracy and training loss."""
        self.losses, self.looked = [], 0.0
        rest = self.replicas, self.devices, LR
        seconds = train_epoch(self.batches, *rest, step=self.take) - self.looked
        self.epochs += 1
        loss = sum(float(loss) * n for loss, n in self.losses)
        return {
            "seconds": round(seconds, 3),
            "test_accuracy": self.accuracy(self.test),
            "training_loss": round(loss / sum(n for _, n in self.losses), 6),
        }

    def take(self, X: tf.Tensor, y: tf.Tensor, *rest: Any) -> None:
        """Take a step, note its loss; look at the accuracy where that is due."""
        self.losses.append((self.step(X, y, *rest), len(y)))
        self.steps += 1
        if self.epochs < EARLY_EPOCHS and self.steps % EARLY_EVERY == 0:
            self.losses[-1][0].numpy()  # the step is done: looking is not its time
            start = time.perf_counter()
            self.look()
            self.looked += time.perf_counter() - start

    def look(self) -> None:
        """Note the test accuracy after so many steps."""
        accuracy = self.accuracy(self.few)
        self.early.append({"step": self.steps, "test_accuracy": accuracy})

    def accuracy(self, images: tf.data.Dataset) -> float:
        """Return the share of images that the first replica gets right."""
        model = self.replicas[0]
        return import_d2l().evaluate_accuracy(lambda X: lenet(X, model), images)


def hardware(places: list[str]) -> str:
    """What the devices are made of, such as '2 logical CPU devices of one thread'."""
    count, kind = len(places), places[0].split(":")[1]
    plural = "s" if count > 1 else ""
    if kind == "CPU":
        return f"{count} logical CPU device{plural} of one thread"
    gpus = tf.config.list_physical_devices(kind)
    details = tf.config.experimental.get_device_details(gpus[0])
    model = details.get("device_name", kind)
    if len(gpus) < count:
        return f"{count} logical GPUs of one {model}"
    return f"{count} GPU{plural}, {model}"


def record(runs: list[dict[str, Any]], epochs: int) -> dict[str, Any]:
    """The whole record: what was run, on what, with which result."""
    experiment = {
        "model": "LeNet of the chapter One device",
        "data": "Fashion-MNIST, samples shuffled anew each epoch",
        **{name: globals()[name.upper()] for name in SETTINGS},
    }
    kind = {"format": records.FORMAT, "kind": "training", "name": NAME}
    made = {"date": datetime.date.today().isoformat(), "machine": machine.facts()}
    return {**kind, **made, "experiment": experiment | {"epochs": epochs}, "runs": runs}


if __name__ == "__main__":
    main()
