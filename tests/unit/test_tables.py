"""A table of results: as HTML, as text, and what it refuses."""

import numpy as np
import pytest
from bs4 import BeautifulSoup

from manygpu import tables

COLUMNS = {"strategy": "", "time [s]": ".2f", "memory [MB]": ".1f", "equal": ""}
ROWS = [
    ("one device", (1.2, 1.1, 1.4), 12.0, True),
    ("data <k>", (0.55, 0.5, 0.62), 24.0, True),
    ("network", (0.6, 0.53, 0.66), None, False),
]
MARKS = {"bars": ["memory [MB]"], "best": {"time [s]": min, "memory [MB]": max}}


def made(rows=ROWS, columns=COLUMNS, bars=(), best=None) -> list[tables.Column]:
    return tables.columns_of(rows, columns, bars, best or {})


def page(*args, caption: str = "", name: str = "", **marks) -> BeautifulSoup:
    return BeautifulSoup(
        tables.table_html(made(*args, **marks), caption, name), "html.parser"
    )


def texts(cells) -> list[str]:
    return [" ".join(cell.get_text().split()) for cell in cells]


@pytest.mark.parametrize(
    ("values", "wanted"), [([3], (3, 3, 3)), ((4, 1, 2.5), (2.5, 1, 4))]
)
def test_a_spread_is_the_median_the_least_and_the_largest(values, wanted):
    assert tables.spread(values) == wanted
    assert tables.spread(iter(values)) == wanted


def test_headers_and_cells_are_written_as_asked_and_digits_stand_below_digits():
    found = page()
    assert texts(found.select("thead th[scope=col]")) == list(COLUMNS)
    assert texts(found.select("tbody th[scope=row]")) == [row[0] for row in ROWS]
    assert [unit.get_text() for unit in found.select("th .unit")] == ["[s]", "[MB]"]
    rows = found.select("tbody tr")
    assert [texts(row.select("td")) for row in rows] == [
        ["1.20 (1.10–1.40)", "12.0", "yes"],
        ["0.55 (0.50–0.62)", "24.0", "yes"],
        ["0.60 (0.53–0.66)", "–", "no"],
    ]
    looks = [cell["style"] for cell in rows[2].find_all(["th", "td"])]
    assert ["right" in look for look in looks] == [False, True, True, False]
    assert all("tabular-nums" in look for look in looks[1:3])
    assert found.caption is None and not found.div.has_attr("data-name")
    assert found.tfoot is None and found.select(".bar, strong") == []


@pytest.mark.parametrize(
    ("number", "spec", "wanted"),
    [
        (1810.4, ".3g", "1,810"),
        (100, ".2g", "100"),
        (0.604, ".3g", "0.604"),
        (6.1e-5, ".2g", "6.1e-05"),
        (1.9e11, ".2g", "1.9e+11"),
        (1810.4, ".0e", "2e+03"),
        (1024, "d", "1,024"),
        (1024, "", "1,024"),
        (-1578.75, ".1f", "-1,578.8"),
        (12.5, ".0%", "1,250%"),
        (1234567, ",d", "1,234,567"),
        (0.12345, "", "0.12345"),
        (999.5, ".1f", "999.5"),
    ],
)
def test_a_number_that_has_room_has_all_its_digits(number, spec, wanted):
    assert texts(page([("a", number)], {"x": "", "y": spec}).select("td")) == [wanted]


def test_a_link_is_a_short_text_with_an_address():
    link = tables.Link("a <list>", 'https://host/?a="1"&b=2')
    (found,) = page([("a", link)], ["x", "y"]).select("td a")
    assert (found.get_text(), found["href"]) == ("a <list>", 'https://host/?a="1"&b=2')
    assert "a <list>" in tables.to_text(made([("a", link)], ["x", "y"]))


def test_on_a_phone_long_texts_take_several_lines_and_units_one_of_their_own():
    rows = [("w" * 30, 1), ("long " * 60, 2)]
    found = page(rows, ["about", "two words of it [MB]"])
    looks = [cell["style"] for cell in found.select("thead th")]
    assert "--least:23ch" in looks[0] and "--least:6ch" in looks[1]
    rows = [("a", "2026-11-22"), ("b", "a text of several words")]
    looks = [cell["style"] for cell in page(rows, ["x", "y"]).select("td")]
    assert ["nowrap" in look for look in looks] == [True, False]


def test_names_in_backticks_are_code_on_a_page_and_a_zero_is_0():
    found = page([("use `train`", 0.0, "2 device(s)")], {"a": "", "b": ".1e", "c": ""})
    assert found.th.find_next("tbody").code.get_text() == "train"
    assert texts(found.select("tbody td")) == ["0", "2 devices"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gathered_before_use", "gathered_<wbr/>before_use"),
        ("tf.keras.layers.Dense", "tf.keras.<wbr/>layers.Dense"),
        ("a/path/that/is/long", "a/path/that/<wbr/>is/long"),
        ("short_name: a_b", "short_name: a_b"),
        ("a sentence that ends. And 3.14159265358979", None),
        ("`bucket_cap_mb=25`, only", "<code>bucket_cap_<wbr/>mb=25</code>, only"),
        ("<a>&the_name", "&lt;a&gt;&amp;the_name"),
    ],
)
def test_a_long_name_breaks_after_its_parts_and_is_copied_as_it_is(text, wanted):
    (cell,) = page([("a", text)], ["x", "y"]).select("td")
    assert cell.decode_contents() == (text if wanted is None else wanted)
    assert cell.get_text() == text.replace("`", "")


def test_what_is_longer_than_a_page_is_in_a_fold():
    columns = tables.columns_of([(i, 9 - i) for i in range(9)], ["a", "b"], "", {})
    found = BeautifulSoup(tables.table_html(columns, "Nine.", "nine", 4), "html.parser")
    seen, folded = found.select("table")
    assert (len(seen.select("tbody tr")), len(folded.select("tbody tr"))) == (4, 5)
    assert folded.find_parent("details").summary.get_text() == "5 more rows"
    assert texts(seen.select("th[scope=col]")) == texts(folded.select("th[scope=col]"))
    assert [len(found.select(mark)) for mark in ("caption", "[data-name]")] == [1, 1]
    assert "details" not in tables.table_html(columns, first=9)


def test_all_text_is_escaped():
    rows = [("<b>a</b>", "x & y")]
    html = tables.table_html(made(rows, ["<i>h</i>", "[<u>]"]), "<script>")
    found = BeautifulSoup(html, "html.parser")
    assert not found.find(["b", "i", "u", "script"])
    assert texts(found.select("tbody tr > *")) == ["<b>a</b>", "x & y"]
    assert found.caption.get_text() == "<script>"


def test_a_caption_and_a_name_are_there_if_given():
    found = page(caption="Times  of\na step", name="times")
    assert found.caption["class"] == ["manygpu-caption"]
    assert found.caption.get_text() == "Times of a step"
    assert str(found).startswith('<div class="manygpu-table" data-name="times"><table>')


def test_a_bar_is_a_share_of_the_columns_largest_and_is_not_read_aloud():
    bars = page(**MARKS).select(".bar")
    assert "width:50.0%" in bars[0]["style"] and "width:100.0%" in bars[1]["style"]
    assert len(bars) == 2  # nothing is known of the third
    assert all(bar["aria-hidden"] == "true" for bar in bars)
    (none,) = page([("a", 0)], ["x", "n"], bars=["n"]).select(".bar")
    assert "width:0.0%" in none["style"]


def starred(column: tables.Column) -> list[int]:
    return [i for i, marked in enumerate(column.marked) if marked]


def test_the_best_is_marked_in_words_and_not_by_colour_alone():
    found = page(**MARKS)
    best = found.select("td:has(strong)")
    assert texts(best) == ["★ 0.55 (0.50–0.62)", "★ 24.0", "★ 0.60 (0.53–0.66)"]
    stars = [cell.select_one("[role=img]")["aria-label"] for cell in best]
    assert stars == ["best"] * 3
    assert "its spread reaches it" in found.tfoot.get_text()


def test_what_the_spread_can_not_tell_from_the_best_is_marked_too():
    assert starred(made(best={"time [s]": min})[1]) == [1, 2]
    assert starred(made(best={"time [s]": max})[1]) == [0]
    apart = [("a", (2, 1.6, 2.4)), ("b", (1.5, 1.4, 1.7)), ("c", (1.9, 1.8, 2.0))]
    assert starred(made(apart, ["x", "n"], best={"n": max})[1]) == [0, 2]


def test_where_all_could_be_the_best_none_is_marked():
    same = [("a", (2, 1, 3)), ("b", (2.5, 1, 4)), ("c", (3, 2, 4))]
    assert starred(made(same, ["x", "n"], best={"n": min})[1]) == []
    assert page(same, ["x", "n"], best={"n": min}).tfoot is None


def test_what_is_written_the_same_is_as_good():
    rows = [("a", 1.001), ("b", 1.002), ("c", 1.2)]
    assert starred(made(rows, {"x": "", "n": ".1f"}, best={"n": min})[1]) == [0, 1]
    found = page(rows, {"x": "", "n": ".1f"}, best={"n": min})
    assert texts([found.tfoot]) == ["★ best of its column"]


@pytest.mark.parametrize("unknown", [None, float("nan"), float("inf"), "not counted"])
def test_what_is_not_known_is_no_best_and_has_no_bar(unknown):
    columns = made([("a", unknown), ("b", 2)], ["x", "n"], ["n"], {"n": max})
    assert starred(columns[1]) == [1]
    assert columns[1].shares == [None, 1.0]


def test_numpys_numbers_are_numbers():
    rows = [("a", np.float32(0.5), np.int64(3), np.bool_(True))]
    found = page(rows, {"x": "", "f": ".1f", "n": "d", "b": ""})
    assert texts(found.select("td")) == ["0.5", "3", "yes"]


def test_as_text_it_is_a_table_too():
    columns = made(best={"memory [MB]": max})
    assert tables.to_text(columns, "What it costs") == "\n".join(
        [
            "What it costs",
            "strategy            time [s]  memory [MB]  equal",
            "one device  1.20 (1.10–1.40)         12.0  yes",
            "data <k>    0.55 (0.50–0.62)       ★ 24.0  yes",
            "network     0.60 (0.53–0.66)            –  no",
            "★ best of its column",
        ]
    )


def test_it_is_shown_as_html_with_the_text_beside(monkeypatch):
    shown = []
    monkeypatch.setattr(
        "IPython.display.display", lambda data, raw: shown.append((data, raw))
    )
    monkeypatch.setattr("IPython.get_ipython", lambda: "a notebook's")
    tables.table(ROWS, COLUMNS, "What it costs", name="costs", **MARKS)
    columns = made(**MARKS)
    page = {
        "text/html": tables.table_html(columns, "What it costs", "costs"),
        "text/plain": tables.to_text(columns, "What it costs"),
    }
    assert shown == [(page, True)]
