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


def arrows(frame: dict) -> list[dict]:
    """Path, text and place of each message that the script puts into the picture."""
    found = BeautifulSoup(frame["messages"], "html.parser")
    return [
        {"path": path["d"], "text": text.text}
        | {name: float(text[name]) for name in ("x", "y")}
        for path, text in zip(found("path"), found("text"), strict=True)
    ]


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


def test_the_figure_says_what_it_is_and_fetches_nothing(monkeypatch):
    """No id, so that many steppers, and the same one twice, can share a page."""
    shown = []
    monkeypatch.setattr(stepper, "display", shown.append)
    stepper.stepper(two_frames(), ALT, "2 < 3.", "sum")
    html = shown[0].data
    page = BeautifulSoup(html, "html.parser")
    assert page.select("[id], [src], [href]") == []
    assert set(re.findall(r"https?://[^\"' )]+", html)) == {
        "http://www.w3.org/2000/svg"  # a name, not an address
    }
    assert page.figure["aria-label"] == f"{ALT.removesuffix('.')}, in 2 pictures"
    assert page.figure["tabindex"] == "0"
    assert page.svg["role"] == "img" and page.svg["aria-label"] == ALT
    assert page.select_one("[aria-live=polite]")
    assert all(b["aria-label"].startswith(b.string) for b in page.select("button"))
    assert page.figure["data-name"] == "sum"
    assert page.figure.find_all(recursive=False)[-1].get_text() == "2 < 3."
    assert soup(two_frames()).figcaption is None


def test_the_ways_of_all_messages_stay_in_sight():
    """Also where a step has none: no empty space."""
    assert soup(two_frames()[:1]).select(".stepper-routes") == []
    page = soup(two_frames())
    assert page.select_one(".stepper-routes")["d"].count("M") == 2  # way and head


def test_text_that_looks_like_markup_stays_text():
    evil = "</script><b>&\"'"
    frames = [
        Frame(evil, {evil: [1], "b": [evil]}),
        Frame(evil, {evil: [2], "b": [evil]}, [("b", evil, evil)]),
    ]
    page = soup(frames)
    assert page.select("b") == []
    assert len(page.select("script")) == 2
    assert arrows(data(frames)[1])[0]["text"] == evil
    assert evil in [t.text for t in picture(frames).iter(f"{SVG}text")]


@st.composite
def films(draw) -> list[Frame]:
    """Frames of some devices and rows, with some messages between them."""
    names = [f"device {i}" for i in range(draw(st.integers(1, 8)))]
    rows = draw(st.integers(1, 5))
    pairs = [(a, b) for a in names for b in names if a != b]
    text = st.text("0123456789.,-", max_size=30)
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
    """Cells, arrows and their labels; and cells, as wide as their texts, lie apart.

    A message's text lies where its way bends: the middle of a cubic is three quarters
    of the way to its handles.
    """
    svg = picture(frames)
    _, _, width, height = map(float, svg.get("viewBox").split())
    boxes, texts = [], [t for frame in frames for c in frame.cells.values() for t in c]
    texts += [text for frame in frames for *_, text in frame.messages]
    for rect in svg.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
        assert w >= 7 * max(map(len, texts))
        boxes.append((x, y, x + w, y + h))
    for i, (left, top, right, bottom) in enumerate(boxes):
        for x1, y1, x2, y2 in boxes[:i]:
            assert x2 <= left or right <= x1 or y2 <= top or bottom <= y1
    for frame in data(frames):
        for message in arrows(frame):
            assert 12 <= message["y"] <= height - 2
            half = 4 * len(message["text"])
            assert half <= message["x"] <= width - half
            ends = re.findall(
                r"[ML ]?(-?[\d.]+) (-?[\d.]+)(?=[CML]|$)", message["path"]
            )
            assert all(0 <= float(x) <= width for x, _ in ends)
            assert all(0 <= float(y) <= height for _, y in ends)
            y, bend = map(
                float, re.search(r"M\S+ (\S+)C\S+ (\S+)", message["path"]).groups()
            )
            middle = y + 3 / 4 * (bend - y)
            assert 0 < abs(message["y"] - middle) < 20
            assert abs(message["y"] - y) > abs(middle - y)
