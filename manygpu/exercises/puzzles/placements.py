"""Puzzles of what lies where: layers on stages, experts on GPUs, axes on machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from manygpu.exercises.puzzles.drawing import Bar, Line, lanes
from manygpu.exercises.puzzles.plans import FITS, index, listed, parts, row, shown
from manygpu.exercises.puzzles.scoring import FORM, Refused, add

PLACEMENTS, MESHES = "Placements", "Mesh layouts"
EACH_LAYER = "Each layer is in one stage"
EACH_EXPERT = "Each expert is on a GPU"
APART = "Copies of an expert are on different GPUs"
EACH_PLACE = "Each place of the mesh has one GPU"

COSTS = (6, 5, 4, 9, 8, 8, 7, 3, 4, 4, 4, 2)
BYTES = (2, 7, 7, 9, 8, 5, 2, 7, 8, 1, 1, 7)
STAGES, ROOM = 4, 23


@add(
    "stages",
    "Where to cut the network",
    PLACEMENTS,
    f"""
    A network has {len(COSTS)} layers. They take {", ".join(map(str, COSTS))} ms, and
    need {", ".join(map(str, BYTES))} GB of memory. Cut them, in this order, into
    {STAGES} stages, one per device. A device has room for {ROOM} GB. `answer` is a list
    with the number of layers of each stage.

    A pipeline is as fast as its busiest stage. So the score is the time of the busiest
    stage, divided by the mean time of all stages. Make it small.
    """,
    """
    answer = [3, 3, 3, 3]
    """,
    "times the mean, on the busiest device",
    1,
)
def stages(plan: Any) -> tuple[float, str]:
    """The busiest of several is never less busy than their mean: 1. The 12 layers can
    be cut in 165 ways; a test tries them all, and what fits has 1.125 or more. (D.
    Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training",
    2019, section 3.1.)
    """
    found = parts(plan, len(COSTS), "layers", EACH_LAYER)
    if len(found) != STAGES:
        raise Refused(FORM, f"answer must have {STAGES} numbers, got {len(found)}")
    for number, layers in enumerate(found):
        if (held := sum(BYTES[i] for i in layers)) > ROOM:
            has = f"stage {number} has {held} GB, but device {number}"
            raise Refused(FITS, f"{has} has room for {ROOM} only")
    mean = sum(COSTS) / STAGES
    times = [sum(COSTS[i] for i in layers) for layers in found]
    bars = [
        bar
        for number, layers in enumerate(found)
        for bar in stacked(number, [(f"layer {i}", COSTS[i]) for i in layers], number)
    ]
    label = f"{STAGES} stages of {times} ms, with a mean of {mean:g}"
    names = [f"stage {number}" for number in range(STAGES)]
    line = Line(mean, "the mean")
    return max(times) / mean, lanes(bars, names, "ms", label, line)


LOADS = (50, 28, 20, 14, 9, 6, 5, 4, 3, 2, 2, 1)
GPUS, SLOTS = 4, 4


@add(
    "experts",
    "Where to place the experts",
    PLACEMENTS,
    f"""
    A layer has {len(LOADS)} experts, 0 to {len(LOADS) - 1}. From each batch, they get
    {", ".join(map(str, LOADS))} thousand tokens. There are {GPUS} GPUs with {SLOTS}
    slots each, and a slot has room for one expert. An expert may be on several GPUs.
    Each of these then gets an equal share of its tokens. `answer` has one list of
    experts per GPU.

    All GPUs wait for the busiest one. So the score is the number of tokens of the
    busiest GPU, divided by the mean of all GPUs. Make it small.
    """,
    """
    answer = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    """,
    "times the mean, on the busiest GPU",
    1,
)
def experts(plan: Any) -> tuple[float, str]:
    """All tokens are somewhere, so the mean is the same for all plans, and the busiest
    of several is never less busy than their mean: 1. (That a copy shares the load:
    DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 3.4.)
    """
    found = []
    for gpu, own in enumerate(row(plan, GPUS, "answer")):
        named = [
            index(e, len(LOADS), f"an expert of GPU {gpu}") for e in listed(own, "it")
        ]
        if len(named) > SLOTS:
            has = f"GPU {gpu} has {len(named)} experts"
            raise Refused(FITS, f"{has}, but only {SLOTS} slots")
        if len({*named}) < len(named):
            raise Refused(APART, f"GPU {gpu} has an expert twice")
        found.append(named)
    copies = Counter(expert for own in found for expert in own)
    for expert in range(len(LOADS)):
        if not copies[expert]:
            raise Refused(EACH_EXPERT, f"expert {expert} is on no GPU")
    shares = [[(f"{e}", LOADS[e] / copies[e]) for e in own] for own in found]
    tokens = [sum(share for _, share in own) for own in shares]
    mean = sum(LOADS) / GPUS
    bars = [bar for gpu, own in enumerate(shares) for bar in stacked(gpu, own, gpu)]
    label = f"{GPUS} GPUs with {[round(t, 1) for t in tokens]} thousand tokens"
    names = [f"GPU {gpu}" for gpu in range(GPUS)]
    line = Line(mean, "the mean")
    return max(tokens) / mean, lanes(bars, names, "thousand tokens", label, line)


DATA, TENSOR, PIPELINE = AXES = 4, 4, 2
PER_MACHINE = 8
WEIGHTS = {"tensor": 100, "data": 6, "pipeline": 10}  # MB, between two neighbours
WORLD = DATA * TENSOR * PIPELINE
ONE_WHOLE_RING_OUT = 2 * WEIGHTS["tensor"]
LEAST_OUT = (
    PIPELINE * DATA * TENSOR * WEIGHTS["data"]  # all rings
    + DATA * TENSOR * WEIGHTS["pipeline"]  # all pairs
    - (WORLD // PER_MACHINE) * TENSOR * WEIGHTS["pipeline"]  # what lies inside
)


@add(
    "mesh",
    "Which axis lies inside a machine",
    MESHES,
    f"""
    {WORLD} GPUs form a mesh of data {DATA} x tensor {TENSOR} x pipeline {PIPELINE}.
    GPUs 0 to {PER_MACHINE - 1} are in the first machine, the next {PER_MACHINE} in the
    second, and so on. In each step, two neighbours on a ring of the tensor axis
    exchange {WEIGHTS["tensor"]} MB, two neighbours on a ring of the data axis exchange
    {WEIGHTS["data"]} MB, and the two GPUs of a pipeline exchange
    {WEIGHTS["pipeline"]} MB. `answer` is a list of {WORLD} triples, one per GPU in
    order: the GPU's place `(data, tensor, pipeline)` on the mesh.

    The score is the number of MB per step that travel between machines. Make it small.
    """,
    f"""
    answer = []
    for tensor in range({TENSOR}):
        for pipeline in range({PIPELINE}):
            for data in range({DATA}):
                answer.append((data, tensor, pipeline))
    """,
    "MB between machines",
    min(LEAST_OUT, ONE_WHOLE_RING_OUT),
)
def mesh(plan: Any) -> tuple[float, str]:
    """A tensor ring that leaves its machine does so twice: 200 MB. If none does, a
    machine has two whole rings, 4 GPUs each, and of all other neighbours only those of
    these two rings lie inside: 4 x 10 MB if they are a pipeline's, 4 x 6 if they are
    the data axis'. The other axes have 8 x 4 x 6 + 16 x 10 = 352 MB in all, of which 4
    machines keep 160 at most: 192. (D. Narayanan et al., "Efficient large-scale
    language model training on GPU clusters using Megatron-LM", 2021, section 3.)
    """
    found = []
    for gpu, value in enumerate(row(plan, WORLD, "answer")):
        place = row(value, 3, f"GPU {gpu}'s place")
        names = "data", "tensor", "pipeline"
        named = [f"GPU {gpu}'s {name}" for name in names]
        triples = zip(place, AXES, named, strict=True)
        found.append(tuple(index(at, size, name) for at, size, name in triples))
    gpu_of = {place: gpu for gpu, place in enumerate(found)}
    if len(gpu_of) < WORLD:
        twice = next(place for place in found if found.count(place) > 1)
        said = f"the place {shown(twice)} has {found.count(twice)} GPUs"
        raise Refused(EACH_PLACE, said)
    out = sum(
        WEIGHTS[axis]
        for axis, one, other in neighbours()
        if gpu_of[one] // PER_MACHINE != gpu_of[other] // PER_MACHINE
    )
    bars = [
        Bar(
            gpu // PER_MACHINE,
            gpu % PER_MACHINE,
            gpu % PER_MACHINE + 1,
            place[0],
            "".join(map(str, place)),
            f"GPU {gpu}: data {place[0]}, tensor {place[1]}, pipeline {place[2]}",
        )
        for gpu, place in enumerate(found)
    ]
    names = [f"machine {i}" for i in range(WORLD // PER_MACHINE)]
    label = f"{WORLD} GPUs in {len(names)} machines, {out} MB between machines"
    unit = "GPUs, as data, tensor, pipeline; a colour per data"
    return out, lanes(bars, names, unit, label, None)


def neighbours() -> Iterator[tuple[str, tuple, tuple]]:
    """Each pair of the mesh that exchanges something, and along which axis."""
    for d in range(DATA):
        for t in range(TENSOR):
            for p in range(PIPELINE):
                yield "data", (d, t, p), ((d + 1) % DATA, t, p)
                yield "tensor", (d, t, p), (d, (t + 1) % TENSOR, p)
                if p + 1 < PIPELINE:
                    yield "pipeline", (d, t, p), (d, t, p + 1)


def stacked(
    lane: int, pieces: list[tuple[str, float]], ink: int | str
) -> Iterator[Bar]:
    """Bars one after another: each a name and how long it is."""
    at = 0.0
    for name, size in pieces:
        short = name.rpartition(" ")[2]
        yield Bar(lane, at, at + size, ink, short, f"{name}: {size:g}")
        at += size
