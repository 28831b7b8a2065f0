"""A stepper's frames are checked, and its HTML holds all that a page needs."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import tensorflow as tf
from bs4 import BeautifulSoup
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.widgets import stepper
from manygpu.widgets.stepper import Frame

ALT = "Device 1 sends its numbers to device 0, which adds them."
SVG = "{http://www.w3.org/2000/svg}"


def two_frames() -> list[Frame]:
    """Device b sends 2 to device a, which holds 3 then."""
    return [
        Frame("Each holds its own.", {"a": [1], "b": [2]}),
        Frame("b sends to a.", {"a": [3], "b": [2]}, [("b", "a", "2")]),
    ]


def soup(frames: list[Frame]) -> BeautifulSoup:
    return BeautifulSoup(stepper.stepper_html(frames, ALT), "html.parser")


def data(frames: list[Frame]) -> list[dict]:
    """The frames as the script reads them."""
    found = soup(frames).select_one('script[type="application/json"]')
    return json.loads(found.string)["frames"]


def picture(frames: list[Frame]) -> ET.Element:
    """The picture, parsed as XML: it must be well formed."""
    html = stepper.stepper_html(frames, ALT)
    return ET.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])


# Frame


def test_a_frame_keeps_what_it_was_given_as_texts():
    frame = Frame("start", {"a": [1, 0.5, "x", ""], "b": np.array([2, 3, 4, 1e6])})
    assert frame.cells == {"a": ("1", "0.5", "x", ""), "b": ("2", "3", "4", "1e+06")}
    assert Frame("start", {"a": tf.constant([1.5, 2.0])}).cells == {"a": ("1.5", "2")}


def test_a_frame_does_not_change_with_what_it_was_made_from():
    cells, messages = {"a": [1], "b": [2]}, [("a", "b", "1")]
    frame = Frame("start", cells, messages)
    cells["a"][0] = 7
    messages.clear()
    assert frame.cells["a"] == ("1",)
    assert frame.messages == (("a", "b", "1"),)


# stepper_html


def test_the_data_holds_each_frame_and_what_it_changed():
    first, second = data(two_frames())
    assert first["caption"] == "Each holds its own."
    assert first["values"] == ["1", "2"]
    assert first["changed"] == first["messages"] == []
    assert second["values"] == ["3", "2"]
    assert second["changed"] == [0]
    assert [m["text"] for m in second["messages"]] == ["2"]


def test_without_a_script_the_last_frame_and_all_captions_are_there():
    page = soup(two_frames())
    assert [t.string for t in page.select(".stepper-cell text")] == ["3", "2"]
    assert [i.string for i in page.select("ol li")] == [f.caption for f in two_frames()]
    assert "b sends to a." in page.select_one(".stepper-caption").string
    assert page.select_one(".stepper-buttons").has_attr("hidden")
    assert len(page.select(".stepper-messages path")) == 1


def test_the_ways_of_all_messages_stay_in_sight():
    """Also where a step has none: no empty space, and the figure says what it is."""
    picture_of_first = soup(two_frames()[:1])
    assert picture_of_first.select(".stepper-routes") == []
    page = soup(two_frames())
    assert page.select_one(".stepper-routes")["d"].count("M") == 2  # way and head
    what = ALT.removesuffix(".")
    assert page.figure["aria-label"] == f"{what}, in 2 pictures"


def test_the_figure_is_said_and_its_buttons_are_named():
    page = soup(two_frames())
    assert page.svg["role"] == "img"
    assert page.svg["aria-label"] == ALT
    assert page.figure["tabindex"] == "0"
    assert page.select_one("[aria-live=polite]")
    assert [b["data-step"] for b in page.select("button")] == [
        "previous",
        "play",
        "next",
    ]
    assert all(b["aria-label"].startswith(b.string) for b in page.select("button"))


def test_nothing_is_fetched_and_nothing_has_an_id():
    """So that many steppers, and the same one twice, can share a page."""
    html = stepper.stepper_html(two_frames(), ALT)
    assert soup(two_frames()).select("[id], [src], [href]") == []
    assert set(re.findall(r"https?://[^\"' )]+", html)) == {
        "http://www.w3.org/2000/svg"  # a name, not an address
    }


def test_text_that_looks_like_markup_stays_text():
    evil = "</script><b>&\"'"
    frames = [
        Frame(evil, {evil: [1], "b": [evil]}),
        Frame(evil, {evil: [2], "b": [evil]}, [("b", evil, evil)]),
    ]
    page = soup(frames)
    assert page.select("b") == []
    assert len(page.select("script")) == 2
    assert data(frames)[1]["messages"][0]["text"] == evil
    assert evil in [t.text for t in picture(frames).iter(f"{SVG}text")]


def test_a_caption_comes_last_and_a_name_leads_to_it():
    html = stepper.stepper_html(two_frames(), ALT, "2 < 3.", "sum")
    figure = BeautifulSoup(html, "html.parser").figure
    assert figure.find_all(recursive=False)[-1].get_text() == "2 < 3."
    assert figure["data-name"] == "sum"
    assert html.startswith('<figure class="manygpu-figure manygpu-stepper" data-name=')
    assert soup(two_frames()).figcaption is None


def test_stepper_shows_its_html(monkeypatch):
    shown = []
    monkeypatch.setattr(stepper, "display", shown.append)
    stepper.stepper(two_frames(), ALT, "A sum.", "sum")
    assert shown[0].data == stepper.stepper_html(two_frames(), ALT, "A sum.", "sum")


@st.composite
def films(draw) -> list[Frame]:
    """Frames of some devices and rows, with some messages between them."""
    names = [f"device {i}" for i in range(draw(st.integers(1, 8)))]
    rows = draw(st.integers(1, 5))
    pairs = [(a, b) for a in names for b in names if a != b]
    text = st.text("0123456789.,-", max_size=12)
    frames = []
    for k in range(draw(st.integers(1, 4))):
        cells = {
            name: draw(st.lists(text, min_size=rows, max_size=rows)) for name in names
        }
        some = st.lists(st.sampled_from(pairs), max_size=3) if pairs else st.just([])
        messages = [(a, b, draw(text)) for a, b in draw(some)]
        frames.append(Frame(f"frame {k}", cells, messages))
    return frames


@given(films())
@settings(deadline=None, max_examples=60)
def test_everything_drawn_lies_inside_the_picture(frames):
    """Cells, arrows and their labels; and cells don't overlap each other."""
    svg = picture(frames)
    _, _, width, height = map(float, svg.get("viewBox").split())
    boxes = []
    for rect in svg.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
        boxes.append((x, y, x + w, y + h))
    for i, (left, top, right, bottom) in enumerate(boxes):
        for x1, y1, x2, y2 in boxes[:i]:
            assert x2 <= left or right <= x1 or y2 <= top or bottom <= y1
    for frame in data(frames):
        for message in frame["messages"]:
            assert 12 <= message["y"] <= height - 2
            half = 4 * len(message["text"])
            assert half <= message["x"] <= width - half
            ends = re.findall(
                r"[ML ]?(-?[\d.]+) (-?[\d.]+)(?=[CML]|$)", message["path"]
            )
            assert all(0 <= float(x) <= width for x, _ in ends)
            assert all(0 <= float(y) <= height for _, y in ends)


def test_a_column_is_as_wide_as_its_longest_text():
    """So is the way between columns: a message's text lies there."""
    for length in (1, 10, 30):
        frame = Frame("x", {"a": ["9" * length], "b": [2]}, [("b", "a", "2")])
        widths = [float(r.get("width")) for r in picture([frame]).iter(f"{SVG}rect")]
        assert min(widths) >= 7 * length


def test_a_message_bends_as_far_as_its_text():
    """The middle of a cubic is three quarters of the way to its handles."""
    for names in (("b", "a"), ("a", "b")):
        frame = Frame("x", {"a": [1], "b": [2]}, [(*names, "2")])
        (message,) = data([frame])[0]["messages"]
        y, bend = map(
            float, re.search(r"M\S+ (\S+)C\S+ (\S+)", message["path"]).groups()
        )
        middle = y + 3 / 4 * (bend - y)
        assert 0 < abs(message["y"] - middle) < 20
        assert abs(message["y"] - y) > abs(middle - y)
