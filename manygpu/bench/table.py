"""The strategies that can be compared, a row each.

A row says what a strategy is called, which function makes it, and what it needs of a
model. It is read without TensorFlow. A new strategy is such a function, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from manygpu.records.comparison import BASE, DATA

LENET, CHAIN, TRANSFORMER = "lenet", "chain", "transformer"  # models of the book
CHAIN_LAYERS, CHAIN_PIECES = 12, 16  # 1, 2, 3, 4 and 6 devices get equally many layers
SAMPLES = {LENET: 256, CHAIN: 4096}  # in a batch; other models bring theirs
ALWAYS, NAMED, TIMED = "always", "if named", "by bench.compare only"


class UnfitError(ValueError):
    """A model, or its batch, that a strategy can't train; the message says why."""


class Strategy(NamedTuple):
    """A row of the table.

    Attributes:
        title: how a reader's table calls it.
        make: a function of `manygpu.bench.strategies`, or `module:function` for one
            elsewhere. `make(model, devices)` returns a `contract.Running`.
        needs: what it needs of a model, words of `NEEDS`.
        when: `manygpu bench` takes it ALWAYS, or only if it is NAMED; what is TIMED
            trains nothing, or no model but the chain.
        alone: whether it takes one device, however many there are.
        threads: whether that device gets as many threads as there are devices.
        hides: whether an engine hides its messages; what the same sum sends is said.
        built: what a chapter built of it, names of `manygpu.scratch` to begin with.
        beside: the row that has the same advantage without the strategy, if any.
    """

    title: str
    make: str
    needs: str = ""
    when: str = ALWAYS
    alone: bool = False
    threads: bool = False
    hides: bool = False
    built: str = ""
    beside: str = ""


STRATEGIES = {
    BASE: Strategy("one device", "make_one", alone=True, built="gradients sgd"),
    "accumulation": Strategy(
        "one device, accumulation", "make_accumulation", "plain", alone=True,
        built="accumulate sgd",
    ),
    "recomputation": Strategy(
        "one device, recomputation", "make_recomputation", "layers plain", alone=True,
        built="recomputed_layers sgd",
    ),
    "eager": Strategy("data, by hand, eager", "make_eager", "lenet samples"),
    DATA: Strategy(
        "data, by hand", "make_data", "plain-if-shared samples",
        built="get_params train_batch", beside="threads",
    ),
    "pieces": Strategy(
        "data, accumulation", "make_pieces", "plain samples",
        built="get_params train_batch accumulate", beside="accumulation",
    ),
    "engine": Strategy(
        "data, MirroredStrategy", "make_engine", "plain samples", hides=True,
        built="mirrored_step",
    ),
    "fit": Strategy(
        "data, Keras fit", "make_fit", "keras samples", hides=True, built="keras_lenet"
    ),
    "dtensor": Strategy(
        "data, DTensor", "make_dtensor", "lenet samples", hides=True,
        built="device_mesh dtensor_step",
    ),
    "network": Strategy(
        "network", "make_network", "layers plain cut",
        built="make_stages partitioned_step", beside="threads",
    ),
    "pipeline": Strategy(
        "pipeline", "make_pipeline", "layers plain cut",
        built="make_stages one_forward_one_backward pipeline_step",
        beside="accumulation",
    ),
    "layerwise": Strategy(
        "layerwise", "make_layerwise", "lenet", built="LayerShards layerwise_step"
    ),
    # No strategies: what the threads of so many devices do without them, and what a
    # step would take if messages were free.
    "threads": Strategy(
        "one device, more threads", "make_one", when=NAMED, alone=True, threads=True
    ),
    "apart": Strategy("data, never communicate", "make_apart", "plain samples", NAMED),
    "gpipe": Strategy("pipeline, GPipe", "make_gpipe", "layers plain cut", TIMED),
    "interleaved": Strategy(
        "pipeline, interleaved", "make_interleaved", "layers plain cut", TIMED
    ),
    "zero-bubble": Strategy(
        "pipeline, zero bubble", "make_zero_bubble", "layers plain cut", TIMED
    ),
    "forward": Strategy("one device, forward", "make_forward", "", TIMED, alone=True),
    "pipeline-forward": Strategy(
        "pipeline, forward", "make_pipeline_forward", "layers cut", TIMED
    ),
}  # fmt: skip


def _of_lenet(about: Mapping[str, Any], devices: int) -> str:
    other = about.get("model", LENET) != LENET
    return "the book has it for its own LeNet only" if other else ""


def _in_layers(about: Mapping[str, Any], devices: int) -> str:
    return about.get("uncut", "")


def _cut(about: Mapping[str, Any], devices: int) -> str:
    one = devices > 1 and len(about.get("layers", ())) == 1
    return "it has one layer, so there is no cut" if one else ""


def _of_plain_sgd(about: Mapping[str, Any], devices: int) -> str:
    said = (
        "the model has a train_step of its own, which only one device and Keras "
        "fit take: by hand it would be another step"
    )
    return said if about.get("own_step") else ""


def _a_sample_each(about: Mapping[str, Any], devices: int) -> str:
    samples = about.get("samples", devices)
    few = samples < devices
    return f"a batch of {samples} can't be cut into {devices} parts" if few else ""


# What a strategy may need: from what is known of a model, why it hasn't that, or "".
NEEDS: dict[str, Callable[[Mapping[str, Any], int], str]] = {
    "lenet": _of_lenet,
    "layers": _in_layers,
    "cut": _cut,
    "keras": lambda a, k: "it is no Keras model" if a.get("model") == CHAIN else "",
    "plain": _of_plain_sgd,
    "plain-if-shared": lambda a, k: _of_plain_sgd(a, k) if k > 1 else "",
    "samples": _a_sample_each,
}


def known(*when: str) -> list[str]:
    """Return the names that `manygpu bench` knows, or those it takes so."""
    when = when or (ALWAYS, NAMED)
    return [name for name, row in STRATEGIES.items() if row.when in when]


def unfit(strategy: Strategy, about: Mapping[str, Any], devices: int) -> str:
    """Return why a strategy can't train a model on so many devices; "" if it can.

    Args:
        strategy: a row.
        about: what is known of the model, such as its `samples`, or that it is `uncut`.
        devices: how many there are.
    """
    said = (NEEDS[need](about, devices) for need in strategy.needs.split())
    return next(filter(None, said), "")
