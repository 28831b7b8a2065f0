"""The pipeline explorer's picture without a script, and the plans that it replays.

What it shares with the calculators is in test_calculator.py; that its script finds the
same numbers, in tests/rendered/test_pipeline_explorer.py.
"""

from __future__ import annotations

import itertools
import json
import re
import xml.etree.ElementTree as ET
import zlib
from base64 import b64decode

import pytest

from manygpu.scratch.splitting.pipeline import bubble, in_flight, orders_of
from manygpu.widgets import pipeline as widget
from manygpu.widgets.pipeline import FIRST, NAMES

SVG = "{http://www.w3.org/2000/svg}"


def test_without_a_script_the_first_picture_and_its_numbers_are_seen():
    shown = widget.pipeline_explorer().data
    drawn = ET.fromstring(shown[shown.index("<svg") : shown.index("</svg>") + 6])
    styles = [path.get("style", "") for path in drawn.iter(f"{SVG}path")]
    boxes = [style for style in styles if "opacity: 0.3" in style]
    assert len(boxes) == 4 * 8 * 2
    assert drawn.get("role") == "img" and drawn.get("aria-label") == widget.LABEL
    spans = widget.first_spans(FIRST)
    peaks = in_flight(orders_of(widget.plan(FIRST, 4, 8)))
    said = [float(number) for number in re.findall(r"\d+", widget.SAID)]
    length = max(span.end for span in spans)
    assert said == [round(100 * bubble(spans)), length, max(peaks), 0]
    assert bubble(spans) == pytest.approx(3 / 11)
    assert "3/11 = 27%." in widget.ABOVE and widget.ABOVE in shown


@pytest.mark.parametrize("schedule", NAMES)
def test_every_schedule_does_the_same_work(schedule):
    """Cut stages and cut backward passes take a share each, not more."""
    spans = widget.first_spans(schedule)
    assert sum(span.end - span.start for span in spans) == 4 * 8 * (1 + 2)


def test_the_page_brings_each_plan_that_its_controls_offer():
    packed = widget.packed_plans()
    assert len(packed) <= 36_000
    plans = json.loads(zlib.decompress(b64decode(packed)))
    offered = itertools.product(NAMES, range(1, 9), range(1, 33))
    for words, (schedule, p, m) in zip(plans, offered, strict=True):
        if m in (1, 2, 7, 16) and p in (1, 2, 3, 8):
            made = [
                "".join(
                    f"{kind if stage == device else kind.lower()}{micro_batch}"
                    for kind, stage, micro_batch in order
                )
                for device, order in enumerate(orders_of(widget.plan(schedule, p, m)))
            ]
            assert words == made
