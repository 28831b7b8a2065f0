"""Measure on this machine's GPUs what the book's pages ask, and keep it: minutes.

Short measurements with the pages' own functions, a question a page; on two GPUs, or on
one that is cut in two. `manygpu.records.gpu_record` says on each page what came out.
The record is written when all is done. `--stand-in` tries it on any devices, small.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from source_experiment import hardware

import manygpu
from manygpu import bench, records
from manygpu.bench import result
from manygpu.bench.run import survey
from manygpu.choosing import residuals
from manygpu.data import fashion_mnist
from manygpu.measure import in_turns, nbytes
from manygpu.processes.workers import Worker
from manygpu.records import gpu, machine
from manygpu.scratch import (
    allreduce,
    allreduce_buckets,
    get_params,
    gradients,
    he_normal,
    init_params,
    make_buckets,
    mixed_gradients,
    sgd,
    split_batch,
)

Values = dict[str, list[float]]
DEVICES, TIMEOUT_S = 2, 1800.0
LARGE = 2**22  # numbers, 16 MiB
STEPS = ("one", "data", "engine", "fit")  # the first two tell `choose` of the machine


class Sizes:
    """How much is measured: all of it, or as little as a test needs."""

    def __init__(self, small: bool) -> None:
        self.rounds = 3 if small else 20
        self.width, self.layers = (64, 2) if small else (2048, 8)
        self.samples, self.pictures = (16, 32) if small else (1024, 2048)
        self.side = 256 if small else 8192


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write there and not into the package")
    parser.add_argument("--stand-in", action="store_true", help="whatever devices "
        "there are, small sizes: a try; wants --out")  # fmt: skip
    words = parser.parse_args()
    if words.stand_in and not words.out:
        parser.error("--stand-in isn't worth keeping: give --out")
    if not words.stand_in and not tf.config.list_physical_devices("GPU"):
        print("No GPU here: no record of one is made.")
        return
    sizes, runs = Sizes(words.stand_in), []
    variables = {"MANYGPU_DEVICES": str(DEVICES), "MANYGPU_INTER_OP": str(2 * DEVICES)}
    try:
        with Worker(serve, sizes, variables=variables, name="GPUs") as worker:
            where = worker.ask("hardware", TIMEOUT_S)
            for question in INSIDE:
                runs += rows(question, worker.ask(question, TIMEOUT_S))
        for question, measure in OUTSIDE.items():
            runs += rows(question, measure(sizes))
    except RuntimeError as failed:
        sys.exit(f"{failed}\nNothing was written.")
    made = {"format": records.FORMAT, "kind": "gpu", "name": gpu.NAME, "runs": runs}
    made |= {"date": datetime.date.today().isoformat(), "machine": machine.facts()}
    made["experiment"] = {"hardware": where, "devices": DEVICES}
    path = words.out or records.FOLDER / f"{gpu.NAME}.json"
    records.save(made, path)
    print(f"{path.name} written")


def rows(question: str, found: Values) -> Iterator[dict[str, Any]]:
    """Runs of the record; they are told, too."""
    for name, values in found.items():
        run = {"question": question, "measure": name, "values": values}
        text, spec = gpu.QUESTIONS[question][name]
        print(f"[{question}] {text.format(f'{np.median(values):{spec}}')}", flush=True)
        yield run


def serve(sizes: Sizes) -> Callable[[str], Any]:
    """In the worker: what answers a question by measuring."""
    devices = manygpu.devices(quiet=True)
    answers = {name: partial(ask, sizes, devices) for name, ask in INSIDE.items()}
    answers["hardware"] = partial(hardware, devices)
    return lambda question: answers[question]()


def over(times: Mapping[str, list[float]], what: str, base: str) -> list[float]:
    """Ratios of two jobs' seconds, round by round."""
    return [a / b for a, b in zip(times[what], times[base], strict=True)]


def wait(tensors: list[tf.Tensor]) -> None:
    """Return when each is there: a number of it is read, on its own device."""
    for t in tensors:
        with tf.device(t.device):
            tf.reshape(t, [-1])[0].numpy()


def all_reduce(sizes: Sizes, devices: list[str]) -> Values:
    """The sum of 4 bytes, and of 16 MiB."""

    def on_each(numbers: int) -> list[tf.Variable]:
        found = []
        for device in devices:
            with tf.device(device):
                found.append(tf.Variable(tf.ones(numbers)))
        return found

    def reduce(data: list[tf.Variable]) -> None:
        allreduce(data)
        wait(data)

    jobs = {
        n: partial(reduce, on_each(k)) for n, k in {"4": 1, "16 MiB": LARGE}.items()
    }
    times = in_turns(jobs, sizes.rounds, warm_up=2)
    rate = [4 * LARGE / seconds / 1e9 for seconds in times["16 MiB"]]
    return {"large": over(times, "16 MiB", "4"), "rate": rate}


def hiding(sizes: Sizes, devices: list[str]) -> Values:
    """A stack of dense layers: one message, buckets of a layer, and none at all."""
    shape = (sizes.width, sizes.width)
    params = [tf.Variable(he_normal(shape, (0, i))) for i in range(sizes.layers)]
    replicas = [get_params(params, device) for device in devices]
    X = tf.random.stateless_normal((sizes.samples, sizes.width), (0, 1))
    bytes_of = [nbytes(p) for p in params]

    def slopes(X: tf.Tensor, own: list[tf.Variable]) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            h = X
            for W in own:
                h = tf.nn.relu(h @ W)
            loss = tf.reduce_sum(h)
        return tape.gradient(loss, own)

    def stepping(limit: int) -> Callable[[], None]:
        buckets = make_buckets(bytes_of, limit) if limit else []

        def step(X: tf.Tensor) -> None:
            grads = []
            shards, _ = split_batch(X, X, devices)
            for device, own, shard in zip(devices, replicas, shards, strict=True):
                with tf.device(device):
                    grads.append(slopes(shard, own))
            sums = allreduce_buckets(grads, buckets) if limit else grads
            for device, own, total in zip(devices, replicas, sums, strict=True):
                with tf.device(device):
                    sgd(own, total, 1e-9)

        compiled = tf.function(step, autograph=False)

        def once() -> None:
            compiled(X)
            wait([own[0] for own in replicas])

        return once

    limits = {"one": sum(bytes_of), "buckets": bytes_of[0], "free": 0}
    jobs = {name: stepping(limit) for name, limit in limits.items()}
    times = in_turns(jobs, sizes.rounds, warm_up=2)
    return {name: over(times, name, "one") for name in ("buckets", "free")}


def feeding(sizes: Sizes, devices: list[str]) -> Values:
    """Pictures that are decoded on the way, LeNet's gradients, and both."""
    count, batch = sizes.pictures, sizes.pictures // 8
    few = {"train_samples": count, "test_samples": 256}
    X, y = next(iter(fashion_mnist(count, **few, quiet=True)[0]))
    codes = [tf.io.encode_png(tf.cast(255 * x, tf.uint8)) for x in X]
    stored = tf.data.Dataset.from_tensor_slices((codes, y))

    def decode(png: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        picture = tf.ensure_shape(tf.io.decode_png(png, 1), (28, 28, 1))
        return tf.cast(picture, tf.float32) / 255, label

    stream = stored.map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(batch)
    ready = [*stream]
    with tf.device(devices[0]):
        params = get_params(init_params(), devices[0])
        step = tf.function(lambda X, y: gradients(X, y, params)[0], autograph=False)

    def train(batches: Any) -> None:
        with tf.device(devices[0]):
            wait([step(X, y) for X, y in batches][-1:])

    jobs = {
        "data": lambda: [None for _ in stream] and None,
        "step": partial(train, ready),
        "both": partial(train, stream.prefetch(2)),
    }
    times = in_turns(jobs, sizes.rounds, warm_up=2)
    pairs = zip(times["data"], times["step"], strict=True)
    times["longer"] = [max(pair) for pair in pairs]
    return {"data": over(times, "data", "step"), "both": over(times, "both", "longer")}


def mixed(sizes: Sizes, devices: list[str]) -> Values:
    """A product of matrices and LeNet's gradients in bfloat16 and in float32."""
    few = {"train_samples": 256, "test_samples": 256}
    X, y = next(iter(fashion_mnist(256, **few, quiet=True)[0]))
    with tf.device(devices[0]):
        params = get_params(init_params(), devices[0])
        X, y = tf.identity(X), tf.identity(y)
        A = tf.random.stateless_normal((sizes.side, sizes.side), (0, 0))

        def product(dtype: tf.DType) -> Callable:
            own = tf.cast(A, dtype)
            return tf.function(lambda: tf.reduce_max(tf.cast(own @ own, tf.float32)))

        def lenet(dtype: tf.DType) -> Callable:
            def work() -> tf.Tensor:
                grads = mixed_gradients(X, y, params, dtype)[1]
                return tf.add_n([tf.reduce_sum(tf.cast(g, tf.float32)) for g in grads])

            return tf.function(work, autograph=False)

        found = {}
        for name, make in {"product": product, "lenet": lenet}.items():
            jobs = {d.name: make(d) for d in (tf.float32, tf.bfloat16)}
            times = in_turns(jobs, sizes.rounds, warm_up=2)
            found[name] = over(times, "bfloat16", "float32")
    return found


def slower(sizes: Sizes) -> Values:
    """Steps on two devices against one, eager and compiled, each in its process."""
    cases = {
        f"{kind} {n}": bench.Case(strategy, n)
        for kind, pair in {"eager": ("eager", "eager"), "compiled": STEPS[:2]}.items()
        for n, strategy in enumerate(pair, 1)
    }
    times = bench.compare(
        cases, max(3, sizes.rounds // 4), 1 if sizes.rounds < 5 else 5
    )
    return {
        kind: over(times, f"{kind} 2", f"{kind} 1") for kind in ("eager", "compiled")
    }


def forecast(sizes: Sizes) -> Values:
    """The engine's steps on two devices over what `choose` says of this machine."""
    asked = {"model": "lenet", "source": "", "devices": DEVICES, "batch": 256}
    asked |= {"steps": 1 if sizes.rounds < 5 else 5, "strategies": [*STEPS]}
    asked["kernels"] = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "TensorFlow's choice")
    made = result.begin(asked)
    survey(made, max(3, sizes.rounds // 4), lambda: None, lambda what: None)
    with tempfile.TemporaryDirectory() as folder:
        result.keep(made, Path(folder) / "lenet.json")
        kept = records.machines(Path(folder))
    steps = residuals.of_bench(records.measured(kept))
    return {"two": [step.ratio for step in steps if step.layout.devices > 1]}


# What is measured in one process, on its devices; and by what starts its own.
INSIDE = {
    "all-reduce": all_reduce,
    "hiding-communication": hiding,
    "feeding-the-devices": feeding,
    "mixed-precision": mixed,
}
OUTSIDE = {"why-slower": slower, "how-choose-decides": forecast}

if __name__ == "__main__":
    main()
