"""The pipeline explorer: its numbers are Python's, and its picture can be read.

What it does as all calculators do is in test_calculator.py.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest

from manygpu.scratch.splitting import pipeline, smaller_bubble
from manygpu.widgets.calculator import first_values
from manygpu.widgets.pipeline import ABOVE, FIELDS, LABEL, NAMES
from tests.quick.test_colors import contrast
from tests.rendered.calculators import asked, opened

FIRST = first_values(FIELDS)
KINDS = {"F": "forward", "B": "backward", "W": "weights' gradients"}
# Puts the controls to a setting and says so once, as they do when a hand moves one.
CHOOSE = """(root, setting) => {
    for (const [name, value] of Object.entries(setting)) {
        root.querySelector(`[name=${name}]`).value = value;
    }
    root.querySelector("select").dispatchEvent(new Event("input", { bubbles: true }));
}"""


@pytest.fixture
def page(lone) -> Callable:
    """Open the explorer with the given browser settings; return its tab and figure."""
    return lambda **settings: opened(lone, "explorer", **settings)


def choose(figure, **setting) -> dict:
    """Move the controls; return what the script finds then."""
    if "schedule" in setting:
        listed = f'"{setting["schedule"]}"'
        figure.evaluate(CHOOSE, setting | {"schedule": listed})
    else:
        figure.evaluate(CHOOSE, setting)
    return asked(figure, "work", [FIRST | setting])[0]


def of_python(schedule, stages, micro_batches, forward, backward):
    """Spans and peaks, from the chapter's functions alone."""
    cost = {"F": forward, "B": backward}
    if schedule == "interleaved":
        slots = smaller_bubble.interleaved(2 * stages, micro_batches, stages)
        cost = {"F": forward / 2, "B": backward / 2}
    else:
        home = smaller_bubble if schedule == "zero_bubble" else pipeline
        slots = getattr(home, schedule)(stages, micro_batches)
    if schedule == "zero_bubble":
        cost = {"F": forward, "B": backward / 2, "W": backward / 2}
    orders = pipeline.orders_of(slots)
    spans = pipeline.earliest_spans(orders, lambda op: cost[op.kind])
    return spans, pipeline.in_flight(orders)


@pytest.mark.parametrize("schedule", NAMES)
def test_its_numbers_are_pythons(page, schedule):
    """Exactly: all costs are halves, whose sums a computer knows exactly."""
    settings = [
        dict(zip(FIRST, (schedule, *sizes, *costs), strict=True))
        for sizes in itertools.product((1, 2, 3, 5, 8), (1, 2, 5, 8, 31, 32))
        for costs in ((1, 2), (2.5, 1.5), (4, 1))
    ]
    figure = page().figure
    works, shown = (asked(figure, what, settings) for what in ("work", "shown"))
    for setting, found, told in zip(settings, works, shown, strict=True):
        spans, held = of_python(*setting.values())
        assert sorted(
            (s["kind"], s["stage"], s["microBatch"], s["device"], s["start"], s["end"])
            for s in found["spans"]
        ) == sorted((*s.work[:3], s.device, s.start, s.end) for s in spans)
        assert found["bubble"] == pipeline.bubble(spans), setting
        assert found["length"] == max(span.end for span in spans), setting
        assert found["peaks"] == held, setting
        percent, units, most, device = map(float, re.findall(r"[\d.]*\d", told["said"]))
        assert abs(percent - 100 * found["bubble"]) <= 0.5, setting
        assert (units, most) == (found["length"], max(held)), setting
        assert held[int(device)] == most, setting
    for setting, found in zip(settings[::9], works[::9], strict=True):
        ends = [of_python(name, *[*setting.values()][1:])[0] for name in NAMES]
        assert found["longest"] == max(span.end for spans in ends for span in spans)


def test_the_script_says_what_python_said(page):
    figure = page().figure
    texts = re.findall(">([^<]+)<", ABOVE)
    above = figure.locator(".calculator-picture > .note, .calculator-legend span")
    assert above.all_text_contents() == texts
    assert figure.locator("svg").get_attribute("aria-label") == LABEL
    told = figure.locator(".calculator-said")
    choose(figure, schedule="gpipe", stages=2, micro_batches=7)
    assert told.text_content().startswith("Bubble 13%")  # of 12.5%
    assert above.first.text_content().endswith(" = 1/8 = 13%.")
    choose(figure, schedule="interleaved", stages=1, micro_batches=1)
    end = "at most 2 micro-batches in flight on device 0, each in half a stage."
    assert told.text_content().endswith(end)
    choose(figure, schedule="gpipe")
    assert "at most 1 micro-batch in flight" in told.text_content()


@pytest.mark.parametrize(
    "values",
    [
        ("gpipe", 8, 32, 1.5, 2),
        ("interleaved", 3, 7, 1, 2.5),
        ("zero_bubble", 8, 12, 4, 1),
    ],
    ids=lambda values: values[0],
)
def test_boxes_and_gaps_lie_side_by_side_and_the_gaps_are_the_bubble(page, values):
    figure = page(width="720px").figure
    found = choose(figure, **dict(zip(FIRST, values, strict=True)))
    assert sorted(figure.locator("title").all_text_contents()) == sorted(
        f"{KINDS[s['kind']]}, micro-batch {s['microBatch']}, stage {s['stage']}: "
        f"{s['start']:g} to {s['end']:g}"
        for s in found["spans"]
    )
    rects = figure.locator("svg rect").evaluate_all(
        "all => all.map(r => [r.y, r.x, r.width].map(v => v.baseVal.value)"
        ".concat(r.classList.contains('waiting')))"
    )
    rows: dict[float, list] = {}
    for y, x, width, waits in rects:
        rows.setdefault(y, []).append((x, width, waits))
    assert len(rows) == values[1]
    for boxes in rows.values():
        for (x, width, _), (after, *_) in itertools.pairwise(sorted(boxes)):
            assert x + width == pytest.approx(after, abs=0.02)  # two decimals
    gaps = sum(width for *_, width, waits in rects if waits)
    whole = sum(width for *_, width, _ in rects)
    assert gaps / whole == pytest.approx(found["bubble"], abs=0.005)


@pytest.mark.parametrize(
    ("schedule", "kinds"),
    [
        ("gpipe", ["forward", "backward"]),
        ("zero_bubble", ["forward", "backward: inputs", "backward: weights"]),
        (
            "interleaved",
            ["forward", "backward", "stronger: second half of each stage"],
        ),
    ],
)
def test_the_legend_names_what_is_drawn(page, schedule, kinds):
    figure = page().figure
    choose(figure, schedule=schedule)
    label = figure.locator("svg").get_attribute("aria-label")
    assert label.startswith(NAMES[schedule])
    shown = figure.locator(".calculator-legend span")
    assert shown.all_text_contents() == [*kinds, "waiting"]
    weights, later = (figure.locator(f"g.{of}").count() for of in ("part-2", "later"))
    assert (weights > 0) == (schedule == "zero_bubble")
    assert (later > 0) == (schedule == "interleaved")


def test_without_javascript_the_picture_scrolls_in_its_own_box(page):
    """With letters of three quarters of their size."""
    small = {"width": 390, "height": 844}
    figure = page(java_script_enabled=False, viewport=small).figure
    assert figure.locator("svg").bounding_box()["width"] >= 0.74 * 720


def color(text: str) -> list[float]:
    return [float(c) for c in re.findall(r"[\d.]+", text)[:3]]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_numbers_read_on_their_boxes(page, theme):
    """4.5 : 1; that ink is the page's, test_calculator.py asks."""
    page = page(color_scheme=theme, width="1100px")
    for schedule, looks in (("interleaved", 4), ("zero_bubble", 3)):
        choose(page.figure, schedule=schedule)
        ink, paper = page.tab.evaluate(
            "(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))"
        )
        fills = page.figure.locator("g.operation rect").evaluate_all(
            "all => all.map(getComputedStyle).map(s => [s.fill, s.fillOpacity])"
        )
        assert len({tuple(f) for f in fills}) == looks
        for fill, opacity in {tuple(f) for f in fills}:
            mix = float(opacity)
            pairs = zip(color(fill), color(paper), strict=True)
            box = [mix * a + (1 - mix) * b for a, b in pairs]
            assert contrast(color(ink), box) >= 4.5, (theme, fill, opacity)


@pytest.mark.parametrize(
    ("width", "setting"),
    [
        (390, {}),
        (390, {"micro_batches": 16}),
        (390, {"schedule": "interleaved", "stages": 8, "micro_batches": 32}),
        (390, {"schedule": "zero_bubble", "stages": 1, "micro_batches": 1}),
        (700, {"schedule": "zero_bubble", "micro_batches": 10, "backward": 1}),
        (1000, {"schedule": "interleaved", "micro_batches": 12}),
    ],
)
def test_no_text_lies_on_another_and_none_is_shrunk(page, width, setting):
    """Numbers in their boxes, ticks apart, headings apart, at widths of all kinds."""
    page = page(viewport={"width": width, "height": 844})
    choose(page.figure, **setting)
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= width
    svg = page.figure.locator("svg")
    drawn = svg.bounding_box()
    assert drawn["x"] >= 0 and drawn["x"] + drawn["width"] <= width
    assert drawn["width"] == svg.evaluate("e => e.viewBox.baseVal.width")
    sizes = svg.locator("text").evaluate_all(
        "all => all.map(t => parseFloat(getComputedStyle(t).fontSize))"
    )
    assert min(sizes) >= 11
    boxes = svg.locator("text").evaluate_all(
        """all => all.map(t => t.getBoundingClientRect())
            .map(r => [r.left, r.top, r.right, r.bottom])"""
    )
    for a, b in itertools.combinations(boxes, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] + 3 or b[3] <= a[1] + 3
        assert apart, (a, b)
    assert all(box[0] >= 0 and box[2] <= width for box in boxes)


TICKS = """figure => {
    const number = (e, name) => Number(e.getAttribute(name));
    const all = [...figure.querySelectorAll("svg > text")].slice(0, -1);
    const bottom = Math.max(...all.map((text) => number(text, "y")));
    const ticks = all.filter((text) => number(text, "y") === bottom)
        .map((text) => [number(text, "x"), Number(text.textContent)]);
    const marks = [...figure.querySelectorAll("svg > path:not(.held)")]
        .map((path) => Number(path.getAttribute("d").match(/M([^ ]+)/)[1]));
    return [ticks, marks];
}"""


@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("micro_batches", [1, 6, 32])
def test_the_axis_counts_units_up_to_the_end_with_room_between(
    page, width, micro_batches
):
    figure = page(width=f"{width}px").figure
    found = choose(figure, schedule="gpipe", micro_batches=micro_batches)
    ticks, marks = figure.evaluate(TICKS)
    assert [x for x, _ in ticks] == marks  # each number below its line
    first = figure.locator("svg rect").nth(0).evaluate("e => e.width.baseVal.value")
    assert ticks[0][1] == 0
    for (x, units), (after, more) in itertools.pairwise(ticks):
        assert after - x >= 44 or more - units == 100
        # GPipe's first forward pass takes one unit.
        assert after - x == pytest.approx((more - units) * first, abs=1)
    step = ticks[1][1] - ticks[0][1]
    assert found["longest"] - step < ticks[-1][1] <= found["longest"]


def test_boxes_without_their_numbers_are_told_of(page):
    figure = page(width="500px").figure
    told = figure.get_by_text("Too narrow for their numbers")
    for micro_batches in (2, 32):
        choose(figure, micro_batches=micro_batches)
        boxes, numbers = (figure.locator(f"g.operation{p}") for p in ("", " text"))
        assert told.count() == (numbers.count() < boxes.count())
        assert told.count() == (micro_batches == 32)
