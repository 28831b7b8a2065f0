"""The pipeline explorer in a real browser: its numbers are Python's, at any setting.

It stands on a page of its own here, so that these tests need no rendered book.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest

from manygpu.scratch.splitting import pipeline, smaller_bubble
from manygpu.widgets.pipeline import LIMITS, NAMES, Setting, explorer_html

pytestmark = pytest.mark.rendered
# Puts the controls to a setting and says so once, as they do when a hand moves one.
CHOOSE = """(root, setting) => {
    for (const [name, value] of Object.entries(setting)) {
        root.querySelector(`[name=${name}]`).value = value;
    }
    root.querySelector("select").dispatchEvent(new Event("input", { bubbles: true }));
}"""


@pytest.fixture
def opened(lone) -> Callable:
    """Open the explorer with the given browser settings; return its tab and figure."""
    return lambda setting=None, **settings: lone(
        explorer_html(setting), "pipeline", **settings
    )


def choose(figure, **setting) -> None:
    figure.evaluate(CHOOSE, setting)


def result(figure) -> str:
    return figure.locator(".pipeline-result").text_content()


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
    return pipeline.earliest_spans(
        orders, lambda op: cost[op.kind]
    ), pipeline.in_flight(orders)


@pytest.mark.parametrize("schedule", NAMES)
def test_its_numbers_are_pythons(opened, schedule):
    """Exactly: all costs are halves, whose sums a computer knows exactly."""
    grid = [
        (schedule, stages, micro_batches, forward, backward)
        for stages in range(1, 9)
        for micro_batches in (1, 2, 3, 5, 8, 16, 31, 32)
        for forward, backward in ((1, 2), (2.5, 1.5), (4, 1))
    ]
    keys = ("schedule", "stages", "micro_batches", "forward", "backward")
    found = opened().figure.evaluate(
        f"""(root, all) => all.map((setting) => {{
            ({CHOOSE})(root, setting);
            const {{ bubble, length, inFlight }} = root.dataset;
            const said = root.querySelector(".pipeline-result").textContent;
            return [Number(bubble), Number(length), inFlight, said];
        }})""",
        [dict(zip(keys, values, strict=True)) for values in grid],
    )
    for values, (share, length, peaks, said) in zip(grid, found, strict=True):
        spans, held = of_python(*values)
        assert share == pipeline.bubble(spans), values
        assert length == max(span.end for span in spans), values
        assert peaks == " ".join(map(str, held)), values
        percent, units, most, device = map(float, re.findall(r"[\d.]*\d", said))
        assert abs(percent - 100 * share) <= 0.5, values
        assert abs(units - length) <= 0.005, values
        assert most == held[int(device)] == max(held), values


@pytest.mark.parametrize("schedule", NAMES)
def test_each_operation_runs_when_python_says(opened, schedule):
    page = opened(width="2000px")
    kinds = {"F": "forward", "B": "backward", "W": "weights' gradients"}
    for stages, micro_batches in itertools.product((1, 3, 8), (1, 5, 16)):
        choose(
            page.figure,
            schedule=schedule,
            stages=stages,
            micro_batches=micro_batches,
            backward=3,
        )
        spans, _ = of_python(schedule, stages, micro_batches, 1, 3)
        expected = [
            f"{kinds[s.work.kind]}, micro-batch {s.work.micro_batch}, stage "
            f"{s.work.stage}: {s.start:g} to {s.end:g}"
            for s in spans
        ]
        found = page.figure.locator("title").all_text_contents()
        assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
    "setting",
    [
        Setting(),
        Setting("gpipe", 8, 32, 1.5, 2),
        Setting("gpipe", 2, 7),  # a bubble of 12.5%, which both round up
        Setting("interleaved", 3, 7, 1, 2.5),
        Setting("zero_bubble", 8, 12, 4, 1),
    ],
    ids=lambda setting: setting.schedule,
)
def test_the_script_says_what_python_said_and_fills_each_row(opened, setting):
    """Boxes and gaps lie side by side, and the gaps' share is the bubble."""
    figure = opened(setting, width="720px").figure
    html = explorer_html(setting)
    text = re.search(r'class="pipeline-result" [^>]*>([^<]*)<', html).group(1)
    assert result(figure) == text
    if setting == Setting("gpipe", 2, 7):
        assert text.startswith("Bubble 13%")
    rects = figure.locator("svg rect").evaluate_all(
        "all => all.map(r => [r.y, r.x, r.width].map(v => v.baseVal.value)"
        ".concat(r.classList.contains('waiting')))"
    )
    rows: dict[float, list] = {}
    for y, x, width, waits in rects:
        rows.setdefault(y, []).append((x, width, waits))
    assert len(rows) == setting.stages
    for boxes in rows.values():
        for (x, width, _), (after, *_) in itertools.pairwise(sorted(boxes)):
            assert x + width == pytest.approx(after, abs=0.02)  # two decimals
    gaps = sum(width for *_, width, waits in rects if waits)
    whole = sum(width for *_, width, _ in rects)
    share = float(figure.get_attribute("data-bubble"))
    assert gaps / whole == pytest.approx(share, abs=0.005)


def test_every_control_changes_the_numbers_by_keyboard(opened):
    page = opened()
    figure = page.figure
    assert figure.locator(".pipeline-controls").is_visible()
    assert not figure.locator(".pipeline-setting").is_visible()
    assert result(figure).startswith("Bubble 27%, 33 units, at most 4 ")
    page.tab.keyboard.press("Tab")
    assert page.tab.evaluate("document.activeElement.name") == "schedule"
    page.tab.keyboard.press("ArrowDown")  # a select: the next schedule
    assert result(figure).startswith("Bubble 16%, 28.5 units, at most 11 ")
    for name in LIMITS:
        page.tab.keyboard.press("Tab")
        assert page.tab.evaluate("document.activeElement.name") == name
        before, slider = result(figure), figure.locator(f"[name={name}]")
        value = float(slider.input_value())
        page.tab.keyboard.press("ArrowRight")
        assert float(slider.input_value()) == value + LIMITS[name][2]
        assert result(figure) != before
        shown = figure.locator(f"[name={name}] + output").text_content()
        assert shown == slider.input_value()
        outline = "e => [getComputedStyle(e).outlineStyle, e.matches(':focus-visible')]"
        assert slider.evaluate(outline) == ["solid", True]
    page.tab.keyboard.press("End")
    page.tab.keyboard.press("Tab")
    inside = "document.activeElement.closest('.pipeline-controls') !== null"
    assert not page.tab.evaluate(inside)  # the way out is free


def test_controls_are_found_by_their_labels(opened):
    figure = opened().figure
    assert figure.get_by_role("slider").count() == len(LIMITS)
    figure.get_by_role("combobox", name="Schedule").select_option("Zero bubble")
    figure.get_by_role("slider", name="Stages").fill("2")
    figure.get_by_role("slider", name="Micro-batches").fill("4")
    figure.get_by_role("slider", name="Forward cost").fill("2")
    figure.get_by_role("slider", name="Backward cost").fill("4")
    spans, held = of_python("zero_bubble", 2, 4, 2, 4)
    assert float(figure.get_attribute("data-bubble")) == pipeline.bubble(spans)
    assert result(figure).endswith(
        f"at most {max(held)} micro-batches in flight on "
        f"device {held.index(max(held))}."
    )
    assert "Zero bubble" in figure.locator("svg").get_attribute("aria-label")


def test_the_legend_names_what_is_drawn(opened):
    figure = opened().figure
    shown = figure.locator(".pipeline-legend span:visible")
    for schedule, kinds in (
        ("gpipe", ["forward", "backward"]),
        ("zero_bubble", ["forward", "backward: inputs", "backward: weights"]),
        ("one_forward_one_backward", ["forward", "backward"]),
        (
            "interleaved",
            ["forward", "backward", "stronger: second half of each stage"],
        ),
    ):
        choose(figure, schedule=schedule)
        assert shown.all_text_contents() == [*kinds, "waiting"]
        weights, later = (
            figure.locator("g.W").count(),
            figure.locator("g.later").count(),
        )
        assert (weights > 0) == (schedule == "zero_bubble")
        assert (later > 0) == (schedule == "interleaved")


def test_without_javascript_the_default_is_seen(opened):
    page = opened(java_script_enabled=False, viewport={"width": 390, "height": 844})
    figure = page.figure
    assert figure.locator("svg").is_visible()
    assert figure.locator(".pipeline-setting").is_visible()
    assert result(figure).startswith("Bubble 27%, 33 units, at most 4 ")
    assert figure.locator("input:visible, select:visible").count() == 0
    # It scrolls in its own box, with letters of three quarters of their size.
    assert figure.locator("svg").bounding_box()["width"] >= 0.74 * 720
    assert figure.locator(".pipeline-picture").bounding_box()["width"] <= 390


def test_two_on_a_page_keep_apart_and_start_once(opened):
    page = opened()
    page.tab.evaluate("""() => {
        const first = document.querySelector(".manygpu-pipeline");
        const second = first.cloneNode(true);
        delete second.dataset.ready;
        delete second.dataset.started;
        first.after(second);
        for (let i = 0; i < 2; i++) {
            const script = document.createElement("script");
            script.textContent = first.querySelector("script").textContent;
            second.append(script);
        }
    }""")
    page.tab.wait_for_selector(".manygpu-pipeline:nth-of-type(2)[data-ready]")
    first, second = page.figure.nth(0), page.figure.nth(1)
    before = result(first)
    choose(second, stages=7)
    assert result(first) == before != result(second)


def luminance(rgb: tuple[float, ...]) -> float:
    """WCAG's relative luminance of an sRGB colour with parts from 0 to 255."""
    parts = [c / 255 for c in rgb]
    linear = [
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts
    ]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def color(text: str) -> tuple[float, ...]:
    return tuple(float(c) for c in re.findall(r"[\d.]+", text)[:3])


@pytest.mark.parametrize("first", ["light", "dark"])
def test_it_reads_on_both_themes_and_when_they_change(opened, first):
    """All ink is the page's, and numbers read on their boxes (4.5 : 1)."""
    page = opened(color_scheme=first, width="1100px")
    both = [first, {"light": "dark", "dark": "light"}[first]]
    for theme, schedule in itertools.product(both, ("interleaved", "zero_bubble")):
        page.tab.emulate_media(color_scheme=theme)
        choose(page.figure, schedule=schedule)
        ink, paper = page.tab.evaluate(
            "(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))"
        )
        for part, what in (
            ("svg text", "fill"),
            (".pipeline-result", "color"),
            ("select", "color"),
            ("svg path", "stroke"),
        ):
            found = page.figure.locator(part).first
            assert found.evaluate(f"e => getComputedStyle(e).{what}") == ink, part
        fills = page.figure.locator("g.pipeline-op rect").evaluate_all(
            "all => all.map(getComputedStyle).map(s => [s.fill, s.fillOpacity])"
        )
        assert len({tuple(f) for f in fills}) == (4 if schedule == "interleaved" else 3)
        for fill, opacity in {tuple(f) for f in fills}:
            mix = float(opacity)
            box = tuple(
                mix * a + (1 - mix) * b
                for a, b in zip(color(fill), color(paper), strict=True)
            )
            assert contrast(box, color(ink)) >= 4.5, (theme, fill, opacity)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_phone_and_can_be_touched(opened, theme):
    page = opened(
        viewport={"width": 390, "height": 844}, has_touch=True, color_scheme=theme
    )
    for schedule, stages, micro_batches in (
        ("one_forward_one_backward", 4, 8),
        ("interleaved", 8, 32),
        ("zero_bubble", 1, 1),
    ):
        choose(
            page.figure, schedule=schedule, stages=stages, micro_batches=micro_batches
        )
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= 390
        for part in page.figure.locator("input, select, output, svg").all():
            box = part.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
        for control in page.figure.locator("input, select").all():
            assert control.bounding_box()["height"] >= 24
    # Drawn at its size: no letter is shrunk.
    svg = page.figure.locator("svg")
    drawn = svg.bounding_box()["width"]
    assert drawn == svg.evaluate("e => e.viewBox.baseVal.width")
    sizes = svg.locator("text").evaluate_all(
        "all => all.map(t => parseFloat(getComputedStyle(t).fontSize))"
    )
    assert min(sizes) >= 11


def test_it_follows_the_pages_width(opened):
    page = opened(viewport={"width": 900, "height": 700})
    width = "document.querySelector('svg').viewBox.baseVal.width"
    assert page.tab.evaluate(width) > 800
    page.tab.set_viewport_size({"width": 500, "height": 700})
    page.tab.wait_for_function(f"{width} < 500")
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 500


def test_no_text_lies_on_another(opened):
    """Numbers in their boxes, ticks apart, headings apart, at widths of all kinds."""
    page = opened(viewport={"width": 390, "height": 844})
    for width, schedule, stages, micro_batches, backward in (
        (390, "one_forward_one_backward", 4, 8, 2),
        (390, "interleaved", 8, 32, 4),
        (700, "zero_bubble", 2, 10, 1),
        (1000, "interleaved", 4, 12, 2),
    ):
        page.tab.set_viewport_size({"width": width, "height": 844})
        choose(
            page.figure,
            schedule=schedule,
            stages=stages,
            micro_batches=micro_batches,
            backward=backward,
        )
        boxes = page.figure.locator("svg text").evaluate_all(
            """all => all.map(t => t.getBoundingClientRect())
                .map(r => [r.left, r.top, r.right, r.bottom])"""
        )
        for a, b in itertools.combinations(boxes, 2):
            apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] + 3 or b[3] <= a[1] + 3
            assert apart, (width, schedule, a, b)
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
    opened, width, micro_batches
):
    figure = opened(Setting("gpipe", 4, micro_batches), width=f"{width}px").figure
    ticks, marks = figure.evaluate(TICKS)
    assert [x for x, _ in ticks] == marks  # each number below its line
    first = figure.locator("svg rect").nth(0).evaluate("e => e.width.baseVal.value")
    assert ticks[0][1] == 0
    for (x, units), (after, more) in itertools.pairwise(ticks):
        assert after - x >= 44 or more - units == 100
        # GPipe's first forward pass takes one unit.
        assert after - x == pytest.approx((more - units) * first, abs=1)
    longest = float(figure.get_attribute("data-length"))
    step = ticks[1][1] - ticks[0][1]
    assert longest - step < ticks[-1][1] <= longest


def test_boxes_without_their_numbers_are_told_of(opened):
    figure = opened(width="500px").figure
    told = figure.locator(".pipeline-thin")
    for micro_batches in (2, 32):
        choose(figure, micro_batches=micro_batches)
        boxes, numbers = (figure.locator(f"g.pipeline-op{p}") for p in ("", " text"))
        assert told.is_visible() == (numbers.count() < boxes.count())
        assert told.is_visible() == (micro_batches == 32)


def test_what_has_not_changed_is_not_said_again(opened):
    """A screen reader says the result whenever it is written, the same one too."""
    figure = opened().figure
    figure.evaluate("""root => {
        root.written = 0;
        new MutationObserver((changes) => { root.written += changes.length; }).observe(
            root.querySelector(".pipeline-result"), { childList: true });
    }""")
    for setting, written in (({}, 0), ({"stages": 5}, 1), ({"stages": 5}, 1)):
        choose(figure, **setting)
        assert figure.evaluate("root => root.written") == written
