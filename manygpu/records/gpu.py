"""The record of a run on GPUs: short measurements of what six pages ask.

`experiments/gpu_records.py` makes it; `manygpu.records.gpu_record` says what is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, NamedTuple

from manygpu import here
from manygpu.records.fields import check_choice, check_fields, check_range

NAME = "gpu"
NONE = "this needs several GPUs: run the page on a machine that has them"
EXPERIMENT = {"hardware": str, "devices": int}
RUN = {"question": str, "measure": str, "values": list}
MOST = 1e6  # no ratio, and no rate in GB/s, is above it


class Measure(NamedTuple):
    """What a number says, with a place for it, and how it is written."""

    text: str
    spec: str = ".2f"


# By the page that asks; what pages measure of their own goes by the same names.
QUESTIONS = {
    "all-reduce": {
        "large": Measure("summing 16 MiB takes {} times as long as 4 bytes", ".1f"),
        "rate": Measure("of 16 MiB, {} GB a second are summed"),
    },
    "why-slower": {
        "eager": Measure("an eager step on two takes {} of one's time"),
        "compiled": Measure("a compiled one {}"),
    },
    "hiding-communication": {
        "buckets": Measure("in buckets a step takes {} of its time with one message"),
        "free": Measure("without any message {}"),
    },
    "feeding-the-devices": {
        "data": Measure("pictures alone take {} of the steps' time alone"),
        "both": Measure("both, prefetched, {} of the longer one's"),
    },
    "mixed-precision": {
        "product": Measure("a product in bfloat16 takes {} of float32's time"),
        "lenet": Measure("LeNet's gradients {}"),
    },
    "how-choose-decides": {
        "two": Measure("the engine's step of LeNet on two takes {} of its forecast"),
    },
}


def check(record: dict[str, Any]) -> None:
    """Refuse a record with what no page asks, or with numbers that can't be.

    Raises:
        ValueError: the message names the place and what is wrong there.
    """
    experiment, seen = record["experiment"], set()
    check_fields("record.experiment", experiment, EXPERIMENT)
    check_range("record.experiment.devices", experiment["devices"], 1, 2**20)
    for i, run in enumerate(record["runs"]):
        place = f"record.runs[{i}]"
        check_fields(place, run, RUN)
        check_choice(f"{place}.question", run["question"], (*QUESTIONS,))
        known = (*QUESTIONS[run["question"]],)
        check_choice(f"{place}.measure", run["measure"], known)
        if not run["values"] or any(type(v) is not float for v in run["values"]):
            raise ValueError(f"{place}.values must be floats, got {run['values']}")
        for value in run["values"]:
            check_range(f"{place}.values", value, 1e-6, MOST)
        what = run["question"], run["measure"]
        if what in seen:
            raise ValueError(f"{place} says {what} a second time")
        seen.add(what)


def said(
    record: Mapping[str, Any] | None,
    question: str,
    own: Mapping[str, Real | Iterable[Real]],
) -> str:
    """What a record, or None, has for a question, beside this machine's numbers.

    Raises:
        ValueError: no such question, or no such measure of it.
    """
    check_choice("question", question, (*QUESTIONS,))
    for name in own:
        check_choice("own", name, (*QUESTIONS[question],))
    if record is None:
        texts = ((*QUESTIONS[question][name], value) for name, value in own.items())
        told = [text.format(here.measured(value, spec)) for text, spec, value in texts]
        return f"on this machine, {', and '.join(told)}" if told else NONE
    found = []
    for run in record["runs"]:
        if run["question"] == question:
            name = run["measure"]
            text, spec = QUESTIONS[question][name]
            value = here.measured(run["values"], spec)
            beside = f", here {here.measured(own[name], spec)}" if name in own else ""
            found.append(text.format(value) + beside)
    where = f"on {record['experiment']['hardware']} ({record['date']})"
    return f"{where}: {'; '.join(found) or 'this was not measured'}"
