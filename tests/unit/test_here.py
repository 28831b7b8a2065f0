"""Lines that say what a result shows, with numbers that fall on either side."""

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manygpu import here


@pytest.mark.parametrize(
    ("values", "spec", "said"),
    [
        ([0.31, 0.38, 0.44], ".0%", "38% (31% to 44%)"),
        ([3, 1, 2], ".0f", "2 (1 to 3)"),
        (0.5, ".2f", "0.50"),
        ([0.501, 0.502], ".1f", "0.5"),  # no range to see
    ],
)
def test_a_measurement_comes_with_its_range(values, spec, said):
    assert here.measured(values, spec) == said


@pytest.mark.parametrize(
    ("values", "foreseen", "said"),
    [
        ([1.0, 2.0, 3.0], 2.5, "2.0 (1.0 to 3.0), foreseen 2.5: inside the range"),
        ([1.0, 2.0, 3.0], 3.5, "2.0 (1.0 to 3.0), foreseen 3.5: every round is below"),
        ([1.0, 2.0, 3.0], 0.5, "2.0 (1.0 to 3.0), foreseen 0.5: every round is above"),
        ([1.0, 2.0, 3.0], 2.01, "2.0 (1.0 to 3.0), foreseen 2.0"),
        (2.0, 1.0, "2.0, foreseen 1.0: it is above"),
        (2.0, 3.0, "2.0, foreseen 3.0: it is below"),
    ],
)
def test_what_was_foreseen_is_told_on_its_side(values, foreseen, said):
    assert here.against(values, foreseen, ".1f") == said


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ([1.31, 1.43, 1.5], "1.43 times as fast as one (1.31 to 1.50)"),
        ([0.5, 0.6, 0.7], "0.60 times as fast as one (0.50 to 0.70)"),
        ([0.94, 1.0, 1.07], "as fast as one, but for noise (0.94 to 1.07 times)"),
        (1.2, "1.20 times as fast as one"),
    ],
)
def test_a_ratio_says_whether_it_is_one(ratios, said):
    assert here.times(ratios, "as fast as one") == said


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ([1, 1, 1, 1, 3], "faster in 4 of 5 rounds"),
        ([3, 3, 3, 3, 1], "slower in 4 of 5 rounds"),
        ([1, 1, 1, 3, 3], "faster in 3 of 5 rounds, which is noise"),
        ([2, 2, 2, 2, 2], "faster in 0 of 5 rounds, which is noise"),
    ],
)
def test_rounds_are_won_lost_or_neither(own, said):
    assert here.faster(own, [2] * 5) == said


def test_a_bound_that_is_missed_is_told():
    assert here.under(1e-16, 1e-12) == "1.0e-16, below 1.0e-12"
    assert here.under(0.2, 0.1, ".1f") == "0.2, NOT below 0.1"
    assert here.under(math.nan, 0.1, ".1f") == "nan, NOT below 0.1"


@pytest.mark.parametrize("nothing", [0, 0.0, -0.0, np.float32(0)])
def test_only_a_zero_is_told_as_exact(nothing):
    assert here.under(nothing, 1e-12) == "exactly 0, below 1.0e-12"
    assert here.under(1e-5, 0.1, ".2f") == "0.00, below 0.10"


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: here.show("  "), "text"),
        (lambda: here.measured([]), "values"),
        (lambda: here.times([0.0, 1.0], "as fast"), "ratios"),
        (lambda: here.faster([1], [1, 2]), "own and other"),
        (lambda: here.faster([], []), "own and other"),
    ],
)
def test_what_says_nothing_is_refused(call, argument):
    with pytest.raises(ValueError, match=argument):
        call()


def test_a_line_is_escaped_and_ends(monkeypatch):
    shown = []
    monkeypatch.setattr("manygpu._page.show", lambda *both: shown.append(both))
    here.show("1 < 2\n  of them")
    here.show("done!")
    expected = '<p class="manygpu-here"><b>Here:</b> 1 &lt; 2 of them.</p>'
    assert shown[0] == (expected, "Here: 1 < 2 of them.")
    assert shown[1][1] == "Here: done!"


def test_without_a_notebook_it_is_printed(capsys):
    here.show("1 < 2")
    assert capsys.readouterr().out == "Here: 1 < 2.\n"


@pytest.mark.parametrize(
    ("value", "spec", "least", "most"),
    [
        (47.76, ".0f", "47", "48"),
        (0.432, ".0%", "43%", "44%"),
        (1.2174, ".2f", "1.21", "1.22"),
        (1.25, ".2f", "1.25", "1.25"),  # nothing was rounded
        (-0.996, ".2f", "-1.00", "-0.99"),
        (3.16e-16, ".0e", "3e-16", "4e-16"),
        (9.96e-3, ".1e", "9.9e-03", "1.0e-02"),
        (1234.6, ",.0f", "1,234", "1,235"),
        (0.57, ".0%", "57%", "57%"),
        (0.07, ".0%", "7%", "7%"),
        (0, ".0e", "0e+00", "0e+00"),
        (math.inf, ".2f", "inf", "inf"),
    ],
)
def test_a_bound_is_rounded_to_its_own_side(value, spec, least, most):
    assert (here.least(value, spec), here.most(value, spec)) == (least, most)


@given(
    st.floats(-1e6, 1e6, allow_subnormal=False),
    st.sampled_from([".0f", ".3f", ".1%", ".2e", ",.1f"]),
)
def test_a_bound_bounds_and_is_as_near_as_its_digits_allow(value, spec):
    low, high = (number(f(value, spec)) for f in (here.least, here.most))
    rounding = Decimal(abs(value)) / 10**11
    assert low - rounding <= Decimal(value) <= high + rounding
    twelve = f"{float(f'{value:.12g}'):{spec}}"
    assert number(twelve) in (low, high)


def number(text):
    return Decimal(text.rstrip("%").replace(",", "")) / (100 if "%" in text else 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("on 1 device(s)", "on 1 device."),
        ("on 2 device(s)", "on 2 devices."),
        ("on 11 device(s)", "on 11 devices."),
        (f"off by {here.under(0, 1e-9)}", "off by exactly 0, below 1.0e-09."),
        ("off by 10.0e+00", "off by 10.0e+00."),
    ],
)
def test_a_line_is_plain_whatever_its_numbers_are(text, said, capsys):
    here.show(text)
    assert capsys.readouterr().out == f"Here: {said}\n"


def test_a_number_does_not_break_at_its_minus(monkeypatch):
    shown = []
    monkeypatch.setattr(here._page, "show", lambda page, text: shown.append(page))
    here.show("off by 1.0e-08, of -3")
    assert 'by <span style="white-space:nowrap">1.0e-08</span>, of -3.' in shown[0]


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("from 2^17 to 2^-28", "from 2<sup>17</sup> to 2<sup>−28</sup>."),
        ("a scale of 2^30", "a scale of 2<sup>30</sup>."),  # the full stop is no point
        ("`2^17` is code", "<code>2^17</code> is code."),
        ("x^2, 2^q, 2^0.5 and 2^3^4", "x^2, 2^q, 2^0.5 and 2^3^4."),
    ],
)
def test_a_power_of_two_is_raised_on_a_page_only(text, page, monkeypatch):
    shown = []
    monkeypatch.setattr(here._page, "show", lambda *both: shown.append(both))
    here.show(text)
    assert shown == [
        (f'<p class="manygpu-here"><b>Here:</b> {page}</p>', f"Here: {text}.")
    ]


def test_names_in_backticks_are_code_on_a_page(monkeypatch):
    shown = []
    monkeypatch.setattr(
        here._page, "show", lambda page, text: shown.append((page, text))
    )
    here.show("`fit` leaves a < 1")
    page, text = shown[0]
    assert page.endswith("<b>Here:</b> <code>fit</code> leaves a &lt; 1.</p>")
    assert text == "Here: `fit` leaves a < 1."
