"""What the rest of the package refuses: measures, pictures, timelines, widgets."""

import math

import numpy as np
import pytest
import tensorflow as tf
from matplotlib import pyplot as plt

import manygpu
from manygpu import figures, measure, tables
from manygpu._devices import StartedError
from manygpu.costs import layer_costs
from manygpu.scratch import init_params
from manygpu.scratch.splitting.network import Layer, lenet_layers
from manygpu.trace import spans
from manygpu.trace.gantt import gantt
from manygpu.trace.placement import Piece, Placement
from manygpu.trace.spans import Span, clocked
from manygpu.trace.timeline import Timeline
from manygpu.widgets import pipeline, stepper
from manygpu.widgets.stepper import Frame
from tests import refusals
from tests.refusals import good
from tests.unit.helpers import EIGHT

NAN, INF = math.nan, math.inf
A, B = EIGHT[:2]
ALT = "Device 1 sends its numbers to device 0, which adds them."


def axes(label: str = "") -> plt.Axes:
    _, ax = figures.subplots()
    ax.plot([0, 1], label=label)
    return ax


def drawn(**arguments) -> None:
    gantt(ax=axes(), **arguments)


def with_legend(label: str) -> None:
    figures.legend(axes(label).figure)


def solid(h: tf.Tensor) -> tf.Tensor:
    """A convolution in three dimensions."""
    return tf.nn.conv3d(h, tf.ones((1, 1, 1, 1, 2)), [1] * 5, "SAME")


LENET, RELU = lenet_layers(init_params()), Layer("relu", tf.nn.relu)
SOLID, GRAPH = Layer("solid", solid), Layer("f", tf.function(tf.nn.relu))
MEASURES = [
    *good(manygpu.devices, n=np.int64(2), quiet=True).refuses(
        ("n", [0], ValueError, "n must be at least 1, got 0"),
        ("n", [9], StartedError, "n is 9", "with 8", "MANYGPU_DEVICES=9"),
    ),
    *good(measure.distance, found=[np.ones(2)], reference=[np.ones(2)]).refuses(
        ("reference", [[np.ones(3)]], ValueError, "must have the shapes of reference"),
        ("reference", [[np.ones(2)] * 2], ValueError, "must have the shapes of refer"),
        ("reference", [[np.zeros(2)]], ValueError, "reference is all zeros"),
        ("reference", [[None]], TypeError, "reference must hold numb"),
        ("found", [["a"]], TypeError, "found must hold numbers"),
    ),
    *good(measure.nbytes, values=tf.TensorSpec((3, 2), tf.float32)).refuses(
        ("values", [tf.TensorSpec((None, 2))], ValueError, "must have known shapes")
    ),
    *good(measure.shares, total=0, parts=2).refuses(
        ("parts", [0], ValueError, "parts must be at least 1"),
        ("total", [-1], ValueError, "total must be at least 1"),
        ("total", [False], TypeError, "total must be a whole number"),
    ),
    *good(measure.in_turns, jobs={"a": lambda: 1.0}, rounds=1, warm_up=1).refuses(
        ("jobs", [[print]], TypeError, "jobs must map names to jobs, got list"),
        ("jobs", [{}], ValueError, "jobs is empty"),
        ("rounds", [0], ValueError, "rounds must be at least 1, got 0"),
        ("warm_up", [-1], ValueError, "warm_up must be at least 1, got -1"),
    ),
    *good(layer_costs, layers=LENET, sample=(28, 28, 1)).refuses(
        ("layers", [[]], ValueError, "layers is empty"),
        ("layers", [[1, 2]], TypeError, "layers[0] must be a Layer, got"),
        ({"layers": [RELU], "sample": None}, ValueError, "sample is needed"),
        ("sample", [(28, 28), (9, 9, 1)], ValueError, "can't be traced"),
        ({"layers": [SOLID], "sample": (3, 3, 3, 1)}, ValueError, "solid", "FLOPs of"),
        ({"layers": [GRAPH], "sample": (3,)}, ValueError, "FLOPs of"),
    ),
]

# Figures and tables.

ROW = {"rows": [("a", 1.0)], "columns": ["x", "n"], "bars": ["n"], "best": {"n": min}}
PICTURES = [
    *good(figures.to_svg, lambda: {"fig": axes().figure, "alt": ALT}).refuses(
        ("alt", ["", "a short text"], ValueError, "alt must say what the figure")
    ),
    *good(figures.color, what="forward").refuses(
        ("what", ["fast"], ValueError, "what must be one of", "'forward'", "'fast'")
    ),
    *good(with_legend, label="a").refuses(("label", ["_none"], ValueError)),
    *good(tables.spread, values=[1.0]).refuses(
        ("values", [[]], ValueError, "values must")
    ),
    *good(tables.Link, text="x", address="https://a.b").refuses(
        ("address", ["javascript:alert(1)", "http://a.b", ""], ValueError)
    ),
    *good(tables.columns_of, **ROW).refuses(
        ("rows", [[]], ValueError, "needs rows and columns, got 0 and 2"),
        ("columns", [[]], ValueError, "needs rows and columns, got 1 and 0"),
        ("rows", [[("a", 1), ("b",)]], ValueError, "rows[1] must have a cell for each"),
        ("columns", [["x", "x"]], ValueError, "must have a header each"),
        ("bars", [["m"]], ValueError, "bars must name columns of", "got ['m']"),
        ("best", [{"m": min}], ValueError, "best must name columns"),
        ("best", [{"n": "least"}], ValueError, "must be min or max"),
        ("bars", [["x"]], ValueError, "'x' holds no number"),
        ("best", [{"x": min}], ValueError, "'x' holds no number"),
        ("rows", [[("a", -1.0)]], ValueError, "has negative numbers"),
        ("rows", [[("a", [1, 2])], [("a", {})]], TypeError, "'n' must hold texts, num"),
    ),
]

# Timelines and placements.

SPAN = {"device": A, "name": "work", "start": 0.0, "end": 1.0}
SPANS = {"spans": [Span(**SPAN)]}
WHOLE = (4, 5)
NO_TILES = [[(3, 5)], [(2, 5), (2, 4)], [(4, 2)] * 2, [WHOLE] * 2, []]


def timed(work, inputs: list):
    return clocked(work, *inputs)


def tiles(*shapes: tuple[int, ...]) -> Placement:
    devices = zip(EIGHT, shapes, strict=False)
    return Placement([Piece(d, 0, shape, 0, 0, ()) for d, shape in devices])


def tiled(shapes: list) -> list:
    return tiles(*shapes).tiles(0, WHOLE)


def stubborn(x: tf.Tensor) -> tf.Tensor:
    with tf.device(A):
        return x + 1


def placed_in_graph(made: Placement) -> tf.Tensor:
    return tf.function(lambda x: made.run(A, 0, tf.identity, x))(tf.ones(2))


def of_timeline(timeline: Timeline, name: str, *more) -> object:
    found = getattr(timeline, name)
    return found(*more) if callable(found) else found


TIMELINE = {"timeline": Timeline([Span(**SPAN)])}
EMPTY = ("timeline", [Timeline()], ValueError, "empty: record some work first")
TIMES = [
    *good(Timeline().add, **SPAN).refuses(
        ("end", [-1.0], ValueError, "before start, got 0.0 and -1.0"),
        ("end", [NAN, INF], ValueError, "must be finite"),
        ("start", [NAN, -INF], ValueError, "must be finite"),
    ),
    *(
        row
        for count in (spans.length, spans.busy_share, spans.overlap_share)
        for row in good(count, **SPANS).refuses(
            ("spans", [[]], ValueError, "empty: record some work first"),
            # A plan's slots, for one: they say when, but not until when.
            ("spans", [[(0, 1, "F")]], TypeError, "spans must hold Spans, got tuple"),
        )
    ),
    *good(spans.busy_share, **SPANS).refuses(
        ("spans", [[Span(0, "F", 1, 1)]], ValueError, "take no time at all")
    ),
    *(
        row
        for name in ("length", "overlap", "chrome_trace")
        for row in good(of_timeline, **TIMELINE, name=name).refuses(EMPTY)
    ),
    *good(lambda timeline: timeline.draw(ALT, ax=axes()), **TIMELINE).refuses(EMPTY),
    *good(timed, work=tf.square, inputs=[tf.ones(2)]).refuses(
        ("inputs", [[]], ValueError, "inputs must not be empty"),
        ("work", [lambda x: []], ValueError, "work must return a tensor"),
    ),
    *good(drawn, **SPANS, rows=[A]).refuses(
        ("spans", [[]], ValueError, "spans is empty"),
        ("rows", [[B]], ValueError, "rows must name every span's row", "CPU:0"),
    ),
    *good(tiled, shapes=[(3, 5), (1, 5)]).refuses(
        ("shapes", NO_TILES, ValueError, "of layer 0 do not make (4, 5)")
    ),
    *good(
        lambda made, work: made.run(B, 0, work, tf.ones(2)),
        lambda: {"made": Placement(), "work": lambda x: [x + 1][0]},
    ).refuses(
        ("work", [stubborn], RuntimeError, f"a piece sent to {B} ran on {A}"),
        ("work", [lambda x: [x], lambda x: 3.0], TypeError, "return one tensor, got"),
    ),
    *good(placed_in_graph).refuses(
        ("made", [Placement()], RuntimeError, "works in eager")
    ),
]

# Widgets.

TWO = [
    Frame("Each its own.", {"a": [1], "b": [2]}),
    Frame("Sum.", {"a": [3], "b": [2]}),
]
FRAME = {"caption": "start", "cells": {"a": [1], "b": [2]}, "messages": []}
NO_MESSAGES = [["ab"], [("a", "b")], [("a", "b", 2)]]
OTHERS = ({"a": [1]}, {"b": [1], "a": [2]}, {"a": [1, 2], "b": [1, 2]})
MIXED = [[*TWO, Frame("end", other)] for other in OTHERS]
WIDGETS = [
    *good(Frame, **FRAME).refuses(
        ("caption", ["  ", None], ValueError, "caption must say"),
        ("cells", [{}, {"a": []}], ValueError, "at least one"),
        ("cells", [{"a": [1], "b": [1, 2]}], ValueError, "equally many rows", "'b': 2"),
        ("cells", [[1, 2]], TypeError, "cells must map"),
        ("cells", [{0: [1]}], TypeError, "device names as keys, got 0"),
        ("cells", [{"a": 1}, {"a": "12"}], TypeError, "cells['a'] must be a list, got"),
        ("cells", [{"a": [None]}, {"a": [[1]]}], TypeError, "['a'] must hold numbers"),
        ("messages", NO_MESSAGES, TypeError, "messages must be"),
        ("messages", [[("a", "c", "2")]], ValueError, "names 'c', which is none of"),
        ("messages", [[("c", "a", "2")]], ValueError, "names 'c', which is none of"),
        ("messages", [[("a", "a", "2")]], ValueError, "from 'a' to itself"),
    ),
    *good(stepper.stepper_html, frames=TWO, alt=ALT, caption="", name="sum").refuses(
        ("frames", [[], ()], ValueError, "frames is empty"),
        ("frames", [TWO[0]], TypeError, "frames must be a list"),
        ("frames", [[1]], TypeError, "frames[0] must be a Frame"),
        ("frames", MIXED, ValueError, "frames[2] has dev"),
        ("alt", ["three words only", None], ValueError, "alt must say"),
        ("name", ["No link"], ValueError, "name must be"),
    ),
    *good(pipeline.pipeline_explorer, caption="", name="plans").refuses(
        ("name", ["No link"], ValueError, "name must be"),
    ),
]
REFUSED = [*MEASURES, *PICTURES, *TIMES, *WIDGETS]


@pytest.mark.parametrize("refusal", REFUSED, ids=str)
def test_it_is_refused_by_name_and_nothing_has_changed(refusal):
    refusals.is_refused(refusal)


@pytest.mark.parametrize(
    "refusal", [r for r in refusals.goods(REFUSED) if r.good], ids=str
)
def test_the_rest_of_the_call_is_right(refusal):
    refusals.is_taken(refusal)


def test_nothing_is_saved_of_an_empty_timeline(tmp_path):
    refusals.refused(
        lambda: Timeline().save(tmp_path / "t.json"), ValueError, "empty: record some"
    )
    assert list(tmp_path.iterdir()) == []
