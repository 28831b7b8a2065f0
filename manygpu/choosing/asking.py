"""A setting from names and numbers, as a person, a file or a table has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from manygpu.choosing import tables, words
from manygpu.choosing.presets import known_model, of_shape
from manygpu.choosing.question import GOALS, SIXTEEN, Machine, Model, Setting
from manygpu.costs.shape import Shape
from manygpu.simulate.cluster import LINKS, Cluster, Link
from manygpu.simulate.works import whole


class Number(NamedTuple):
    """What of a setting can be said: what it is, its unit, and its default.

    Without a default it must be given: by a name, as an option or in the file.
    """

    about: str
    default: float | None = None
    whole: bool = False


MODEL = {
    "layers": Number("equal layers that it has", whole=True),
    "parameters": Number("of all layers"),
    "flops": Number("FLOPs of the forward pass of one sample"),
    "handed": Number("bytes a sample that a layer hands to the next one"),
    "kept": Number("bytes a sample that all layers keep for the backward pass"),
    "state": Number(
        "bytes a parameter in memory, with its gradient and the optimizer's: see "
        "--optimizer",
        16.0,
    ),
    "sent": Number("bytes a parameter, and its gradient, when it is sent", 4.0),
}
MACHINE = {
    "memory": Number("bytes of a device's memory"),
    "rate": Number("FLOP/s that a device reaches in training; no data sheet has it"),
    "bandwidth": Number("bytes a second of a device's memory", 1e12),
    "launch": Number("seconds that a layer's pass takes at least", 50e-6),
    "price": Number("dollars an hour for a device", 1.0),
    "at_once": Number("devices that are rented out together", 1, whole=True),
}
CLUSTER = {
    "nodes": Number("machines", 1, whole=True),
    "gpus": Number("devices in each machine", whole=True),
    "cards": Number("network cards in each machine", 1, whole=True),
}
BATCH = {"batch": Number("samples of a step, over all devices", whole=True)}
SEQUENCE = {
    "sequence": Number(
        "tokens of a sample, of a model with a name or heads", whole=True
    )
}
# Of a transformer without a name: with these, `parameters` to `kept` are counted.
SHAPE = {
    "hidden": Number("numbers of a token between layers", whole=True),
    "heads": Number("of attention", whole=True),
    "kv_heads": Number("heads of keys and values, if fewer", whole=True),
    "inner": Number("numbers inside an MLP; by itself 4 x hidden", whole=True),
    "vocabulary": Number("tokens that are known; by itself 50304", whole=True),
    "gated": Number("1 if an MLP has three matrices (SwiGLU), else 0", whole=True),
}
NUMBERS = {**MODEL, **BATCH, **MACHINE, **CLUSTER}
TEXTS = ("name", "goal", "inside", "across", "cut")
NOTES = ("how", "missing")  # what bench says of its numbers
# Less than this is another unit: what is asked for, and how it is written.
LEAST = {
    "memory": (1e6, "bytes: 80e9 for 80 GB"),
    "rate": (1e9, "FLOP/s: 150e12 for 150 TFLOP/s"),
    "bandwidth": (1e6, "bytes a second: 2e12 for 2 TB/s"),
}
# Machines are joined by one of these, if nobody says by which: a slow one, a fast one.
USUAL = ("Ethernet 100G", "InfiniBand HDR")
# Of a step, if nobody says how many; transformers of images get more of them.
TOKENS, IMAGES = 2**20, {True: 1024, False: 256}


def of_model(name: str, sequence: float | None = None) -> dict[str, Any]:
    """Names and values of a model of the table."""
    row = tables.model(name)
    if sequence is not None and not (row.transformer and sequence >= 1):
        raise ValueError(f"sequence must be tokens of a transformer, got {sequence:g}")
    found = values_of(known_model(row, sequence and int(sequence)))
    text = row.transformer and row.kind != "vision"
    tokens = int(sequence or row.sequence) if text else None
    images = IMAGES[row.transformer]
    found["batch"] = max(1, TOKENS // tokens) if tokens else images
    each = f"sequences of {tokens:,} tokens" if tokens else "images"
    found["how"] = {"batch": f"{found['batch']} {each} a step are assumed"}
    found["how"]["state"] = "16-bit numbers are assumed, and Adam's in float32"
    return found


def of_sizes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Names and values of a transformer without a name, from its sizes.

    It has two tables of its vocabulary, and 2,048 tokens, if nothing else is said.

    Args:
        given: `layers`, names of `SHAPE`, and perhaps `sequence`.

    Raises:
        TypeError, ValueError: a size that misses or can't be; heads that don't divide
            `hidden`, or heads of keys and values that don't divide `heads`; numbers
            that follow from the sizes.
    """
    size = {"sequence": 2048, "vocabulary": 50304, "gated": 0, **given}
    missing = [name for name in ("layers", "hidden", "heads") if name not in size]
    if missing:
        options = ", ".join(f"--{name}" for name in missing)
        raise ValueError(f"a transformer needs hidden, heads and layers: add {options}")
    if said := sorted({"parameters", "flops", "handed", "kept"} & set(given)):
        raise ValueError(
            f"{said[0]} must not be given: it follows from hidden and heads"
        )
    size = {"inner": 4 * size["hidden"], "kv_heads": size["heads"], **size}
    for name in ("layers", "hidden", "heads", "kv_heads", "inner", "sequence"):
        whole(name, size[name], 10**7)
    whole("vocabulary", size["vocabulary"], 10**7)
    for whole_, part in (("hidden", "heads"), ("heads", "kv_heads")):
        if size[whole_] % size[part]:
            raise ValueError(f"{part} must divide {whole_}, {size[whole_]}, got "
                             f"{size[part]}")  # fmt: skip
    if size["gated"] not in (0, 1):
        raise ValueError(f"gated must be 0 or 1, got {size['gated']!r}")
    names = set(Shape._fields) & set(size)
    sizes = {name: size[name] for name in names} | {"gated": bool(size["gated"])}
    model = of_shape("your transformer", Shape(tied=False, **sizes))
    found = values_of(model)
    found["batch"] = max(1, TOKENS // size["sequence"])
    billions = model.parameters / 1e9
    found["how"] = {
        "batch": f"{found['batch']} sequences of {size['sequence']:,} tokens a step "
        "are assumed",
        "state": "16-bit numbers are assumed, and Adam's in float32",
        "parameters": f"{billions:.3g} billion, counted from the sizes, with a "
        f"vocabulary of {size['vocabulary']:,} twice",
    }
    return found


def values_of(model: Model) -> dict[str, Any]:
    """Names and values of a model."""
    names = [field.name for field in dataclasses.fields(model)]
    return {name: getattr(model, name) for name in names}


def of_gpu(
    row: tables.Gpu, model: Mapping[str, Any], gpus: int, nodes: int = 1
) -> dict[str, Any]:
    """Names and values of machines with so many of these GPUs each, for a model."""
    found = {"memory": row.memory, "bandwidth": row.bandwidth, "inside": row.inside}
    found["sixteen"] = row.sixteen
    how = {}
    if model.get("half") and not row.halves:
        wide = {"half": False, "sent": 4.0}
        wide |= {name: 2 * model[name] for name in ("handed", "kept")}
        model, found = {**model, **wide}, found | wide
        how["state"] = f"32-bit numbers are assumed: {row.name} is no faster in 16 bits"
    if model.get("shape") is not None:
        rate, said = row.rate(transformer=True)
        names = " and ".join(twin.name for twin in row.twins)
        said += f"; it has the same peak as {names}: what differs here is the run" * (
            names != ""
        )
    elif model.get("flops") and model.get("kept"):
        rate, said = row.image_rate(model["flops"], model["kept"])
    else:
        rate, said = row.rate(transformer=False)
    how["rate"] = f"{words.number(rate / 1e12)} TFLOP/s, {said}"
    found |= {"rate": rate, "how": how}
    price = row.price(gpus * nodes, together=gpus)
    if not price:
        found["price"] = 0.0
        found["how"]["price"] = "none is known: say --price, dollars an hour"
        return found
    found |= {"price": price.each, "at_once": price.devices}
    lots = f", {price.devices} at once: all are billed" * (price.devices > 1)
    said = f"${price.each:.2f} an hour for one{lots}; {price.provider}, {price.date}"
    found["how"]["price"] = said
    return found


def check_board(row: tables.Gpu, gpus: Any, nodes: Any = None) -> str:
    """Return what is strange about so many GPUs in each machine; "" if nothing.

    Args:
        row: the GPU.
        gpus: in each machine.
        nodes: machines; None if nobody said how many.

    Raises:
        ValueError: nobody said how many machines, and one board has fewer.
    """
    if row.board is None or not isinstance(gpus, int) or gpus <= row.board:
        return ""
    if nodes is None:
        least = -(-gpus // row.board)
        many = next(n for n in range(least, gpus + 1) if gpus % n == 0)
        raise ValueError(
            f"gpus must be at most {row.board} in a machine of {row.name}, got {gpus}: "
            f"say --nodes {many} --gpus {gpus // many}, or --nodes 1 if one has them"
        )
    where = f"each of {nodes} machines" if nodes != 1 else "one machine"
    return f"{gpus} in {where}, though a board of {row.name} has {row.board}"


def link_of(name: str, said: str | Sequence[float]) -> Link:
    """A link by its name, or from its latency and bandwidth.

    Raises:
        ValueError: no link of this name, and not two numbers that can be.
    """
    known = tables.named(said, tables.links()) if isinstance(said, str) else None
    if known:
        return known.link
    try:
        if isinstance(said, Mapping):
            raise TypeError("an object has no order")
        link = Link(*map(float, said.split(",") if isinstance(said, str) else said))
    except (TypeError, ValueError, OverflowError) as wrong:
        raise ValueError(
            f"{name} must be one of {', '.join(LINKS)}, or seconds above or at 0 and "
            f"bytes a second above 0, got {str(said):.80}"
        ) from wrong
    if isinstance(said, str):  # a measured one, of small messages, may be slow
        _check_unit(name, link.bandwidth, 1e5, "seconds, bytes a second: 5e-6,64e9")
    return link


def _check_unit(name: str, value: float, least: float, asked: str) -> None:
    if 0 < value < least:
        raise ValueError(f"{name} must be in {asked}; got {value:g}")


def settings_of(given: Mapping[str, Any]) -> Iterator[tuple[str, Setting]]:
    """Settings from names and values: one, or one for each usual link across.

    Yields:
        The link between machines if it was not said, else an empty text; a setting.
    """
    if given.get("nodes", 1) == 1 or given.get("across") is not None:
        yield "", setting_of(given)
        return
    for name in USUAL:
        yield name, setting_of({**given, "across": name})


def setting_of(given: Mapping[str, Any]) -> Setting:
    """A setting from names and values, as a file or the options have them.

    Raises:
        TypeError, ValueError: names that miss, and what `Setting` and its parts
            refuse; the message names the option.
    """
    filled = {name: number.default for name, number in NUMBERS.items()}
    filled |= {"inside": None, "goal": GOALS[0], "name": "your model", "cut": True}
    filled |= {"shape": None, "half": False, "engines": (), "sixteen": SIXTEEN[0]}
    filled |= {name: value for name, value in given.items() if value is not None}
    if not isinstance(filled["cut"], bool):
        raise TypeError(f"cut must be true or false, got {filled['cut']!r}")
    if not filled["cut"]:  # nobody cuts it, so nobody asks
        filled |= {name: filled[name] or 1 for name in ("layers", "handed")}
    _check_missing(filled)
    for name, number in NUMBERS.items():
        value = filled[name]
        if number.whole and isinstance(value, float) and value.is_integer():
            filled[name] = int(value)  # a file may say 1e3
    for name, (least, asked) in LEAST.items():
        measured = name in filled.get("how", {})  # of a small model it may be little
        if isinstance(filled[name], float | int) and not measured:
            _check_unit(name, filled[name], least, asked)
    across = filled.get("across") or filled["inside"]
    wire = tables.named(str(filled.get("across")), tables.links())
    if wire and given.get("cards") is None:
        filled["cards"] = _cards(wire.cards or 1, filled["gpus"])
    cluster = Cluster(
        inside=link_of("inside", filled["inside"]),
        across=link_of("across", across),
        **_part(filled, CLUSTER),
    )
    names = [field.name for field in dataclasses.fields(Model)]
    model = Model(**{n: filled[n] for n in names if n in filled})
    machine = Machine(cluster, **_part(filled, MACHINE), sixteen=filled["sixteen"])
    if filled["goal"] == "money" and not machine.price:
        raise ValueError("price is needed for money: give --price, dollars an hour")
    return Setting(model, machine, filled["batch"], filled["goal"], filled["engines"])


def _cards(usual: int, gpus: Any) -> int:
    """As many network cards as usual, if these GPUs share them out evenly."""
    whole = isinstance(gpus, int) and gpus > 0
    return max(c for c in range(1, usual + 1) if whole and gpus % c == 0 or c == 1)


def _part(filled: Mapping[str, Any], numbers: Mapping[str, Number]) -> dict[str, Any]:
    return {name: filled[name] for name in numbers}


def _check_missing(filled: Mapping[str, Any]) -> None:
    """Refuse a setting in which something is not said; bench may have said why."""
    names = sorted(k for k in (*NUMBERS, "inside") if filled[k] is None)
    if names:
        why = filled.get("missing", {})
        said = [f"{name} ({why[name]})" if name in why else name for name in names]
        options = ", ".join("--" + name.replace("_", "-") for name in names)
        model, gpu = {*names} & {*MODEL}, {*names} & {"memory", "rate", "inside"}
        ways = [f"give {options}"]
        ways += ["or a model's name"] * bool(model) + ["or --gpu"] * bool(gpu)
        more = " (manygpu choose --list)" if len(ways) > 1 else ""
        raise ValueError(f"missing: {', '.join(said)}; {', '.join(ways)}{more}")
