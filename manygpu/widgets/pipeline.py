"""The pipeline explorer: choose a schedule and its sizes, see what the devices do.

Python draws the picture for the default setting and writes its numbers beside it. A
script in the same output does for every other setting what the chapter on pipelines
does: its functions have the same names, and its numbers are the same::

    pipeline_explorer()
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real

from IPython.display import HTML, display

from manygpu import figures
from manygpu.scratch.splitting.pipeline import (
    Op,
    bubble,
    earliest_spans,
    gpipe,
    in_flight,
    interleaved,
    one_forward_one_backward,
    orders_of,
    zero_bubble,
)
from manygpu.trace.spans import Span
from manygpu.widgets.stepper import static_text

ROUNDS = 2  # of the interleaved schedule: as many parts of a stage a device has
NAMES = {
    "gpipe": "GPipe",
    "one_forward_one_backward": "1F1B",
    "interleaved": f"Interleaved, {ROUNDS} rounds",
    "zero_bubble": "Zero bubble",
}
KINDS = {"F": "forward", "B": "backward", "W": "weights' gradients"}
# What the sliders offer: least, most, step.
LIMITS = {
    "stages": (1, 8, 1),
    "micro_batches": (1, 32, 1),
    "forward": (1, 4, 0.5),
    "backward": (1, 4, 0.5),
}
LABELS = {
    "stages": "Stages (devices)",
    "micro_batches": "Micro-batches",
    "forward": "Forward cost",
    "backward": "Backward cost",
}
# Sizes in pixels. The script has the same, and the width that the page offers.
WIDTH, LEFT, RIGHT, TOP, ROW, AXIS = 720, 18, 28, 22, 28, 36
STEPS = (1, 2, 5, 10, 20, 50, 100)  # between the ticks of the time axis


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
        if self.schedule not in NAMES:
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


def pipeline_explorer(setting: Setting | None = None) -> None:
    """Show the explorer: a picture, its numbers, and controls for both.

    Args:
        setting: where it starts; None for the defaults.
    """
    display(HTML(to_html(setting)))


def to_html(setting: Setting | None = None) -> str:
    """Return the explorer: controls, numbers, picture and script.

    Where no JavaScript runs, the picture and the numbers of `setting` are seen,
    without the controls.

    Raises:
        TypeError: `setting` is no `Setting`.
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
    colors = zip(("forward", "backward", "weights"), figures.COLORS, strict=False)
    style = ";".join(f"--{kind}:{color}" for kind, color in colors)
    return f"""\
<figure class="manygpu-figure manygpu-pipeline" role="group" style="{style}"
 data-lm-suppress-shortcuts="true" aria-label="Pipeline explorer">
<style>{static_text("pipeline.css")}</style>
<div class="pipeline-controls" hidden>
<label class="pipeline-wide"><span>Schedule</span>
<select name="schedule">{options}</select></label>
{"".join(_slider(setting, name) for name in LIMITS)}
</div>
<p class="pipeline-setting">{_said(setting)}</p>
<p class="pipeline-result" aria-live="polite">{_result(setting, drawn, peaks)}</p>
<p class="pipeline-legend"><span class="forward">forward</span>
<span class="backward">backward</span>
<span class="weights" hidden>backward: weights</span>
<span class="later" hidden>stronger: second half of each stage</span>
<span class="waiting">waiting</span></p>
<div class="pipeline-picture">{_svg(setting, drawn, peaks)}</div>
<script>{static_text("pipeline.js")}</script>
</figure>"""


def _slider(setting: Setting, name: str) -> str:
    """A range with its value beside it. It says its value itself: <output> need not."""
    (least, most, step), value = LIMITS[name], getattr(setting, name)
    return (
        f'<label><span>{LABELS[name]}</span><input type="range" name="{name}" '
        f'aria-label="{LABELS[name]}" min="{least}" max="{most}" step="{step}" '
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


def _svg(setting: Setting, drawn: Sequence[Span], peaks: Sequence[int]) -> str:
    """The Gantt chart: rows of boxes, one a device, above an axis of time."""
    # The axis is the same for all schedules: a shorter one is seen to be shorter.
    everyone = [replace(setting, schedule=name) for name in NAMES]
    longest = max(span.end for each in everyone for span in spans(each))
    scale = (WIDTH - LEFT - RIGHT) / longest
    height = TOP + ROW * len(peaks) + AXIS
    out = [
        f'<text class="left" x="0" y="14">device</text>'
        f'<text class="right" x="{WIDTH}" y="14">in flight</text>'
    ]
    for device, peak in enumerate(peaks):
        out.append(_row(device, peak, drawn, setting, scale))
    label = (
        f"{NAMES[setting.schedule]} as a Gantt chart: {setting.stages} stages, "
        f"{setting.micro_batches} micro-batches, a row a device, a box an operation"
    )
    return (
        f'<svg role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
        f"{''.join(out)}{_axis(longest, scale, height - AXIS)}</svg>"
    )


def _axis(longest: float, scale: float, bottom: int) -> str:
    """Ticks, far enough apart that their numbers don't touch."""
    step = next((s for s in STEPS if s * scale >= 44), STEPS[-1])
    out = []
    for k in range(math.floor(longest / step) + 1):
        x = _short(LEFT + k * step * scale)
        out.append(
            f'<path d="M{x} {bottom}v5"></path>'
            f'<text x="{x}" y="{bottom + 18}">{k * step}</text>'
        )
    middle = _short((LEFT + WIDTH - RIGHT) / 2)
    return f'{"".join(out)}<text x="{middle}" y="{bottom + 33}">time units</text>'


def _row(
    device: int, peak: int, drawn: Sequence[Span], setting: Setting, scale: float
) -> str:
    """What a device does, the gaps in which it waits, and its peak."""
    y = TOP + ROW * device + 18
    out = [
        f'<text class="left" x="0" y="{y}">{device}</text>'
        f'<text class="right" x="{WIDTH}" y="{y}">{peak}</text>'
    ]
    at = 0
    for span in (s for s in drawn if s.device == device):
        out += [_waiting(device, at, span.start, scale), _box(span, setting, scale)]
        at = span.end
    return "".join(out) + _waiting(device, at, max(s.end for s in drawn), scale)


def _waiting(device: int, start: float, end: float, scale: float) -> str:
    """A gap in a device's row, if there is one."""
    if start == end:
        return ""
    return f'<rect class="waiting" {_place(device, start, end, scale)}></rect>'


def _box(span: Span, setting: Setting, scale: float) -> str:
    """An operation, with its micro-batch's number if every number would fit."""
    device, start, end = span.device, span.start, span.end
    kind, stage, m = span.work
    width = scale * (end - start)
    part = " later" if stage >= setting.stages else ""
    part += " thin" if width < 6 else ""
    drawn = (
        f'<g class="pipeline-op {kind}{part}"><title>{KINDS[kind]}, micro-batch {m}, '
        f"stage {stage}: {_short(start)} to {_short(end)}</title>"
        f"<rect {_place(device, start, end, scale)}></rect>"
    )
    if width >= 7 * len(str(setting.micro_batches - 1)) + 1:
        x = _short(LEFT + scale * start + width / 2)
        drawn += f'<text x="{x}" y="{TOP + ROW * device + 18}">{m}</text>'
    return drawn + "</g>"


def _place(device: int, start: float, end: float, scale: float) -> str:
    """Where a rectangle lies that stands for this time of a device."""
    return (
        f'x="{_short(LEFT + scale * start)}" y="{TOP + ROW * device + 2}" '
        f'width="{_short(scale * (end - start))}" height="{ROW - 4}"'
    )


def _short(number: float) -> str:
    """A number of at most two decimals, as JavaScript would write it."""
    return f"{math.floor(100 * number + 0.5) / 100:g}"
