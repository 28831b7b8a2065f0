"""The pipeline explorer's HTML: its picture, its numbers, its controls.

That the script finds the same numbers is tests/rendered/test_pipeline_explorer.py.
"""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
import zlib
from base64 import b64decode

import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from manygpu import figures
from manygpu.scratch.splitting.pipeline import Op, bubble
from manygpu.scratch.splitting.smaller_bubble import zero_bubble
from manygpu.widgets import pipeline as widget
from manygpu.widgets.pipeline import LIMITS, NAMES, Setting

SVG = "{http://www.w3.org/2000/svg}"

costs = st.integers(2, 8).map(lambda halves: halves / 2)
anything = st.builds(
    Setting,
    schedule=st.sampled_from(sorted(NAMES)),
    stages=st.integers(1, 8),
    micro_batches=st.integers(1, 32),
    forward=costs,
    backward=costs,
)


def soup(setting: Setting | None = None) -> BeautifulSoup:
    return BeautifulSoup(widget.explorer_html(setting), "html.parser")


def picture(setting: Setting) -> ET.Element:
    """The picture, parsed as XML: it must be well formed."""
    html = widget.explorer_html(setting)
    return ET.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])


# Setting


@given(anything)
@given_settings(deadline=None, max_examples=40)
def test_every_schedule_does_the_same_work(setting):
    """Cut stages and cut backward passes take a share each, not more."""
    busy = sum(s.end - s.start for s in widget.spans(setting))
    one = setting.forward + setting.backward
    assert busy == setting.stages * setting.micro_batches * one


@pytest.mark.parametrize("schedule", ["gpipe", "one_forward_one_backward"])
def test_the_bubble_is_the_formulas(schedule):
    """(p - 1) / (m + p - 1), whatever a pass costs."""
    for p, m in ((1, 4), (4, 8), (8, 3), (8, 32)):
        setting = Setting(schedule, p, m, 1.5, 3.5)
        share = bubble(widget.spans(setting))
        assert share == pytest.approx((p - 1) / (m + p - 1), abs=1e-12)


def test_zero_bubble_cuts_the_backward_pass_in_half():
    spans = widget.spans(Setting("zero_bubble", 2, 3, 1, 3))
    assert {(s.work.kind, s.end - s.start) for s in spans} == {
        ("F", 1),
        ("B", 1.5),
        ("W", 1.5),
    }
    assert {s.work for s in spans} == {slot.op for slot in zero_bubble(2, 3)}


def test_interleaved_cuts_each_stage_in_half():
    spans = widget.spans(Setting("interleaved", 2, 3, 1, 3))
    assert {(s.work.kind, s.end - s.start) for s in spans} == {("F", 0.5), ("B", 1.5)}
    assert {(s.device, s.work.stage) for s in spans} == {(0, 0), (0, 2), (1, 1), (1, 3)}


# explorer_html


def test_without_a_script_the_default_is_seen_and_said():
    page = soup()
    assert page.select_one(".pipeline-controls").has_attr("hidden")
    assert page.select_one(".pipeline-setting").string == (
        "1F1B: 4 stages, 8 micro-batches, forward passes of 1, backward passes of 2 "
        "time units."
    )
    assert page.select_one(".pipeline-result").string == (
        "Bubble 27%, 33 units, at most 4 micro-batches in flight on device 0."
    )


@pytest.mark.parametrize(
    ("setting", "end"),
    [
        (
            Setting(stages=1),
            "0%, 24 units, at most 1 micro-batch in flight on device 0.",
        ),
        (Setting("interleaved"), "in flight on device 0, each in half a stage."),
    ],
)
def test_a_result_is_said_in_words_that_fit(setting, end):
    assert soup(setting).select_one(".pipeline-result").string.endswith(end)


def test_the_figure_is_said_and_its_controls_are_named():
    page = soup()
    assert page.svg["role"] == "img"
    assert len(page.svg["aria-label"].split()) >= 4
    assert page.select_one(".pipeline-result")["aria-live"] == "polite"
    assert [o["value"] for o in page.select("option")] == list(NAMES)
    assert [o["value"] for o in page.select("option[selected]")] == [Setting().schedule]
    for control in page.select("input, select"):
        assert control.parent.name == "label"
        assert control.parent.span.string
    ranges = {
        i["name"]: tuple(float(i[k]) for k in ("min", "max", "step"))
        for i in page.select("input[type=range]")
    }
    assert ranges == LIMITS
    for slider in page.select("input"):
        assert float(slider["value"]) == getattr(Setting(), slider["name"])
        assert slider.find_next_sibling("output").string == slider["value"]


def test_its_colors_are_the_books():
    style = soup().figure["style"]
    fills = re.findall("--[a-z]+:(#[0-9a-f]{6})", style)
    edges = re.findall("-edge:([^;]+)", style)
    assert fills == list(figures.COLORS[:3])
    assert edges == [figures.edge(fill) for fill in fills]


def test_nothing_is_fetched_and_nothing_has_an_id():
    """So that it can stand twice on a page."""
    html = widget.explorer_html()
    outside = [
        e for e in soup().select("[id], [src], [href]") if not e.find_parent("svg")
    ]
    assert outside == []
    assert set(re.findall(r"https?://[^\"' )`]+", html)) <= {
        "http://www.w3.org/2000/svg",  # names, not addresses
        "http://www.w3.org/1999/xlink",
    }


def test_a_caption_comes_last_and_a_name_leads_to_it():
    html = widget.explorer_html(None, "2 < 3.", "plans")
    figure = BeautifulSoup(html, "html.parser").figure
    assert figure.find_all(recursive=False)[-1].get_text() == "2 < 3."
    assert figure["data-name"] == "plans"
    assert soup().figcaption is None


def test_the_explorer_shows_its_html(monkeypatch):
    shown = []
    monkeypatch.setattr(widget, "display", shown.append)
    widget.pipeline_explorer()
    widget.pipeline_explorer(Setting("gpipe"), "A plan.", "plans")
    assert shown[0].data == widget.explorer_html()
    told = widget.explorer_html(Setting("gpipe"), "A plan.", "plans")
    assert shown[1].data == told
    assert shown[0].data != shown[1].data


def test_without_a_script_the_books_own_gantt_chart_is_seen():
    svg = picture(Setting("zero_bubble", 2, 3))
    assert len(svg.get("aria-label").split()) >= 4
    drawn = [p.get("style", "") for p in svg.iter(f"{SVG}path")]
    boxes = [
        style for style in drawn if "fill-opacity" in style or "opacity: 0.3" in style
    ]
    assert len(boxes) == 3 * 2 * 3


# The plans that the script replays.


def spelled_out(word: str, device: int, stages: int) -> list[Op]:
    """What the script makes of a device's word."""
    ops, flying, waiting = [], {}, {}
    for letter in word:
        stage = device if letter.isupper() else device + stages
        own, late = flying.setdefault(stage, []), waiting.setdefault(stage, [])
        kind = letter.upper()
        if kind == "F":
            m = sum(op.kind == "F" and op.stage == stage for op in ops)
            own.append(m)
        elif kind == "W":
            m = late.pop(0)
        else:
            m = own.pop(0 if kind == "B" else -1)
            late.append(m)
        ops.append(Op("B" if kind == "L" else kind, stage, m))
    return ops


def test_the_page_brings_each_plan_that_its_controls_offer():
    packed = widget.packed_plans()
    assert len(packed) <= 16_000
    lines = zlib.decompress(b64decode(packed)).decode().split("\n")
    assert len(lines) == len(NAMES) * 8 * 32
    assert soup().figure["data-plans"] == packed
    for i, (schedule, p, m) in enumerate(
        itertools.product(NAMES, range(1, 9), range(1, 33))
    ):
        if m in (1, 2, 7, 16) and p in (1, 2, 3, 8):
            words = lines[i].split("/")
            found = [spelled_out(word, d, p) for d, word in enumerate(words)]
            assert found == widget.orders(Setting(schedule, p, m))
