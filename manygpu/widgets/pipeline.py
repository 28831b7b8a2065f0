"""The pipeline explorer: choose a schedule and its sizes, see what the devices do.

Python draws the picture for the default setting and writes its numbers beside it. With
it comes every plan that the controls offer, made by the chapter's schedules. A script
in the same output only replays them: when each operation runs if it takes so long,
what that is in numbers, and how it looks::

    pipeline_explorer()
"""

from __future__ import annotations

import html
import itertools
import math
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from numbers import Real

import matplotlib.pyplot as plt
from IPython.display import HTML, display

from manygpu import _page, figures
from manygpu.scratch.splitting.pipeline import (
    Op,
    bubble,
    earliest_spans,
    gpipe,
    in_flight,
    one_forward_one_backward,
    orders_of,
)
from manygpu.scratch.splitting.smaller_bubble import interleaved, zero_bubble
from manygpu.trace.gantt import gantt
from manygpu.trace.spans import Span
from manygpu.widgets.stepper import static_text

ROUNDS = 2  # of the interleaved schedule: as many parts of a stage a device has
NAMES = {
    "gpipe": "GPipe",
    "one_forward_one_backward": "1F1B",
    "interleaved": f"Interleaved, {ROUNDS} rounds",
    "zero_bubble": "Zero bubble",
}
# What the sliders offer: least, most, step.
LIMITS = {
    "stages": (1, 8, 1),
    "micro_batches": (1, 32, 1),
    "forward": (1, 4, 0.5),
    "backward": (1, 4, 0.5),
}
# What a value is, said aloud with it.
UNITS = {
    "stages": "stages",
    "micro_batches": "micro-batches",
    "forward": "time units",
    "backward": "time units",
}
LABELS = {
    "stages": "Stages (devices)",
    "micro_batches": "Micro-batches",
    "forward": "Forward cost",
    "backward": "Backward cost",
}


@dataclass(frozen=True)
class Setting:
    """What the reader chooses; the defaults are where the explorer starts.

    Attributes:
        schedule: one of `NAMES`.
        stages: of which each device has one.
        micro_batches: that a batch is cut into.
        forward, backward: what one stage takes for a micro-batch, in units of time.

    Raises:
        TypeError: a size or cost that is no number.
        ValueError: no such schedule, or what the sliders don't offer.
    """

    schedule: str = "one_forward_one_backward"
    stages: int = 4
    micro_batches: int = 8
    forward: float = 1
    backward: float = 2

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, str) or self.schedule not in NAMES:
            raise ValueError(
                f"schedule {self.schedule!r} does not exist: choose from {[*NAMES]}"
            )
        for name, (least, most, step) in LIMITS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise TypeError(f"{name} must be a number, got {value!r}")
            if not least <= value <= most or value % step:
                raise ValueError(
                    f"{name} must be {least} to {most}, in steps of {step}, got "
                    f"{value!r}"
                )


def orders(setting: Setting) -> list[list[Op]]:
    """Each device's operations. Interleaved: each stage is cut into `ROUNDS` parts."""
    p, m = setting.stages, setting.micro_batches
    if setting.schedule == "interleaved":
        return orders_of(interleaved(ROUNDS * p, m, p))
    makers = (gpipe, one_forward_one_backward, zero_bubble)
    make = {maker.__name__: maker for maker in makers}[setting.schedule]
    return orders_of(make(p, m))


def spans(setting: Setting) -> list[Span]:
    """When each operation runs, in units of time.

    The two halves of zero bubble's backward pass take half its time each, the parts
    of an interleaved stage an equal share of the stage's.
    """
    parts = ROUNDS if setting.schedule == "interleaved" else 1
    halves = 2 if setting.schedule == "zero_bubble" else 1
    backward = setting.backward / parts / halves
    cost = {"F": setting.forward / parts, "B": backward, "W": backward}
    return earliest_spans(orders(setting), lambda op: cost[op.kind])


def pipeline_explorer(
    setting: Setting | None = None, caption: str = "", name: str = ""
) -> None:
    """Show the explorer: a picture, its numbers, and controls for both.

    Args:
        setting: where it starts; None for the defaults.
        caption: what all readers are told below it; the book numbers it.
        name: prose links to [Figure](#figure-name); the book adds the number.
    """
    display(HTML(explorer_html(setting, caption, name)))


def explorer_html(
    setting: Setting | None = None, caption: str = "", name: str = ""
) -> str:
    """Return the explorer: controls, numbers, picture and script.

    Where no JavaScript runs, the picture and the numbers of `setting` are seen,
    without the controls.

    Raises:
        TypeError: `setting` is no `Setting`.
        ValueError: no link could hold `name`.
    """
    setting = Setting() if setting is None else setting
    if not isinstance(setting, Setting):
        raise TypeError(f"setting must be a Setting, got {type(setting).__name__}")
    drawn, peaks = spans(setting), in_flight(orders(setting))
    options = "".join(
        f'<option value="{key}"{" selected" * (key == setting.schedule)}>'
        f"{html.escape(name)}</option>"
        for key, name in NAMES.items()
    )
    return f"""\
<figure class="manygpu-figure manygpu-pipeline"{_page.named(name)} \
style="{_colors()}"
 data-lm-suppress-shortcuts="true" data-plans="{packed_plans()}"
 aria-label="Pipeline explorer">
<style>{static_text("pipeline.css")}</style>
<div class="pipeline-controls" hidden>
<label class="pipeline-wide"><span>Schedule</span>
<select name="schedule">{options}</select></label>
{"".join(_slider(setting, name) for name in LIMITS)}
</div>
<p class="pipeline-setting">{_said(setting)}</p>
<p class="pipeline-result" aria-live="polite">{_result(setting, drawn, peaks)}</p>
<p class="pipeline-formula">{_formula(setting)}</p>
<p class="pipeline-legend"><span class="forward">forward</span>
<span class="backward">backward</span>
<span class="weights" hidden>backward: weights</span>
<span class="later" hidden>stronger: second half of each stage</span>
<span class="waiting">waiting</span></p>
<p class="pipeline-thin" hidden>Too narrow for their numbers: point at a box, or take \
fewer micro-batches.</p>
<div class="pipeline-picture">{_picture(setting, drawn)}</div>
<script>{static_text("pipeline.js")}</script>
{_page.caption("figcaption", caption)}</figure>"""


def _colors() -> str:
    """What each kind of work is filled and edged with, as variables of the style."""
    fills = {kind: figures.color(kind) for kind in ("forward", "backward", "weights")}
    return ";".join(
        f"--{kind}:{fill};--{kind}-edge:{figures.edge(fill)}"
        for kind, fill in fills.items()
    )


def _slider(setting: Setting, name: str) -> str:
    """A range with its value beside it. It says its value itself: <output> need not."""
    (least, most, step), value = LIMITS[name], getattr(setting, name)
    return (
        f'<label><span>{LABELS[name]}</span><input type="range" name="{name}" '
        f'aria-label="{LABELS[name]}" aria-valuetext="{value:g} {UNITS[name]}" '
        f'data-unit="{UNITS[name]}" min="{least}" max="{most}" step="{step}" '
        f'value="{value:g}" autocomplete="off">'
        f'<output aria-live="off">{value:g}</output></label>'
    )


def _said(setting: Setting) -> str:
    """The setting in words, for those who see no controls."""
    return (
        f"{NAMES[setting.schedule]}: {setting.stages} stages, "
        f"{setting.micro_batches} micro-batches, forward passes of "
        f"{setting.forward:g}, backward passes of {setting.backward:g} time units."
    )


def _result(setting: Setting, drawn: Sequence[Span], peaks: Sequence[int]) -> str:
    """The numbers in words, as the script writes them too."""
    most = max(peaks)
    plural = "" if most == 1 else "es"
    part = ", each in half a stage" if setting.schedule == "interleaved" else ""
    return (
        f"Bubble {math.floor(100 * bubble(drawn) + 0.5)}%, "
        f"{_short(max(s.end for s in drawn))} units, at most {most} "
        f"micro-batch{plural} in flight on device {peaks.index(most)}{part}."
    )


def _formula(setting: Setting) -> str:
    """The bubble of the plain schedules, after Huang et al. (2019)."""
    waits, all_of_it = setting.stages - 1, setting.micro_batches + setting.stages - 1
    return (
        "GPipe and 1F1B, whatever a pass costs: (stages - 1) / (micro-batches + stages "
        f"- 1) = {waits}/{all_of_it} = {math.floor(100 * waits / all_of_it + 0.5)}%."
    )


def _picture(setting: Setting, drawn: Sequence[Span]) -> str:
    """The picture for those who have no script: the book's one Gantt chart."""
    # The axis is the same for all schedules: a shorter one is seen to be shorter.
    everyone = [replace(setting, schedule=name) for name in NAMES]
    longest = max(span.end for each in everyone for span in spans(each))
    fig, ax = figures.subplots(size=(7.2, 0.9 + 0.3 * setting.stages))
    gantt(
        drawn,
        ax,
        label=lambda span: span.work.micro_batch,
        strong=lambda span: span.work.stage >= setting.stages,
        unit="time units",
    )
    ax.set(xlim=(0, longest), ylabel="device")
    label = (
        f"{NAMES[setting.schedule]} as a Gantt chart: {setting.stages} stages, "
        f"{setting.micro_batches} micro-batches, a row a device, a box an operation"
    )
    svg = figures.to_svg(fig, label)
    plt.close(fig)
    return svg


def _short(number: float) -> str:
    """A number of at most two decimals, as JavaScript would write it."""
    return f"{math.floor(100 * number + 0.5) / 100:g}"


def as_word(order: Sequence[Op], stages: int) -> str:
    """A device's operations as a word, a letter each, which the script spells out.

    F: the next micro-batch of its stage; B: the one that has been in flight longest;
    L: the one that came last; W: the one that has waited longest for its weights'
    gradients. Small letters: the second part of an interleaved stage.
    """
    flying: dict[int, list[int]] = {}
    letters = []
    for kind, stage, micro_batch in order:
        own = flying.setdefault(stage, [])
        letter = kind
        if kind == "F":
            own.append(micro_batch)
        elif kind == "B":
            letter = "B" if own[0] == micro_batch else "L"
            own.remove(micro_batch)
        letters.append(letter if stage < stages else letter.lower())
    return "".join(letters)


@cache
def packed_plans() -> str:
    """All plans that the controls offer, for the script to replay: deflated, base64.

    A line a setting, schedule by schedule, in it stages before micro-batches; in a
    line a word a device, see `as_word`.
    """
    lines = []
    for schedule, p, m in itertools.product(
        NAMES, _offered("stages"), _offered("micro_batches")
    ):
        of_devices = orders(Setting(schedule, p, m))
        lines.append("/".join(as_word(order, p) for order in of_devices))
    return b64encode(zlib.compress("\n".join(lines).encode(), 9)).decode()


def _offered(name: str) -> range:
    """The whole numbers that a slider offers."""
    least, most, step = LIMITS[name]
    return range(least, most + 1, step)
