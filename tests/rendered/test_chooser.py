"""The chooser's script finds what the rule says."""

from __future__ import annotations

import pytest

from manygpu.choosing import presets as grid
from manygpu.choosing.question import Setting
from manygpu.choosing.tree import choose
from tests.rendered.calculators import asked, assert_words_are_pythons, drawn, opened

pytestmark = pytest.mark.rendered


def choice_of(values: dict):
    machine = grid.machine(values["cluster"], values["device"])
    model = grid.MODELS[values["model"]]
    return choose(Setting(model, machine, values["batch"], values["goal"]))


def test_its_answers_are_the_rule_s(lone):
    figure, settings = opened(lone, "chooser").figure, drawn("chooser", 240)
    nothing = 0
    for values, found in zip(settings, asked(figure, "work", settings), strict=True):
        choice = choice_of(values)
        assert found["reasons"] == [list(reason) for reason in choice.reasons], values
        assert found["chapters"] == list(choice.chapters), values
        if choice.plan is None:
            assert found["words"] == "", values
            nothing += 1
            continue
        assert found["words"] == choice.plan.words, values
        for name, said in (("seconds", "seconds"), ("memory", "memory")):
            assert found[name] == pytest.approx(getattr(choice, said), rel=1e-5)
        assert found["dollars"] == pytest.approx(choice.cost, rel=1e-5), values
    assert 20 <= nothing <= 220
    assert_words_are_pythons(figure, "chooser", settings[:20])


def test_each_list_changes_the_answer_by_keyboard(lone):
    page = opened(lone, "chooser")
    for name in ("model", "cluster", "device", "batch", "goal"):
        page.tab.keyboard.press("Tab")
        assert page.tab.evaluate("document.activeElement.name") == name
        before = page.figure.locator(".calculator-result").text_content()
        page.tab.keyboard.press("ArrowDown" if name == "goal" else "ArrowUp")
        assert page.figure.locator(".calculator-result").text_content() != before


def test_chapters_are_led_to(lone):
    figure = opened(lone, "chooser").figure
    links = figure.locator(".calculator-links a")
    assert links.count() >= 1
    for link in links.all():
        assert link.get_attribute("href").startswith("../")
        assert link.get_attribute("href").endswith(".html")
        assert link.bounding_box()["height"] >= 24


def test_nothing_fits_is_said(lone):
    figure = opened(lone, "chooser").figure
    for name, option in (("Model", "174 B, transformer"), ("Devices", "1 GPU")):
        figure.get_by_role("combobox", name=name, exact=True).select_option(option)
    said = figure.locator(".calculator-said").text_content()
    assert said.startswith("Nothing fits")
    assert figure.locator("tbody").first.text_content() == "none–––"
