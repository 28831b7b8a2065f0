"""Run the source's own experiment in full and keep its numbers, with the machine.

LeNet on all of Fashion-MNIST as the source trains it, on one and on two devices:
eager, as the source does, and compiled; then from weights that learn from the first
step. Each run has a process of its own, for TensorFlow fixes its devices when it
starts. The result is written when all runs are done, whole or not at all.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import manygpu
from manygpu import records
from manygpu.data import load

NAME = "source-experiment"
# The source's settings: its call train(num_gpus, batch_size=256, lr=0.2), the ten
# epochs inside its `train`, its `scale` of the initial weights.
BATCH_SIZE, LR, EPOCHS, SCALE = 256, 0.2, 10, 0.01
TRAIN_SAMPLES, TEST_SAMPLES, SEED = 60_000, 10_000, 0
# Ours: how often to look while the source's first epochs learn nothing.
EARLY_EPOCHS, EARLY_EVERY, EARLY_TEST_SAMPLES = 2, 25, 2_000
# (devices, step, init)
RUNS = [(1, "eager", "source"), (2, "eager", "source"), (1, "compiled", "source")]
RUNS += [(2, "compiled", "source"), (1, "compiled", "he"), (2, "compiled", "he")]


def main() -> None:
    """Run everything, or one run as a child of the process that runs everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="fewer, for a try")
    parser.add_argument("--out", type=Path, help="write there and not into the package")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {words.epochs}")
    if words.run:
        devices, step, init = words.run
        print(json.dumps(run(int(devices), step, init, words.epochs)), flush=True)
        return
    if words.epochs != EPOCHS and words.out is None:
        parser.error(f"the package keeps {EPOCHS} epochs: with fewer, give --out")
    path = words.out or records.FOLDER / f"{NAME}.json"
    source = full_data()
    begun = time.monotonic()
    runs = []
    for number, kind in enumerate(RUNS, 1):
        print(f"[records {number}/{len(RUNS)}] {describe(*kind)}", flush=True)
        runs.append(child(kind, words.epochs, source))
    records.save(record(runs, words.epochs), path)
    print(f"{path.name} written after {time.monotonic() - begun:.0f} s")


def full_data() -> str:
    """The source that holds all of Fashion-MNIST; without one, say so and stop."""
    data = load()
    found = (len(data.y_train), len(data.y_test))
    if found != (TRAIN_SAMPLES, TEST_SAMPLES):
        sys.exit(
            f"The source's experiment needs all {TRAIN_SAMPLES:,} + {TEST_SAMPLES:,} "
            f"images of Fashion-MNIST; here are {found[0]:,} + {found[1]:,}. Connect "
            f"to the network, or install the Debian package dataset-fashion-mnist, "
            f"and unset MANYGPU_DATA. Nothing was written."
        )
    return "keras" if data.source == "download" else data.source


def describe(devices: int, step: str, init: str) -> str:
    """One run in words."""
    weights = f"weights of deviation {SCALE}" if init == "source" else "He's weights"
    return f"{devices} device{'s' if devices > 1 else ''}, {step}, {weights}"


def child(kind: tuple[int, str, str], epochs: int, source: str) -> dict[str, Any]:
    """Do one run in a process of its own, passing on what it says on the way."""
    environment = {
        **os.environ,
        "MANYGPU_DEVICES": str(kind[0]),
        "MANYGPU_DATA": source,
    }
    environment.pop("MANYGPU_INTER_OP", None)  # it would make one device two
    command = [sys.executable, __file__, "--epochs", str(epochs), "--run"]
    command += map(str, kind)
    line = ""
    with tempfile.TemporaryFile("w+") as complaints:  # TensorFlow's greetings go there
        pipes = {"stdout": subprocess.PIPE, "stderr": complaints}
        with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
            for line in process.stdout:
                if not line.startswith("{"):
                    print(f"  {line.rstrip()}", flush=True)
        if process.returncode:
            complaints.seek(0)
            sys.exit(f"{complaints.read()}\nThat run failed. Nothing was written.")
    return json.loads(line)


def run(devices: int, step: str, init: str, epochs: int) -> dict[str, Any]:
    """Train once; return the run as the record holds it."""
    import tensorflow as tf
    from d2l import tensorflow as d2l

    from manygpu.data import fashion_mnist
    from manygpu.scratch import get_params, init_params, lenet, train_batch

    places = manygpu.devices(devices)
    batches, test = fashion_mnist(BATCH_SIZE, seed=SEED, quiet=True)
    _, few = fashion_mnist(BATCH_SIZE, test_samples=EARLY_TEST_SAMPLES, quiet=True)
    params = init_params(SEED, scale=SCALE if init == "source" else None)
    replicas = [get_params(params, d) for d in places]
    take = tf.function(train_batch) if step == "compiled" else train_batch

    def accuracy(images) -> float:
        return d2l.evaluate_accuracy(lambda X: lenet(X, replicas[0]), images)

    per_epoch = []
    early = [{"step": 0, "test_accuracy": accuracy(few)}]
    steps = 0
    for epoch in range(epochs):
        losses, samples, looked = [], [], 0.0
        start = time.perf_counter()
        for X, y in batches:
            losses.append(take(X, y, replicas, places, LR))
            samples.append(len(y))
            steps += 1
            if epoch < EARLY_EPOCHS and steps % EARLY_EVERY == 0:
                losses[-1].numpy()  # the step is done: looking is not its time
                pause = time.perf_counter()
                early.append({"step": steps, "test_accuracy": accuracy(few)})
                looked += time.perf_counter() - pause
        replicas[0][-1].numpy()  # on a GPU, the epoch is done only when this is
        seconds = time.perf_counter() - start - looked
        mean = sum(float(x) * n for x, n in zip(losses, samples, strict=True))
        per_epoch.append(
            {
                "seconds": round(seconds, 3),
                "test_accuracy": accuracy(test),
                "training_loss": round(mean / sum(samples), 6),
            }
        )
        said = ", ".join(f"{k} {v:.3f}" for k, v in per_epoch[-1].items())
        print(f"epoch {epoch + 1} of {epochs}: {said}", flush=True)
    return {
        "devices": devices,
        "hardware": hardware(places),
        "step": step,
        "init": init,
        "per_epoch": per_epoch,
        "early": early,
    }


def hardware(places: list[str]) -> str:
    """What the devices are made of, such as '2 logical CPU devices of one thread'."""
    import tensorflow as tf

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
    return {
        "format": records.FORMAT,
        "name": NAME,
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "experiment": {
            "model": "LeNet of the chapter One device",
            "data": "Fashion-MNIST, samples shuffled anew each epoch",
            "batch_size": BATCH_SIZE,
            "lr": LR,
            "scale": SCALE,
            "seed": SEED,
            "epochs": epochs,
            "train_samples": TRAIN_SAMPLES,
            "test_samples": TEST_SAMPLES,
            "early_epochs": EARLY_EPOCHS,
            "early_every": EARLY_EVERY,
            "early_test_samples": EARLY_TEST_SAMPLES,
        },
        "runs": runs,
    }


def machine() -> dict[str, Any]:
    """The machine and its software; no name, no path, nothing personal."""
    import numpy as np
    import tensorflow as tf

    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 1,
        "memory_gib": memory_gib(),
        "system": operating_system(),
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "numpy": np.__version__,
    }


def cpu_model() -> str:
    """The CPU's name, as the system tells it."""
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if sys.platform == "darwin":
        query = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(
            query, capture_output=True, text=True, check=True
        ).stdout.strip()
    return platform.processor() or platform.machine()


def memory_gib() -> float:
    """Memory of the machine in GiB; 0 where the system doesn't tell."""
    try:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0.0
    return round(pages / 2**30, 1)


def operating_system() -> str:
    """Such as 'Debian GNU/Linux 12 (bookworm), x86_64'."""
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = f"{platform.system()} {platform.release()}"
    return f"{name}, {platform.machine()}"


if __name__ == "__main__":
    main()
