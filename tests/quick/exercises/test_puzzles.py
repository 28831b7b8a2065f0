"""The puzzles: bounds hold, records are true, wrong answers are refused by name."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from random import Random
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu import _inks, figures
from manygpu.exercises.puzzles import KNOWN, hall, in_page, memory, passes, puzzle
from manygpu.exercises.puzzles import placements as where
from manygpu.exercises.puzzles import schedules as when
from manygpu.exercises.puzzles.drawing import fill_of, nice_step
from manygpu.exercises.puzzles.scoring import FORM, RUNS, Refused, add, in_words
from manygpu.scratch.splitting import pipeline, smaller_bubble
from tests.quick.exercises.drawn_plans import DRAWN
from tests.quick.exercises.wrong_plans import WRONG
from workshop.pages import ROOT

KINDS = {"Collectives", "Schedules", "Placements", "Memory", "Bucket plans"}
KINDS |= {"Mesh layouts"}
SCHEDULES = [name for name, one in KNOWN.items() if one.kind == "Schedules"]
SWAPPED = (passes.COMES, when.IN_TIME)  # what two swapped passes may break
WITHOUT = """
import sys
refused = ("tensorflow", "numpy", "matplotlib", "IPython", "pandas")
sys.modules.update(dict.fromkeys(refused))
from manygpu.exercises.puzzles import KNOWN, hall, in_page
for name, one in KNOWN.items():
    assert one.score(hall.answer_of(one.start)), name
ours = [each for name, each in sys.modules.items() if name.startswith("manygpu")]
print(sorted({each.__name__.split(".")[1] for each in ours if "." in each.__name__}))
"""


def test_there_are_a_dozen_of_all_kinds_and_all_are_tried_here():
    assert len(KNOWN) >= 12
    assert {one.kind for one in KNOWN.values()} == KINDS
    assert {*KNOWN} == {*DRAWN} == {*WRONG}


@pytest.mark.parametrize("name", KNOWN)
def test_the_start_works_and_is_worse_than_the_best(name):
    one = puzzle(name)
    started = one.score(hall.answer_of(one.start))
    assert started and not started.solved
    assert one.bound <= one.best < started.score
    assert f"No plan needs less than {one.bound:.4g}" in started.said


@pytest.mark.parametrize("record", hall.records(), ids=lambda r: f"{r.puzzle}-{r.date}")
def test_the_hall_holds_only_what_is_true(record):
    scored = puzzle(record.puzzle).score(hall.answer_of(record.answer))
    assert scored.score == pytest.approx(record.score, rel=1e-12)
    assert record.name and re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", record.date)
    best = [r.score for r in hall.records() if r.puzzle == record.puzzle]
    assert scored.solved == (record.score == min(best))


@pytest.mark.parametrize("name", KNOWN)
def test_a_bound_has_a_proof_and_a_source_and_the_task_says_what_is_asked(name):
    one = puzzle(name)
    assert re.search(r"\([^()]*(\([^()]*\)[^()]*)*(19|20)\d\d[^()]*\)", one.proof)
    assert len(one.proof.split()) > 25
    assert "`answer`" in one.task and "score" in one.task or "as you can" in one.task
    assert one.title in str(one) and one.start in str(one)


@pytest.mark.parametrize("name", KNOWN)
@settings(deadline=None, max_examples=30, database=None)
@given(draw=st.randoms(use_true_random=True))
def test_no_right_answer_beats_the_bound(name, draw):
    one = puzzle(name)
    found = one.score(DRAWN[name](draw))
    if found:
        assert found.score >= one.bound - 1e-9
    else:
        assert found.broken in (when.FITS, *(SWAPPED if name in SCHEDULES else ())), (
            found
        )


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_drawn_is_right_often_enough(name):
    """Else the test above would try nothing."""
    found = [puzzle(name).score(DRAWN[name](Random(seed))) for seed in range(60)]
    scores = [one.score for one in found if one]
    assert len(scores) >= 3
    assert min(scores) <= (8 if name == "two-machines" else 2) * puzzle(name).bound


@pytest.mark.parametrize(
    ("name", "plan", "broken"),
    [(name, *pair) for name, pairs in WRONG.items() for pair in pairs],
)
def test_a_wrong_answer_has_no_score_and_hears_why(name, plan, broken):
    found = puzzle(name).score(plan)
    assert (found.score, found.broken) == (None, broken), found
    assert len(found.said.split()) > 2
    assert not found and not found.solved and not found.drawing
    assert str(found) == f"{name}: {found.words}"
    assert reads_right(found.words, found.said, broken)


def reads_right(words: str, said: str, broken: str) -> bool:
    """First what is wrong, then the rule; none is said as if it held."""
    assert ". " not in said and said.lower() != broken.lower()
    assert said[0].islower() or said.startswith("GPU "), said  # it follows a colon
    rule = f"The rule: {broken[0].lower()}{broken[1:]}."
    then = "Write it in the form that the task asks for." if broken == FORM else rule
    return words == f"Refused: {said}. {then}"


@pytest.mark.parametrize("name", WRONG)
def test_two_plausible_wrong_answers_break_different_properties(name):
    assert len({broken for _, broken in WRONG[name]}) >= 2


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("plan", [None, 3, "abc", [], [[]], [[1]], {}, [None], [-1]])
def test_what_is_no_plan_at_all_is_refused_in_words(name, plan):
    found = puzzle(name).score(plan)
    right = name in ("sharded",) and plan == []  # no layer stays whole
    assert bool(found) == right, found
    assert "stops with" not in found.said


def test_those_of_which_all_plans_can_be_tried_have_the_best_one():
    """The docstrings of their judges say so."""
    cuts = itertools.combinations(range(1, 12), 3)
    plans = [
        [b - a for a, b in zip((0, *cut), (*cut, 12), strict=True)] for cut in cuts
    ]
    assert len(plans) == 165
    fewest = {"stages": plans}
    fewest["sharded"] = [
        [i for i in range(9) if mask >> i & 1] for mask in range(1 << 9)
    ]
    ends = [[i for i in range(1, 12) if mask >> i & 1] for mask in range(0, 1 << 12, 2)]
    fewest["buckets"] = [
        [b - a for a, b in zip((0, *e), (*e, 12), strict=True)] for e in ends
    ]
    for name, every in fewest.items():
        scores = [found.score for plan in every if (found := puzzle(name).score(plan))]
        assert min(scores) == puzzle(name).best, name
        assert len(scores) > 1


def test_the_best_schedules_are_the_chapters():
    for name, plan in {
        "in-flight": pipeline.one_forward_one_backward(4, 8),
        "split-backward": smaller_bubble.zero_bubble(4, 8),
    }.items():
        orders = [[(op.kind, op.micro_batch) for op in own] for own in orders_(plan)]
        assert puzzle(name).score(orders).solved
    plan = smaller_bubble.interleaved(8, 8, 4)
    orders = [[(op.kind, op.micro_batch, op.stage) for op in o] for o in orders_(plan)]
    assert puzzle("interleaved").score(orders).solved


orders_ = pipeline.orders_of


def test_a_mesh_whose_tensor_rings_lie_inside_is_not_enough():
    """Pipelines inside beat data rings inside, as the proof says."""
    inside = [(d, t, p) for p in range(2) for d in range(4) for t in range(4)]
    assert puzzle("mesh").score(inside).score == 256 > puzzle("mesh").bound
    assert where.ONE_WHOLE_RING_OUT > where.LEAST_OUT == 192


def test_recomputation_as_in_the_book_is_near_and_not_there():
    """Equal segments come to 2 sqrt(n): the last may be shorter than the first."""
    equal = {n: puzzle("recompute").score(range(0, 28, n)).score for n in range(1, 29)}
    assert min(equal.values()) == equal[5] == 9 > puzzle("recompute").bound == 7
    assert memory.FEWEST_INPUTS == 7


@pytest.mark.parametrize("name", KNOWN)
def test_a_drawing_is_whole_and_names_what_it_shows(name):
    one = puzzle(name)
    for source in (one.start, hall.best(name).answer):
        scored = one.score(hall.answer_of(source))
        drawn = ElementTree.fromstring(scored.drawing)
        assert drawn.get("role") == "img" and len(drawn.get("aria-label").split()) > 4
        texts = [e.text for e in drawn.iter("text")]
        assert len(texts) > 3 and "currentColor" in scored.drawing
        width, height = map(float, drawn.get("viewBox").split()[2:])
        for e in drawn.iter():
            if e.tag == "rect":
                ends = [float(e.get("x")) + float(e.get("width")), float(e.get("y"))]
                assert ends[0] <= width and ends[1] <= height
            if e.tag == "text" and not e.get("text-anchor"):
                assert float(e.get("x")) + 5.7 * len(e.text) <= width, e.text
        assert scored.drawing in scored._repr_html_()


def test_colours_are_the_books():
    assert figures.COLORS is _inks.COLORS and figures.MEANINGS is _inks.MEANINGS
    assert fill_of("forward") == figures.color("forward")
    assert fill_of(7) == figures.color(7)


@pytest.mark.parametrize(("most", "step"), [(1, 0.2), (6, 1), (33, 10), (112, 20)])
def test_an_axis_has_few_numbers(most, step):
    assert nice_step(most) == pytest.approx(step)


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (4, "That is the bound"),
        (5, "no better one than yours is known"),
        (4.5, "It beats the best known, 5: a new record"),
        (8, "the best known needs 5. Yours needs 2 times the bound"),
    ],
)
def test_a_score_stands_beside_its_bound(score, said):
    assert said in in_words(score, "rounds", 4, 5)


def test_an_unknown_name_hears_the_known_ones():
    with pytest.raises(ValueError, match="name must be one of broadcast"):
        puzzle("rings")
    with pytest.raises(ValueError, match=r"record in hall\.csv, got 'rings'"):
        hall.best("rings")
    with pytest.raises(ValueError, match="must be new"):
        add("ring", "", "", "", "", "", 1)
    assert issubclass(Refused, ValueError)


def test_a_function_may_return_the_plan_and_may_fail():
    assert puzzle("stages").score(lambda: (3, 3, 3, 3)).score == 25 / 16
    found = puzzle("stages").score(lambda: 1 / 0)
    assert found.broken == RUNS
    said = "it doesn't run. It stops with ZeroDivisionError: division by zero"
    assert found.words == f"Refused: {said}"
    endless = puzzle("stages").score(itertools.count())
    assert "more than 10000" in endless.said


def in_a_page(name: str, source: str) -> dict:
    return json.loads(in_page.run(name, source))


def test_what_a_page_gets_is_what_a_notebook_gets():
    for name, one in KNOWN.items():
        here = one.score(hall.answer_of(one.start))
        there = in_a_page(name, f"print('said')\n{one.start}")
        assert there["printed"] == "said\n"
        for what in ("score", "bound", "best", "solved", "words", "drawing"):
            assert there[what] == getattr(here, what), (name, what)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("answer = [1", "it doesn't run. Line 1: SyntaxError: '[' was never closed"),
        ("x = 1\nraise ValueError('no')", "it doesn't run. Line 2: ValueError: no"),
        (
            "def f():\n    return 1 / 0\nf()",
            "it doesn't run. Line 2: ZeroDivisionError",
        ),
        ("x = 1", "it defines no `answer`. Give your plan that name."),
        ("import sys\nsys.exit(3)", "it doesn't run. Line 2: SystemExit: 3"),
        (
            "answer = [3, 3, 3]",
            "the numbers add up to 9, not to 12. The rule: each layer is in one stage.",
        ),
        (
            "answer = [6, 6]",
            "answer must have 4 numbers, got 2. Write it in the form that the task",
        ),
    ],
)
def test_a_page_says_what_stopped_an_answer(source, words):
    found = in_a_page("stages", source)
    assert found["score"] is None and not found["solved"]
    assert found["words"].startswith(f"Refused: {words}")


def test_a_page_keeps_some_of_what_is_printed():
    found = in_a_page("stages", "print('x' * 10**6)\nanswer = [3, 3, 3, 3]")
    assert found["printed"] == "x" * in_page.MOST_PRINTED and found["score"]


def test_they_need_nothing_but_python():
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    rooms = "['_files', '_inks', '_numpy', '_tensorflow', 'checks', 'exercises', "
    rooms += "'hops', 'scratch', 'trace']\n"
    assert (ran.returncode, ran.stdout) == (0, rooms), ran.stderr
