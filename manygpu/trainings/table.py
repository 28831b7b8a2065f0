"""The strategies, a row per training: `manygpu bench` times it, `prove` judges it.

A row says what a strategy is called, which function puts it to work, what it needs of a
model, and what a judge must know of it. It is read without TensorFlow. A new strategy
is such a function, and a row here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from manygpu.records.comparison import BASE, DATA

LENET, CHAIN, TRANSFORMER = "lenet", "chain", "transformer"  # models of the book
CHAIN_LAYERS, CHAIN_PIECES = 12, 8  # 1, 2, 3, 4 and 6 devices get equally many layers
SAMPLES = {LENET: 256, CHAIN: 2048}  # in a batch; other models bring theirs
ALWAYS, NAMED, JUDGED = "always", "if named", "never"
# Forms of a reader's model that can be compared with one device.
WIDE, QUIET, ALIKE = "in float32", "random layers off", "if normalized alike"
SGD, MOMENTUM, ADAM = "sgd", "momentum", "adam"
RISING = "sgd, rising rate"
ONE_LAYER = "it has one layer, so there is no cut"
OWN_STEP = (
    "the model has a train_step of its own, which gives no gradients to share: Keras "
    "fit takes it on many devices"
)
OWN_LOSS = (
    "the model has a compute_loss of its own, and only fit knows whether it divides by "
    "the replicas"
)
FIXED = (
    "the model takes a batch of {} and no other (batch_shape, stateful), so no device "
    "can have a share"
)
ADAM_S_PARTS = dict.fromkeys("mv", "each device has a part of it")
SELDOM = "the copies meet in every fourth step"
LOSSY = "a tenth of each gradient is sent, and the rest later"


class UnfitError(ValueError):
    """A model, or its batch, that a strategy can't train; the message says why."""


class Judged(NamedTuple):
    """What a judge must know of a strategy; see `manygpu.prove.Subject`.

    Attributes:
        name: in verdicts and in `planted.csv`.
        rule: of its optimizer.
        most_devices: that it takes for the judge's small model.
        least_samples: that it takes, on any number of devices.
        pieces: micro-batches.
        options: of its function: a variant that takes the step of one device.
        lr: its rate; None for the judge's usual one.
        dtype: of the judge's small model.
        apart: state that replicas rightly have each for itself, by name, and why.
        excused: properties that it rightly lacks, and why.
        guarded: whether a step whose gradient is no number must move nothing.
        subject: a function of `prove.more_steps` or `prove.todays_steps` that brings a
            model of its own before the judge; "" for the judge's small model.
    """

    name: str
    rule: str = SGD
    most_devices: int = 8
    least_samples: int = 1
    pieces: int = 1
    options: Mapping[str, Any] = {}
    lr: float | None = None
    dtype: str = "float64"
    apart: Mapping[str, str] = {}
    excused: Mapping[str, str] = {}
    guarded: bool = False
    subject: str = ""


class Strategy(NamedTuple):
    """A row of the table.

    Attributes:
        title: how a reader's table calls it.
        make: a function of a module of `manygpu.trainings`, or of one elsewhere, as
            `module:function`. `make(task, devices)` returns a `contract.Training`.
        needs: what it needs of a model, words of `unfit`.
        when: `manygpu bench` takes it ALWAYS, only if it is NAMED, or, as it is only
            JUDGED, never.
        alone: whether it takes one device, however many there are.
        threads: whether that device gets as many threads as there are devices.
        eager: whether it is timed as it is, and not as one graph.
        hides: whether an engine hides its messages; what the same sum sends is said.
        limit: whether it trains nothing, and shows what no strategy can beat.
        unlike: why its step isn't that of one device, or its copies differ; "" if it
            is, and they don't.
        built: what a chapter built of it, names of `manygpu.scratch` to begin with.
        beside: the row that has the same advantage without the strategy, if any.
        judged: what a judge must know of it; None if the judge can't ask it.
    """

    title: str
    make: str
    needs: str = ""
    when: str = ALWAYS
    alone: bool = False
    threads: bool = False
    eager: bool = False
    hides: bool = False
    limit: bool = False
    unlike: str = ""
    built: str = ""
    beside: str = ""
    judged: Judged | None = None

    @property
    def control(self) -> bool:
        """Whether it is no strategy: others are held against it."""
        return self.limit or self.threads

    @property
    def rule(self) -> str:
        """The rule of its optimizer: what makes of a gradient a change of weights."""
        return self.judged.rule if self.judged and not self.unlike else SGD


STRATEGIES = {
    BASE: Strategy(
        "one device", "copies:data", alone=True, built="gradients sgd"
    ),
    "accumulation": Strategy(
        "one device, accumulation", "copies:pieces", "plain", alone=True,
        built="accumulate sgd",
    ),
    "recomputation": Strategy(
        "one device, recomputation", "copies:in_segments", "layers plain", alone=True,
        built="recomputed_layers sgd",
        judged=Judged("recomputed", options={"length": 2, "tried": True}),
    ),
    "eager": Strategy("data, by hand, eager", "copies:data", "lenet samples",
        eager=True),
    DATA: Strategy(
        "data, by hand", "copies:data", "plain-if-shared samples",
        built="get_params train_batch", beside="threads", judged=Judged("data"),
    ),
    "pieces": Strategy(
        "data, accumulation", "copies:pieces", "plain samples",
        built="get_params train_batch accumulate", beside="accumulation",
        judged=Judged("data, micro-batches", pieces=2),
    ),
    "engine": Strategy(
        "data, MirroredStrategy", "engines:mirrored", "plain divided samples",
        hides=True, built="mirrored_step",
        judged=Judged("engine", most_devices=3, options={"shared": False}),
    ),
    "fit": Strategy(
        "data, Keras fit", "engines:fit", "keras samples", hides=True,
        built="keras_lenet",
    ),
    "dtensor": Strategy(
        "data, DTensor", "engines:dtensor_data", "lenet samples", hides=True,
        built="device_mesh dtensor_step",
    ),
    "network": Strategy(
        "network", "parts:network", "layers plain cut",
        built="make_stages partitioned_step", beside="threads",
        judged=Judged("network", most_devices=3),
    ),
    "pipeline": Strategy(
        "pipeline", "parts:one_f_one_b", "layers plain cut",
        built="make_stages one_forward_one_backward pipeline_step",
        beside="accumulation",
        judged=Judged("pipeline", most_devices=3, least_samples=3, pieces=3),
    ),
    "layerwise": Strategy(
        "layerwise", "parts:in_every_layer", "ours",
        built="LayerShards layerwise_step", judged=Judged("layerwise", most_devices=5),
    ),
    # No strategies: what a step would take if messages were free, and what the threads
    # of so many devices do without any.
    "apart": Strategy(
        "data, never communicate", "copies:never_together", "samples", limit=True
    ),
    "threads": Strategy(
        "one device, more threads", "copies:data", when=NAMED, alone=True, threads=True
    ),
    "gpipe": Strategy("pipeline, GPipe", "parts:by_gpipe", "layers plain cut", NAMED),
    "interleaved": Strategy(
        "pipeline, interleaved", "parts:in_two_runs", "layers plain cut", NAMED
    ),
    "zero-bubble": Strategy(
        "pipeline, zero bubble", "parts:by_zero_bubble", "layers plain cut", NAMED,
        judged=Judged(
            "pipeline, zero bubble", most_devices=3, least_samples=3, pieces=3
        ),
    ),
    # Other sums of the same gradients.
    "ring": Strategy(
        "data, ring", "copies:by_ring", "plain samples", NAMED,
        built="train_batch ring_allreduce", judged=Judged("data, ring"),
    ),
    "tree": Strategy(
        "data, tree", "copies:by_tree", "plain samples", NAMED,
        built="train_batch tree_allreduce", judged=Judged("data, tree"),
    ),
    "halving": Strategy(
        "data, halving", "copies:by_halving", "plain samples", NAMED,
        built="train_batch halving_doubling_allreduce", judged=Judged("data, halving"),
    ),
    "buckets": Strategy(
        "data, buckets", "copies:in_buckets", "plain samples", NAMED,
        built="train_batch allreduce_buckets",
        judged=Judged("data, buckets", options={"most": 400}),
    ),
    "top-k": Strategy(
        "data, top-k with error feedback", "copies:largest_first", "plain samples",
        NAMED, unlike=LOSSY, built="train_batch ErrorFeedback TopK gather_compressed",
        judged=Judged("error feedback", options={"share": 1.0}),
    ),
    # The state is split, too.
    **{
        f"zero-{stage}": Strategy(
            f"sharded state, ZeRO {stage}", f"parts:zero_{stage}",
            "ours plain samples", NAMED, built="ZeroState zero_step",
            judged=Judged(f"sharded state {stage}", rule=ADAM,
                          apart=ADAM_S_PARTS if stage else {}),
        )
        for stage in range(4)
    },
    "hsdp": Strategy(
        "sharded state, copies of shards", "parts:shards_in_copies",
        "layers plain samples", NAMED, built="MeshShards mesh_step",
        judged=Judged("hsdp", most_devices=4, least_samples=4,
                      options={"ranks": 4}),
    ),
    # Several axes at once.
    "mesh": Strategy(
        "mesh, data x layerwise", "parts:data_and_layerwise", "ours samples", NAMED,
        built="MeshShards mesh_step",
        judged=Judged("mesh", most_devices=4, least_samples=4,
                      options={"ranks": 4, "pieces": 2}),
    ),
    "mesh-3d": Strategy(
        "mesh, data x pipeline x layerwise", "parts:on_three_axes", "ours samples",
        NAMED, built="MeshShards mesh_step",
        judged=Judged("mesh of three axes", most_devices=4, least_samples=4,
                      options={"ranks": 8, "pieces": 2}),
    ),
    "mesh-layerwise": Strategy(
        "mesh, layerwise", "parts:on_one_axis", "ours", JUDGED,
        judged=Judged("mesh, one replica", most_devices=2, least_samples=2,
                      options={"pieces": 2}),
    ),
    # In step, or not.
    "local": Strategy(
        "local SGD", "meetings:local_sgd", "plain samples", NAMED, unlike=SELDOM,
        built="local_step Meeting",
        judged=Judged("met at once", options={"every": 1}),
    ),
    "local-adam": Strategy(
        "local Adam", "meetings:local_adam", "plain samples", JUDGED,
        judged=Judged("local Adam", rule=ADAM, most_devices=1),
    ),
    "members": Strategy(
        "data, members of a ring", "meetings:members", "plain samples", JUDGED,
        judged=Judged("members", most_devices=3),
    ),
    "server": Strategy(
        "parameter server, in step", "meetings:by_server", "plain samples", JUDGED,
        judged=Judged("server"),
    ),
    # What else a chapter adds to a step.
    "loss-scale": Strategy(
        "data, loss scale", "copies:loss_scaled", "layers plain samples", JUDGED,
        judged=Judged("loss scale", dtype="float32", guarded=True),
    ),
    "stored-sums": Strategy(
        "data, sums in a dtype of their own", "copies:stored_sums", "plain samples",
        JUDGED, judged=Judged("stored sums", dtype="float32"),
    ),
    "low-rank": Strategy(
        "data, low rank with error feedback", "copies:of_low_rank", "plain samples",
        JUDGED, judged=Judged("full rank", options={"rank": 16}),
    ),
    "warm-up": Strategy(
        "data, warm-up", "copies:warmed_up", "plain samples", JUDGED,
        unlike="its rate rises", judged=Judged("warm-up", rule=RISING, lr=0.25),
    ),
    # Models of their own.
    "own-batches": Strategy(
        "batches of its own", "", when=JUDGED,
        judged=Judged("own batches", subject="own_batches"),
    ),
    "own-epochs": Strategy(
        "epochs of its own", "", when=JUDGED,
        judged=Judged("own epochs", subject="own_epochs"),
    ),
    "synced-norm": Strategy(
        "data, synced batch norm", "", when=JUDGED,
        judged=Judged("synced norm", subject="normed_subject"),
    ),
    "cut-tokens": Strategy(
        "a block with cut tokens", "", when=JUDGED,
        judged=Judged("cut tokens", subject="block_subject"),
    ),
    "context": Strategy(
        "data x context, zigzag", "", when=JUDGED,
        judged=Judged("context", subject="in_zigzag"),
    ),
    "context-gather": Strategy(
        "data x context, all-gather", "", when=JUDGED,
        judged=Judged("context, all-gather", subject="by_all_gather"),
    ),
    "context-all-to-all": Strategy(
        "data x context, all-to-all", "", when=JUDGED,
        judged=Judged("context, all-to-all", subject="by_all_to_all"),
    ),
    "experts": Strategy(
        "data x experts, dropless", "", when=JUDGED,
        judged=Judged("experts", subject="without_drops"),
    ),
    "experts-capacity": Strategy(
        "data x experts, capacity", "", when=JUDGED,
        judged=Judged("experts, capacity", subject="with_drops"),
    ),
}  # fmt: skip


def known(*when: str) -> list[str]:
    """Return the names that `manygpu bench` knows, or those it takes so."""
    when = when or (ALWAYS, NAMED)
    return [name for name, row in STRATEGIES.items() if row.when in when]


def judged() -> dict[str, Strategy]:
    """Return the rows that a judge can ask, by the names that it knows them by."""
    return {row.judged.name: row for row in STRATEGIES.values() if row.judged}


def dealt_out(count: int, axes: Sequence[str]) -> dict[str, int]:
    """Return how many of `count` ranks each axis of a mesh gets: all factors in turn.

    The smallest factors of `count` go to the axes one after the other: 4 ranks are
    2 x 2, 8 on three axes 2 x 2 x 2, and 3 are 3 x 1.
    """
    sizes, factor, turn = dict.fromkeys(axes, 1), 2, 0
    while count > 1:
        if count % factor:
            factor += 1
            continue
        sizes[axes[turn % len(axes)]] *= factor
        count, turn = count // factor, turn + 1
    return sizes


def unfit(strategy: Strategy, about: Mapping[str, Any], devices: int) -> str:
    """Return why a strategy can't train a model on so many devices; "" if it can.

    Args:
        strategy: a row.
        about: what is known of the model, such as its `samples`, or that it is `uncut`.
        devices: how many there are.
    """
    samples, own_step = about.get("samples", devices), about.get("own_step", False)
    own_loss, fixed = about.get("own_loss", False), about.get("fixed", False)
    alone = about.get("assigns") or OWN_STEP
    model, uncut = about.get("model", LENET), about.get("uncut", "")
    lacks = {  # by what may be needed: whether a model hasn't that, and what it means
        "lenet": (model != LENET, "the book has it for its own LeNet only"),
        "ours": (
            model not in (LENET, CHAIN),
            "the book has it for its own LeNet and chain only",
        ),
        "keras": (model == CHAIN, "it is no Keras model"),
        "layers": (bool(uncut), uncut),
        "cut": (devices > 1 and len(about.get("layers", ())) == 1, ONE_LAYER),
        "plain": (own_step, alone),
        "plain-if-shared": (own_step and devices > 1, alone),
        "divided": (own_loss and devices > 1, OWN_LOSS),
        "samples": (
            samples < devices, f"a batch of {samples} can't be cut into {devices} parts"
        ),
        "shares": (fixed and devices > 1, FIXED.format(samples)),
    }  # fmt: skip
    needs = strategy.needs.replace("samples", "samples shares").split()
    found = [lacks[need] for need in needs]
    return next((why for lacking, why in found if lacking), "")
