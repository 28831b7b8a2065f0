"""The strategies that can be compared, a row each, and the case that one is timed in.

A row says what a strategy is called, which function makes it, and what it needs of a
model. It is read without TensorFlow. A new strategy is such a function, and a row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from manygpu.records.comparison import BASE, DATA
from manygpu.simulate.works import whole

LENET, CHAIN, TRANSFORMER = "lenet", "chain", "transformer"  # models of the book
CHAIN_LAYERS, CHAIN_PIECES = 12, 8  # 1, 2, 3, 4 and 6 devices get equally many layers
SAMPLES = {LENET: 256, CHAIN: 2048}  # in a batch; other models bring theirs
ALWAYS, NAMED = "always", "if named"
ONE_LAYER = "it has one layer, so there is no cut"
OWN_STEP = (
    "the model has a train_step of its own, which gives no gradients to share: Keras "
    "fit takes it on many devices"
)
OWN_LOSS = (
    "the model has a compute_loss of its own, and only fit knows whether it divides by "
    "the replicas"
)


class UnfitError(ValueError):
    """A model, or its batch, that a strategy can't train; the message says why."""


class Strategy(NamedTuple):
    """A row of the table.

    Attributes:
        title: how a reader's table calls it.
        make: a function of `manygpu.bench.strategies`, or `module:function` for one
            elsewhere. `make(model, devices)` returns a `contract.Running`.
        needs: what it needs of a model, words of `unfit`.
        when: `manygpu bench` takes it ALWAYS, or only if it is NAMED.
        alone: whether it takes one device, however many there are.
        threads: whether that device gets as many threads as there are devices.
        hides: whether an engine hides its messages; what the same sum sends is said.
        limit: whether it trains nothing, and shows what no strategy can beat.
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
    limit: bool = False
    built: str = ""
    beside: str = ""

    @property
    def control(self) -> bool:
        """Whether it is no strategy: others are held against it."""
        return self.limit or self.threads


STRATEGIES = {
    BASE: Strategy("one device", "make_data", alone=True, built="gradients sgd"),
    "accumulation": Strategy(
        "one device, accumulation", "make_pieces", "plain", alone=True,
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
        "data, MirroredStrategy", "make_engine", "plain divided samples", hides=True,
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
    # No strategies: what a step would take if messages were free, and what the threads
    # of so many devices do without any.
    "apart": Strategy("data, never communicate", "make_apart", "samples", limit=True),
    "threads": Strategy(
        "one device, more threads", "make_data", when=NAMED, alone=True, threads=True
    ),
    "gpipe": Strategy("pipeline, GPipe", "make_gpipe", "layers plain cut", NAMED),
    "interleaved": Strategy(
        "pipeline, interleaved", "make_interleaved", "layers plain cut", NAMED
    ),
    "zero-bubble": Strategy(
        "pipeline, zero bubble", "make_zero_bubble", "layers plain cut", NAMED
    ),
}  # fmt: skip


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
    samples, own_step = about.get("samples", devices), about.get("own_step", False)
    own_loss = about.get("own_loss", False)
    model, uncut = about.get("model", LENET), about.get("uncut", "")
    lacks = {  # by what may be needed: whether a model hasn't that, and what it means
        "lenet": (model != LENET, "the book has it for its own LeNet only"),
        "keras": (model == CHAIN, "it is no Keras model"),
        "layers": (bool(uncut), uncut),
        "cut": (devices > 1 and len(about.get("layers", ())) == 1, ONE_LAYER),
        "plain": (own_step, OWN_STEP),
        "plain-if-shared": (own_step and devices > 1, OWN_STEP),
        "divided": (own_loss and devices > 1, OWN_LOSS),
        "samples": (
            samples < devices, f"a batch of {samples} can't be cut into {devices} parts"
        ),
    }  # fmt: skip
    found = [lacks[need] for need in strategy.needs.split()]
    return next((why for lacking, why in found if lacking), "")


@dataclass(frozen=True)
class Case:
    """What one process times.

    Attributes:
        strategy: a key of `STRATEGIES`.
        devices: how many.
        inter_op: inter-op threads, to show what an unfair baseline does; None for
            as many as devices, see `manygpu.devices`.
        batch: samples in a batch; None for as many as the model usually has.
        model: "lenet", or another that `models.load` finds.
        seconds: what each layer of such a model takes; so it is cut evenly.

    Raises:
        TypeError: a count that is no whole number.
        ValueError: no such strategy, or a count below 1.
    """

    strategy: str
    devices: int
    inter_op: int | None = None
    batch: int | None = None
    model: str = LENET
    seconds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(
                f"strategy must be one of {[*STRATEGIES]}, got {self.strategy!r}"
            )
        whole("devices", self.devices)
        for name in ("inter_op", "batch"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))

    @property
    def samples(self) -> int | None:
        """How many samples its batch has; None where only its model knows."""
        return SAMPLES.get(self.model) if self.batch is None else self.batch
