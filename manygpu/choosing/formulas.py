"""The calculators' answers: a page's script finds them again as fields change.

Formulas of memory and of a step aren't there a second time: the script gets numbers
(`terms`), to multiply and add. Browser tests compare the two. Arguments have the names
of the page's fields, and the units of `Model` and `Machine`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from manygpu.choosing import cost, forecast
from manygpu.choosing.cost import Job
from manygpu.choosing.presets import ETHERNET, INFINIBAND, NVLINK, PCIE_3
from manygpu.choosing.question import Machine, Model, Setting, positive
from manygpu.costs import seconds
from manygpu.costs.layout import ALL, Layout
from manygpu.costs.memory import FLOAT32, MIXED, ROOM, Memory, Stored, fits, held
from manygpu.simulate import steps
from manygpu.simulate.cluster import Cluster, Link
from manygpu.simulate.works import whole as whole_number

# The guide's tables of several GPUs, by their number: how many times faster.
GUIDE = {
    "epochs": {1: 1.0, 2: 1.9, 4: 3.4, 8: 5.7},
    "ideal vs reality": {1: 1.0, 2: 1.8, 4: 3.2, 8: 5.6, 16: 9.6},
}
PRECISIONS = {"float32": FLOAT32, "mixed": MIXED}
ZERO = (0, 1, 2, 3)  # its stages (Rajbhandari et al. 2020)
PARTS = ("parameters", "gradients", "optimizer", "gathered", "activations")
# NVIDIA's A100 data sheet: 600 GB/s, both directions together.
NVLINK_3 = Link(NVLINK.latency, 300e9)
ETHERNET_25 = Link(ETHERNET.latency, 25e9 / 8)
ETHERNET_10 = Link(ETHERNET.latency, 10e9 / 8)
# One machine each, and how it is joined to others like it. The second one is AWS's
# p4d.24xlarge: A100 devices, 400 Gbit/s of network for all eight.
INTERCONNECTS = {
    "8 by PCIe 3, Ethernet 100G between": Cluster(1, 8, PCIE_3, ETHERNET),
    "8 by NVLink 3, 4 x Ethernet 100G": Cluster(1, 8, NVLINK_3, ETHERNET, cards=4),
    "8 by NVLink 4, Ethernet 100G between": Cluster(1, 8, NVLINK, ETHERNET),
    "8 by NVLink 4, 8 x InfiniBand NDR": Cluster(1, 8, NVLINK, INFINIBAND, cards=8),
    "1 a machine, Ethernet 100G": Cluster(1, 1, *[ETHERNET] * 2),
    "1 a machine, Ethernet 25G": Cluster(1, 1, *[ETHERNET_25] * 2),
    "1 a machine, Ethernet 10G": Cluster(1, 1, *[ETHERNET_10] * 2),
}
FITS = ("no", "in micro-batches", "yes")
HOURS_A_YEAR = 365.25 * 24
OTHERS = {"flops": 1.0, "handed": 1.0}  # what a replica's memory doesn't ask
NEAR = 1e-9  # a share of a price: what rounding may do
Row = dict[str, Any]
Term = tuple[float, list[str], list[str]]  # a number, times these, over those


def counts(devices: int) -> list[int]:
    """1, 2, 4, ... devices, and at last all of them."""
    powers = (2**k for k in range(devices.bit_length()))
    return sorted({*powers, devices})


def link_numbers(name: str) -> dict[str, float]:
    """What `scaling` asks of the links, for one of `INTERCONNECTS`."""
    one = INTERCONNECTS[name]
    found = {"gpus": one.gpus, "cards": one.cards}
    found |= {"latency": one.inside.latency, "link": one.inside.bandwidth}
    far = {"far_latency": one.across.latency, "far_link": one.across.bandwidth}
    return found | far


def scaling(
    *,
    parameters: float,
    flops: float,
    layers: int,
    sent: float,
    kept: float,
    batch: int,
    each: bool,
    devices: int,
    gpus: int,
    cards: int,
    latency: float,
    link: float,
    far_latency: float,
    far_link: float,
    rate: float,
    bandwidth: float,
    capacity: float,
    launch: float,
    price: float,
    at_once: int,
) -> list[Row]:
    """Data parallel training on 1, 2, 4, ... devices, a row each.

    Numbers of devices that can't share the batch, or are no whole machines, are left
    out.

    Args:
        parameters, flops, layers, sent, kept: see `Model`; Adam keeps 16 bytes a
            parameter.
        batch: samples of a step; of each device, if `each`.
        each: the batch grows with the devices; else they share it out.
        devices: at most.
        gpus, cards: devices and network cards of a machine.
        latency, link: seconds, and bytes a second, between devices of a machine.
        far_latency, far_link: the same of a card, between machines.
        rate, bandwidth, launch, price: see `Machine`.
        capacity: bytes of a device.
        at_once: devices that are rented out together.

    Raises:
        ValueError: `devices` is no number of whole machines, or doesn't divide the
            batch; `cards` don't divide `gpus`.
    """
    for name, value in (("batch", batch), ("devices", devices), ("at_once", at_once)):
        whole_number(name, value)
    one = Cluster(1, gpus, Link(latency, link), Link(far_latency, far_link), cards)
    whole = [n for n in counts(devices) if n <= one.gpus or n % one.gpus == 0]
    even = [n for n in whole if each or batch % n == 0]
    if even[-1] != devices:
        raise ValueError(
            f"devices must divide the batch of {batch}, and fill machines of "
            f"{one.gpus}, got {devices}"
        )
    cluster = replace(one, nodes=max(1, devices // one.gpus))
    machine = Machine(cluster, capacity, rate, bandwidth, launch, price)
    model = Model("yours", layers, parameters, flops, 1.0, kept, sent=sent)
    rows: list[Row] = []
    for n in even:
        setting = Setting(model, machine, batch * n if each else batch)
        taken = float(forecast.seconds(setting, Layout(n)))
        first = rows[0]["seconds"] if rows else taken
        speedup = first / taken * (n if each else 1)
        paid = cost.billed(n, at_once)
        dollars = paid * price * taken / 3600 * 1e6 / setting.batch
        row = {"devices": n, "batch": setting.batch, "seconds": taken}
        row |= {"speedup": speedup, "efficiency": speedup / n}
        row |= {"billed": paid, "dollars": dollars}
        rows.append(row | _held(setting, n))
    return rows


def _held(setting: Setting, n: int) -> Row:
    """Bytes of a whole replica, its samples at once and one at a time; does it fit?"""
    sizes = [
        float(forecast.memory(setting, Layout(n, micro_batches=m)))
        for m in (1, setting.batch / n)
    ]
    fitting = [size <= setting.machine.usable for size in sizes]
    return {"held": sizes[0], "least": sizes[1], "fits": FITS[sum(fitting)]}


def replica_terms() -> dict[str, list[Term]]:
    """What `scaling` says is held, as sums: of the state, and of one sample."""

    def ask(part: Callable[[Memory], float], **values: float) -> float:
        model = Model("any", 3, **{"parameters": 1.0, "kept": 1.0} | values, **OTHERS)
        return float(part(held(model.stored, Layout(1), 1, model.each)))

    state = functools.partial(ask, lambda found: found.total - found.activations)
    sample = functools.partial(ask, lambda found: found.activations)
    return {"state": terms(state, ["parameters"]), "sample": terms(sample, ["kept"])}


def step_terms() -> dict[str, Any]:
    """What `scaling` says a step takes, as sums.

    A layer's `forward`, `backward`, `update`; its `sums` in a `ring` of n devices, or
    in two `levels`: of `nodes` machines, with `per` devices a card. Then the `chains`:
    the step is the longest of them. Each is asked for where it is the longest.
    """
    fast = Link(0.0, 1.0)

    def layer(part: Callable[[Setting], float], **v: float) -> float:
        given = {"parameters": 1.0, "flops": 1.0, "rate": 1.0, "bandwidth": 1.0}
        given |= {"launch": 0.0, "samples": 1} | v
        model = Model("any", v["layers"], given["parameters"], given["flops"], 1.0, 1.0)
        numbers = (given[name] for name in ("rate", "bandwidth", "launch"))
        machine = Machine(Cluster(1, 1, fast, fast), 1.0, *numbers)
        return float(part(Setting(model, machine, given["samples"])))

    def passes(i: int) -> Callable[[Setting], float]:
        return lambda setting: forecast.passes(setting, Layout(1))[i]

    def ring(n: int, latency: float, link: float, **v: float) -> float:
        size = v["sent"] * v["parameters"] / v["layers"]
        return steps.ring_seconds(n, size, Link(latency, link))

    def levels(nodes: int, per: int, cards: int, **v: float) -> float:
        size = v["sent"] * v["parameters"] / v["layers"]
        links = Link(v["latency"], v["link"]), Link(v["far_latency"], v["far_link"])
        cluster = Cluster(nodes, per * cards, *links, cards)
        return steps.hierarchical_seconds(cluster, size)

    def chain(**scales: float) -> list[Term]:
        def ask(layers: int, **v: float) -> float:
            f, b, sums, u = (
                scales.get(name, 1.0) * v.get(name, 0.0)
                for name in ("forward", "backward", "sums", "update")
            )
            turn = layers * (f + b)
            pieces = seconds.Pieces(turn, turn, layers, f, b, sums, u)
            return float(seconds.parts(pieces, Layout(2)).seconds)

        names = [name for name in scales if scales[name]]
        found = terms(ask, [p for n in names for p in (n, f"layers {n}")])
        return [
            (number / math.prod(scales.get(name, 1.0) for name in above), above, below)
            for number, above, below in found
        ]

    work, size = ["launch", "samples flops / layers rate"], "sent parameters / layers"
    near = [f"{size} link", f"{size} link per cards"]
    far = [f"{size} far_link cards", f"{size} far_link cards nodes"]
    waits = ["latency", "per cards latency", "far_latency", "nodes far_latency"]
    return {
        "forward": terms(functools.partial(layer, passes(0)), work),
        "backward": terms(functools.partial(layer, passes(1)), work),
        "update": terms(
            functools.partial(layer, forecast.update_seconds),
            ["parameters / layers bandwidth"],
        ),
        "ring": terms(ring, ["latency", "n latency", f"{size} link", f"{size} link n"]),
        "levels": terms(levels, [*waits, *near, *far]),
        "chains": [
            chain(forward=1, backward=1, sums=0, update=1),
            chain(forward=1, backward=1e-4, sums=1, update=100),
            chain(forward=1, backward=1e4, sums=1, update=1e-4),
            chain(forward=1, backward=1, sums=1e4, update=1),
        ],
    }


def memory(
    *,
    parameters: float,
    layers: int,
    kept: float,
    handed: float,
    batch: int,
    devices: int,
    micro_batches: int,
    precision: str,
    recompute: bool,
    capacity: float,
) -> list[Row]:
    """What a device of a data parallel group holds, a row for each stage of ZeRO.

    Args:
        parameters, layers: see `Model`.
        kept, handed: see `Model`; in numbers of 16 bits, float32 takes twice as much.
        batch: samples of a step, over all devices.
        devices: that share batch and state.
        micro_batches: one after the other, on each device.
        precision: a key of `PRECISIONS`; "mixed" keeps float32 copies with the state.
        recompute: activations are computed again for the backward pass.
        capacity: bytes of a device.

    Raises:
        TypeError, ValueError: a number that is no size, no such precision, or a batch
            that can't be shared out evenly.
    """
    counted = {"layers": layers, "batch": batch, "devices": devices}
    for name, value in (counted | {"micro_batches": micro_batches}).items():
        whole_number(name, value)
    sizes = {"parameters": parameters, "kept": kept, "handed": handed}
    for name, value in (sizes | {"capacity": capacity}).items():
        positive(name, value)
    _check_key("precision", precision, PRECISIONS)
    if batch % (devices * micro_batches):
        raise ValueError(
            f"batch must be a multiple of {devices} devices x {micro_batches} "
            f"micro-batches, got {batch}"
        )
    given = parameters, layers, kept, handed, devices, precision, recompute
    at_once, rows = batch // (devices * micro_batches), []
    for zero in ZERO:
        found, one = (_stage(*given, zero, samples=n) for n in (at_once, 1))
        room = ROOM * capacity - (one.total - one.activations)
        row = {"zero": zero} | {part: float(getattr(found, part)) for part in PARTS}
        row |= {"total": float(found.total), "fits": bool(fits(found, capacity))}
        rows.append(row | {"most": max(0, math.floor(room / one.activations))})
    return rows


def _check_key(name: str, value: str, known: Sequence[str] | dict) -> None:
    """Refuse a name that isn't known."""
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def _stage(
    parameters: float,
    layers: int,
    kept: float,
    handed: float,
    devices: int,
    precision: str,
    recompute: bool,
    zero: int,
    samples: float = 1,
) -> Memory:
    """What `memory` says of a stage of ZeRO and so many samples at once."""
    each = PRECISIONS[precision]
    wide = each.weight / 2  # of a number, against 16 bits
    activations = 0.0, wide * kept / layers, 0.0, wide * handed
    stored = Stored(layers, parameters / layers, *activations)
    layout = Layout(devices, zero=zero, recompute=ALL * recompute)
    return held(stored, layout, samples, each)


def memory_terms(precision: str, recompute: bool, zero: int) -> dict[str, list[Term]]:
    """`memory` as sums for a script, of more than one device.

    Of the activations of one sample; "gathered" is at most what "of all" says.
    """
    chosen = {"precision": precision, "recompute": recompute, "zero": zero}
    beside = {"layers": 3, "kept": 1.0, "handed": 1.0, **chosen}

    def part(name: str, products: Sequence[str], **fixed: float) -> list[Term]:
        def ask(**values: float) -> float:
            given = {"parameters": 1.0, "devices": 2} | beside | fixed | values
            return float(getattr(_stage(**given), name))

        return terms(ask, products)

    state = "parameters", "parameters / devices"
    found = {name: part(name, state) for name in PARTS[:3]}
    found["gathered"] = part("gathered", ["parameters / layers"])
    found["of all"] = part("gathered", ["parameters"], layers=1)
    kept = ["kept", "kept / layers", "layers handed"]
    return found | {"activations": part("activations", kept)}


def terms(ask: Callable[..., float], products: Sequence[str]) -> list[Term]:
    """Return numbers with which products of arguments add up to what `ask` says.

    They are found by asking. A product is written as "a b / c"; a term is its number,
    the factors above the line, and those below.

    Raises:
        ValueError: there are no such numbers.
    """
    sides = [[s.split() for s in f"{p} / ".split(" / ")[:2]] for p in products]
    names = sorted({name for both in sides for side in both for name in side})
    draw = np.random.default_rng(0)
    asked = [
        dict(zip(names, draw.integers(2, 60, len(names)).tolist(), strict=True))
        for _ in range(3 * len(products))
    ]
    worth = [
        [
            math.prod(v[n] for n in up) / math.prod(v[n] for n in down)
            for up, down in sides
        ]
        for v in asked
    ]
    said = [ask(**values) for values in asked]
    numbers = np.round(np.linalg.lstsq(worth, said, rcond=None)[0], 7)
    if not np.allclose(worth @ numbers, said, rtol=1e-9):
        raise ValueError(f"{list(products)} don't add up to what is asked")
    return [(float(n), *both) for n, both in zip(numbers, sides, strict=True) if n]


def spending(
    *,
    price: float,
    at_once: int,
    owned: bool,
    purchase: float,
    years: float,
    use: float,
    hours: float,
    speedups: str,
    efficiency: float,
    devices: int,
    goodput: float,
    waiting: float,
    watts: float,
    cents: float,
    overhead: float,
) -> tuple[list[Row], list[tuple[float, int]]]:
    """What a job costs on 1, 2, 4, ... devices, and from which waiting each is best.

    Args:
        price: dollars an hour of a device that is rented, its energy included.
        at_once: devices that are rented out together: whole lots are billed.
        owned: devices are bought; an hour costs purchase / hours in use, and energy.
        purchase: dollars for a device, with its share of the machine around it.
        years, use: that it serves, and the share of their hours that it works.
        hours: of the job on one device that nobody takes away.
        speedups: a key of `GUIDE`, or "own".
        efficiency: with "own", what each doubling of the devices keeps, up to 1.
        devices: at most.
        goodput: the share of the time that is not lost with spot devices.
        waiting: dollars that an hour costs you until the result is there.
        watts: of a device. This and the next two count for owned ones only.
        cents: of a kilowatt-hour.
        overhead: what the building draws for each watt of the devices.

    Returns:
        A row for each number of devices; (waiting, devices) as `cost.worth_from` has.

    Raises:
        TypeError, ValueError: a number that is none, a share above 1, or a key that is
            not known.
    """
    whole_number("at_once", at_once)
    whole_number("devices", devices)
    _check_key("speedups", speedups, ["own", *GUIDE])
    shares = {"use": use, "goodput": goodput, "efficiency": efficiency}
    for name, value in ({"years": years, "hours": hours} | shares).items():
        positive(name, value)
    for name, value in shares.items():
        if value > 1:
            raise ValueError(f"{name} must be above 0 and at most 1, got {value}")
    spent = {"price": price, "purchase": purchase, "waiting": waiting}
    drawn = {"watts": watts, "cents": cents, "overhead": overhead}
    for name, value in (spent | drawn).items():
        positive(name, value, or_zero=True)
    if speedups == "own":
        faster = {n: n * efficiency ** math.log2(n) for n in counts(devices)}
    else:
        faster = {n: s for n, s in GUIDE[speedups].items() if n <= devices}
    an_hour = purchase / (years * HOURS_A_YEAR * use) if owned else price
    rows, jobs = [], []
    for n, speedup in faster.items():
        seconds = 3600 * hours / speedup / goodput
        paid = n if owned else cost.billed(n, at_once)
        job = Job(str(n), n, seconds, paid * an_hour)
        energy = cost.energy_dollars(job, watts, cents, overhead) if owned else 0.0
        whole = job.dollars_an_hour + energy / job.hours
        jobs.append(job._replace(dollars_an_hour=whole))
        row = {"devices": n, "billed": paid, "speedup": speedup, "hours": job.hours}
        row |= {"rent": job.dollars, "energy": energy, "waiting": waiting * job.hours}
        rows.append(row | {"dollars": job.dollars + energy + row["waiting"]})
    return rows, [(start, job.devices) for start, job in cost.worth_from(ahead(jobs))]


def ahead(jobs: Sequence[Job]) -> list[Job]:
    """Those for which no faster job is as cheap, but for rounding."""
    return [
        job
        for job in jobs
        if not any(
            other.hours < job.hours and other.dollars <= job.dollars * (1 + NEAR)
            for other in jobs
        )
    ]
