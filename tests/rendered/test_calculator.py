"""What all calculators do alike: used by keyboard, on a phone, on both themes."""

from __future__ import annotations

import pytest

from manygpu.widgets.calculator import OWN, Number, Pick, Start
from tests.rendered.calculators import MODULES, SHOWN, opened
from tests.rendered.conftest import ROOT
from tests.rendered.test_each_page import AXE, FRAMES

KINDS = list(MODULES)
TYPED = ["scaling", "memory", "spending"]  # their fields are typed into


def said(figure) -> str:
    return figure.locator(".calculator-said").text_content()


def result(figure) -> str:
    """All that a result shows."""
    return said(figure) + figure.locator(".calculator-result").text_content()


def box(figure, name: str):
    return figure.locator(f"[name={name}]")


@pytest.mark.parametrize("kind", KINDS)
def test_without_javascript_the_first_result_is_seen_as_the_script_says_it(lone, kind):
    small = {"width": 390, "height": 844}
    without = opened(lone, kind, java_script_enabled=False, viewport=small).figure
    assert without.locator("input:visible, select:visible").count() == 0
    for part in ("said", "setting"):
        assert without.locator(f".calculator-{part}").is_visible()
    assert without.locator("table, .calculator-picture svg").first.is_visible()
    for wide in without.locator(".manygpu-table, .calculator-picture").all():
        assert wide.bounding_box()["width"] <= 390
    figure = opened(lone, kind).figure
    assert said(figure) == said(without)
    cells, first = (
        f.locator("tbody :is(th, td)").all_text_contents() for f in (figure, without)
    )
    assert cells == first and (len(cells) >= 4 or kind == "explorer")


@pytest.mark.parametrize("kind", KINDS)
def test_all_fields_are_named_reached_by_keyboard_and_left(lone, kind):
    page = opened(lone, kind)
    for field in MODULES[kind].FIELDS:
        role = "combobox"
        if isinstance(field, Number):
            role = "slider" if field.step else "textbox"
        unit = f" [{field.unit}]" if isinstance(field, Number) and field.unit else ""
        words = f"{field.label}{unit}"
        assert page.figure.get_by_role(role, name=words, exact=True).count() == 1, words
    assert not page.figure.locator(".calculator-setting").is_visible()
    folded = page.figure.locator("summary")
    ahead = len(MODULES[kind].FIELDS)
    if folded.count():
        ahead = page.figure.locator(".calculator-grid").first.locator("label").count()
    look = """e => [e.getAttribute("name") ?? "", e.matches(":focus-visible"),
        getComputedStyle(e).outlineStyle]"""
    for i, field in enumerate(MODULES[kind].FIELDS):
        if i == ahead:
            page.tab.keyboard.press("Tab")
            assert page.tab.locator(":focus").evaluate("e => e.tagName") == "SUMMARY"
        page.tab.keyboard.press("Tab")
        found = page.tab.locator(":focus").evaluate(look)
        name = "" if isinstance(field, Start) else field.name
        assert found == [name, True, "solid"]
    page.tab.keyboard.press("Tab")
    assert page.tab.locator(":focus").text_content() == "Link to these values"
    page.tab.keyboard.press("Tab")
    inside = "document.activeElement.closest('.calculator-fields') !== null"
    assert not page.tab.evaluate(inside)


def another(field: Number) -> str:
    """Another number that the field takes; devices can share the batch as before."""
    if field.whole:
        return str(2 * field.first)
    if field.first / 100 >= field.least:
        return f"{field.first / 100:.6g}"
    return str(min(2 * field.first, (field.least + field.most) / 2))


# What must be so before a field changes the result: devices are owned; two machines.
OWNED, TWO = {"owned": "true"}, {"devices": "16"}
NEEDS = dict.fromkeys(("purchase", "years", "use", "watts", "cents"), OWNED)
NEEDS |= {"overhead": OWNED, "far_latency": TWO, "far_link": TWO}
NEEDS |= {"cards": TWO, "price": {"owned": "false"}, "at_once": {"owned": "false"}}
NEEDS |= {"kept": {"capacity": "8"}, "launch": {"launch": "50"}}
NEEDS |= {"sent": {"batch": "16", "launch": "0"}}  # else sums hide
NEEDS |= {"gpus": TWO, "latency": {"devices": "8", "batch": "16", "launch": "0"}}


@pytest.mark.parametrize("kind", KINDS)
def test_each_field_changes_the_result(lone, kind):
    """By typing, or by the arrow keys of a list or a slider; and back again."""
    figure = opened(lone, kind).figure
    for field in MODULES[kind].FIELDS:
        if isinstance(field, Start):
            continue
        for name, value in NEEDS.get(field.name, {}).items():
            control = box(figure, name)
            if control.count() == 0:  # this calculator knows nothing of it
                continue
            is_list = control.evaluate("e => e.tagName") == "SELECT"
            (control.select_option if is_list else control.fill)(value)
        before, control = result(figure), box(figure, field.name)
        first = control.input_value()
        if isinstance(field, Pick):
            last = field.value == list(field.options.values())[-1]
            control.press("ArrowUp" if last else "ArrowDown")
        elif field.step:
            control.press("ArrowRight")
            assert control.input_value() == f"{field.first + field.step:g}"
            shown = figure.locator(f"label:has([name={field.name}]) + output")
            assert shown.text_content() == control.input_value()
        else:
            control.fill(another(field))
        assert figure.locator(".calculator-wrong:visible").count() == 0, field.name
        assert result(figure) != before, field.name
        put_back = control.select_option if isinstance(field, Pick) else control.fill
        put_back(first)
        assert result(figure) == before, field.name


NONSENSE = {
    "": "Write a number, such as ",
    "many": "Write a number, such as ",
    "1,5": "Write a number, such as ",
    "e5": "Write a number, such as ",
    "-1": "Take at least 1.",
    "0": "Take at least 1.",
    "1e99": "Take at most ",
    "2.5": "Take a whole number.",
}


@pytest.mark.parametrize("kind", TYPED)
def test_nonsense_gets_a_sentence_and_the_result_stays_as_an_old_one(lone, kind):
    """Nothing jumps while somebody types."""
    figure = opened(lone, kind).figure
    devices, before = box(figure, "devices"), result(figure)
    look, height = figure.locator(".calculator-look"), figure.bounding_box()["height"]
    for text, sentence in NONSENSE.items():
        devices.fill(text)
        place = figure.locator(f"[id='{devices.get_attribute('aria-describedby')}']")
        assert place.text_content().startswith(sentence), text
        assert place.is_visible()
        assert devices.get_attribute("aria-invalid") == "true"
        assert look.text_content().startswith("The result is an old one: look at “Dev")
        assert look.get_attribute("role") == "status"
        assert "stale" in figure.get_attribute("class")
        assert figure.locator(".calculator-result").is_visible()
        assert result(figure) == before
        assert figure.bounding_box()["height"] == height
    devices.fill("8")
    assert result(figure) == before and look.text_content() == ""
    assert "stale" not in figure.get_attribute("class")
    assert figure.locator(".calculator-wrong:visible").count() == 0
    assert figure.locator("[aria-invalid=true]").count() == 0
    if kind != "spending":  # numbers that don't go together
        box(figure, "batch").fill("250")
        (wrong,) = figure.locator(".calculator-wrong:visible").all_text_contents()
        assert wrong.endswith("take a multiple of 8.")
        assert "stale" in figure.get_attribute("class")


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_stands_first_and_few_fields_ahead(lone, kind):
    wide = {"width": 1280, "height": 900}
    page = lone(SHOWN[kind]().data, "calculator", viewport=wide)
    tops = [
        page.figure.locator(part).first.bounding_box()["y"]
        for part in (".calculator-said", ".calculator-fields", ".calculator-result")
    ]
    assert tops == sorted(tops) and tops[2] < 900
    answer = page.figure.locator(".calculator-said")
    assert answer.evaluate("e => getComputedStyle(e).position") == "sticky"
    seen = page.figure.locator("label:visible").count()
    if kind not in TYPED:
        assert seen == 5
        return
    assert seen == 3
    page.figure.locator("summary").press("Enter")
    assert page.figure.locator("label:visible").count() == len(MODULES[kind].FIELDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_address_holds_the_values(lone, kind):
    """At reload, at Back, and for whom it is sent to."""
    page = opened(lone, kind)
    first, listed = result(page.figure), page.figure.locator("select").first
    if kind in TYPED:
        box(page.figure, "devices").fill("16")
    listed.select_option(index=2)
    shown, chosen = result(page.figure), listed.input_value()
    address = page.tab.evaluate("location.href")
    assert shown != first and f"#{kind}?" in address
    assert page.figure.locator(".calculator-address").get_attribute("href") in address
    for come_back in (
        page.tab.reload,
        lambda: (page.tab.goto("about:blank"), page.tab.go_back()),
        lambda: (page.tab.goto("about:blank"), page.tab.goto(address)),
    ):
        come_back()
        page.tab.wait_for_selector(".manygpu-calculator[data-ready]")
        assert result(page.figure) == shown
        assert listed.input_value() == chosen
    page.tab.evaluate(f"window.location.hash = '{kind}'")  # the first values
    page.tab.wait_for_function(
        "text => document.querySelector('.calculator-said').textContent === text",
        arg=said(opened(lone, kind).figure),
    )


def test_an_address_with_nonsense_gets_a_sentence_and_a_folded_field_opens(lone):
    page = lone(SHOWN["memory"]().data, "calculator")
    page.tab.evaluate("window.location.hash = 'memory?layers=many&precision=none'")
    wrong = page.figure.locator(".calculator-wrong:visible")
    wrong.wait_for()
    assert wrong.count() == 1
    assert box(page.figure, "layers").get_attribute("aria-invalid") == "true"
    assert box(page.figure, "precision").evaluate("e => e.selectedIndex") == 1
    page.tab.evaluate("window.location.hash = 'memory?batch=128'")  # and no other value
    page.tab.wait_for_function("document.querySelector('[name=batch]').value === '128'")
    address = page.figure.locator(".calculator-address").get_attribute("href")
    assert address == "#memory?batch=128" and wrong.count() == 0


def test_two_on_a_page_share_an_address_and_else_keep_apart(lone):
    """Also two of a kind, whose script runs twice."""
    html = SHOWN["memory"]().data
    page = lone(html + SHOWN["spending"]().data + html, "calculator")
    page.tab.wait_for_selector("figure:nth-of-type(3)[data-ready]")
    first, other, second = page.figure.all()
    box(first, "batch").fill("1,280")
    box(other, "hours").fill("20")
    assert page.tab.evaluate("location.hash") == "#memory?batch=1280;spending?hours=20"
    box(first, "batch").fill("64")
    assert page.tab.evaluate("location.hash") == "#spending?hours=20"
    address = other.locator(".calculator-address")  # each was started once
    assert address.get_attribute("href") == "#spending?hours=20"
    assert page.figure.locator(".calculator-address").count() == 3
    before = said(first)
    second.locator("summary").click()
    box(second, "capacity").fill("40")
    assert said(first) == before != said(second)
    ids = page.tab.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids)) > 10


def test_what_has_not_changed_is_not_said_again(lone):
    """A screen reader says the result whenever it is written, the same one too."""
    figure = opened(lone, "explorer").figure
    figure.evaluate("""root => {
        root.written = 0;
        new MutationObserver((changes) => { root.written += changes.length; }).observe(
            root.querySelector(".calculator-said"), { childList: true });
    }""")
    for stages, written in (("4", 0), ("5", 1), ("5", 1)):
        box(figure, "stages").evaluate(
            """(e, value) => {
                e.value = value;
                e.dispatchEvent(new Event("input", { bubbles: true }));
            }""",
            stages,
        )
        assert figure.evaluate("root => root.written") == written


def test_numbers_are_read_as_people_write_them(lone):
    figure = opened(lone, "scaling").figure
    batch = box(figure, "batch")
    batch.fill("1048576")
    plain = said(figure)
    for text in ("1,048,576", " 1 048 576 ", "1.048576e6", "+1_048_576.0"):
        batch.fill(text)
        assert said(figure) == plain
    batch.press("Tab")
    assert batch.input_value() == "1,048,576"


HELD = "e => [e.tagName, e.value, e.dataset.size]"


@pytest.mark.parametrize("kind", TYPED)
def test_an_option_fills_the_fields(lone, kind):
    """All options of the lists "Start from ...": each makes sense, not all alike."""
    figure = opened(lone, kind).figure
    starts = [f for f in MODULES[kind].FIELDS if isinstance(f, Start)]
    for start in starts:
        listed = figure.get_by_role("combobox", name=start.label, exact=True)
        seen = set()
        for text, values in start.options.items():
            listed.select_option(label=text)
            assert figure.locator(".calculator-wrong:visible").count() == 0, text
            for name, value in values.items():
                tag, held, size = box(figure, name).evaluate(HELD)
                if tag == "SELECT":
                    assert float(held) == value
                else:
                    typed = float(held.replace(",", "")) * float(size)
                    assert typed == pytest.approx(value, rel=1e-12)
            seen.add(tuple(values.values()))
        assert len(seen) >= 2


@pytest.mark.parametrize("kind", ["scaling", "spending"])
def test_a_price_has_a_day_and_a_source(lone, kind):
    figure = opened(lone, kind).figure
    note = figure.locator(".calculator-note")
    first = note.text_content()
    assert " on 20" in first
    listed = figure.get_by_role("combobox", name="Start from the price")
    listed.select_option(index=4)
    assert note.text_content() != first
    assert note.locator("a").get_attribute("href").startswith("https://")
    box(figure, "price").fill("1")  # another price has another source
    assert note.locator("a").count() == 0
    assert listed.evaluate("e => e.selectedOptions[0].text") == OWN


@pytest.mark.parametrize("kind", KINDS)
def test_it_takes_the_ink_of_both_themes_and_moves_nothing(lone, kind):
    page = opened(lone, kind, color_scheme="dark", reduced_motion="reduce")
    parts = {".calculator-said": "color", "input, select": "color"}
    parts |= {"td": "color"} if kind != "explorer" else {"svg path": "stroke"}
    parts |= {".calculator-picture text": "fill"} if kind != "chooser" else {}
    for theme in ("dark", "light", "dark"):
        page.tab.emulate_media(color_scheme=theme)
        ink = page.tab.evaluate("getComputedStyle(document.body).color")
        for part, what in parts.items():
            found = page.figure.locator(part).first
            assert found.evaluate(f"e => getComputedStyle(e).{what}") == ink, part
    page.figure.locator("select").first.press("ArrowDown")
    assert page.tab.evaluate("document.getAnimations().length") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_it_fits_a_phone_and_can_be_touched(lone, kind):
    small = {"width": 390, "height": 844}
    page = opened(lone, kind, viewport=small, has_touch=True)
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 390
    for part in page.figure.locator("input, select, .calculator-picture > svg").all():
        found = part.bounding_box()
        assert found["x"] >= 0
        assert found["x"] + found["width"] <= 390
        assert found["height"] >= 24
    page.tab.set_viewport_size({"width": 900, "height": 844})
    if kind != "chooser":
        wide = "document.querySelector('.calculator-picture svg').viewBox.baseVal.width"
        page.tab.wait_for_function(f"{wide} > 800")
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 900


SCROLLERS = ROOT / "workshop" / "static" / "scrollers.js"


@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing(lone, kind):
    """On both themes, at both widths, and while a field complains."""
    page = opened(lone, kind)
    page.tab.evaluate(AXE.read_text(encoding="utf-8"))
    page.tab.evaluate(SCROLLERS.read_text(encoding="utf-8"))  # as each page has it
    page.tab.evaluate("document.dispatchEvent(new Event('DOMContentLoaded'))")
    find = "async () => (await axe.run()).violations.map(v => [v.id, v.nodes[0].html])"
    for width, theme in ((390, "dark"), (1280, "light"), (390, "light")):
        page.tab.set_viewport_size({"width": width, "height": 900})
        page.tab.emulate_media(color_scheme=theme)
        page.tab.evaluate(FRAMES)  # what was resized is looked at in the next one
        assert page.tab.evaluate(find) == [], (width, theme)
    if kind in TYPED:
        box(page.figure, "devices").fill("many")
        page.tab.evaluate(FRAMES)
        assert page.tab.evaluate(find) == []
