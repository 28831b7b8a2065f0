"""The pipeline explorer: choose a schedule and its sizes, see what the devices do.

Python draws the picture for the values where the controls start. With it comes every
plan that they offer, made by the chapter's schedules. A script in the same output only
replays them: when each operation runs if it takes so long, what that is in numbers,
and how it looks::

    pipeline_explorer()
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache

import matplotlib.pyplot as plt
from IPython.display import HTML

from manygpu import figures
from manygpu.scratch.splitting.pipeline import (
    Op,
    Plan,
    draw_ops,
    gpipe,
    one_forward_one_backward,
    orders_of,
    planned,
)
from manygpu.scratch.splitting.smaller_bubble import interleaved, zero_bubble
from manygpu.trace.spans import Span
from manygpu.widgets.calculator import Number, Pick, calculator_html, first_values
from manygpu.widgets.parts import packed

ROUNDS = 2  # of the interleaved schedule: as many parts of a stage a device has
NAMES = {
    "gpipe": "GPipe",
    "one_forward_one_backward": "1F1B",
    "interleaved": f"Interleaved, {ROUNDS} rounds",
    "zero_bubble": "Zero bubble (ZB-H1)",
}
MADE = (gpipe, one_forward_one_backward, zero_bubble)
MAKERS = {made.__name__: made for made in MADE}
FIRST = "one_forward_one_backward"
STAGES = Number("stages", "Stages (devices)", 4, 1, 8, whole=True, step=1)
MICRO_BATCHES = Number("micro_batches", "Micro-batches", 8, 1, 32, whole=True, step=1)
FIELDS = (
    Pick("schedule", "Schedule", {text: name for name, text in NAMES.items()}, FIRST),
    STAGES,
    MICRO_BATCHES,
    Number("forward", "Forward cost", 1, 1, 4, "units", step=0.5),
    Number("backward", "Backward cost", 2, 1, 4, "units", step=0.5),
)
# Of where the controls start, as the script says it: tests hold the two together.
SAID = "Bubble 27%, 33 units, at most 4 micro-batches in flight on device 0."
ABOVE = """\
<p class="note">GPipe and 1F1B, whatever a pass costs: (stages - 1) / (micro-batches + \
stages - 1) = 3/11 = 27%.</p><p class="calculator-legend">\
<span class="part-0">forward</span><span class="part-1">backward</span>\
<span class="waiting">waiting</span></p>"""
LABEL = (
    "1F1B as a Gantt chart: 4 stages, 8 micro-batches, a row a device, a box an "
    "operation"
)


def plan(schedule: str, stages: int, micro_batches: int) -> Plan:
    """A schedule's plan. Interleaved: each stage is cut into `ROUNDS` parts.

    Args:
        schedule: one of `NAMES`.
        stages: of which each device has one.
        micro_batches: that a batch is cut into.
    """
    if schedule == "interleaved":
        return interleaved(ROUNDS * stages, micro_batches, stages)
    return MAKERS[schedule](stages, micro_batches)


def first_spans(schedule: str) -> list[Span]:
    """When each operation runs where the controls start, in units of time."""
    _, stages, micro_batches, forward, backward = first_values(FIELDS).values()
    made = plan(schedule, stages, micro_batches)
    return planned(made, forward=forward, backward=backward)


def pipeline_explorer(caption: str = "", name: str = "") -> HTML:
    """Return the explorer: controls, numbers, picture and script.

    Where no JavaScript runs, the first picture and its numbers are seen, without the
    controls.

    Args:
        caption: what all readers are told below it; the book numbers it.
        name: prose links to [Figure](#figure-name); the book adds the number.

    Raises:
        ValueError: no link could hold `name`.
    """
    most = {field.name: field.most for field in (STAGES, MICRO_BATCHES)}
    return calculator_html(
        "explorer",
        "Pipeline explorer",
        FIELDS,
        SAID,
        results=(),
        rows=(),
        data={"names": NAMES, "most": most, "packed": packed_plans()},
        fills=("forward", "backward", "weights"),
        picture=ABOVE + _picture(),
        caption=caption,
        name=name,
    )


def _picture() -> str:
    """The picture for those who have no script: the book's one Gantt chart."""
    # The axis is the same for all schedules: a shorter one is seen to be shorter.
    longest = max(span.end for name in NAMES for span in first_spans(name))
    fig, ax = figures.subplots(size=(7.2, 0.9 + 0.3 * STAGES.value))
    draw_ops(first_spans(FIRST), ax, "time units")
    ax.set_xlim(0, longest)
    svg = figures.to_svg(fig, LABEL)
    plt.close(fig)
    return svg


def as_word(order: Sequence[Op], stages: int) -> str:
    """A device's operations as a word, such as "F0F1B0f0", which the script spells out.

    Small letters: the second part of an interleaved stage.
    """
    kinds = [op.kind if op.stage < stages else op.kind.lower() for op in order]
    pairs = zip(kinds, order, strict=True)
    return "".join(f"{kind}{op.micro_batch}" for kind, op in pairs)


@cache
def packed_plans() -> str:
    """All plans that the controls offer, for the script to replay.

    One a setting, schedule by schedule, in it stages before micro-batches; each has a
    word a device, see `as_word`.
    """
    ranges = [range(field.least, field.most + 1) for field in (STAGES, MICRO_BATCHES)]
    words = []
    for name, p, m in itertools.product(NAMES, *ranges):
        words.append([as_word(order, p) for order in orders_of(plan(name, p, m))])
    return packed(words)
