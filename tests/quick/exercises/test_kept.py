"""What a learner has done, kept in a file that is never half a file."""

from __future__ import annotations

import json
import re

import pytest

from manygpu.exercises import check, kept, results

NOTHING = {kind: {} for kind in kept.KINDS}


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch) -> None:
    """A kernel in which nobody has done anything."""
    monkeypatch.setattr(kept, "HERE", {kind: {} for kind in kept.KINDS})


def test_what_passed_is_written_beside_what_the_file_has(tmp_path):
    file = tmp_path / "mine.json"
    before = {"guess": 3, "unit": "times"}
    others = NOTHING | {"guesses": {"a/x": before}, "exercises": {"b/y": {"cases": 2}}}
    file.write_text(json.dumps({"manygpu": "results", "format": 1, **others}))
    assert not check("two-devices/mean", lambda sums, counts: 0)
    assert check("two-devices/mean", lambda sums, counts: sum(sums) / sum(counts))
    found = results(file)
    assert found["guesses"] == {"a/x": before}
    assert set(found["exercises"]) == {"b/y", "two-devices/mean"}
    assert found["exercises"]["two-devices/mean"]["cases"] > 2
    assert kept.read(file) == found
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]


def test_a_grader_leaves_no_trace():
    right = lambda sums, counts: sum(sums) / sum(counts)  # noqa: E731
    assert check("two-devices/mean", right, seed=7)
    assert kept.HERE["exercises"] == {}


def test_none_replaces_no_guess_and_a_worse_score_no_better_one(tmp_path):
    file = tmp_path / "mine.json"
    kept.keep("guesses", "a/x", {"guess": 2.0})
    kept.keep("puzzles", "ring", {"solved": True, "score": 5})
    results(file)
    kept.keep("guesses", "a/x", {"guess": None})
    for score in (9, 5, None):
        kept.keep("puzzles", "ring", {"solved": False, "score": score})
        assert results(file)["puzzles"] == {"ring": {"solved": True, "score": 5}}
    assert kept.read(file)["guesses"] == {"a/x": {"guess": 2.0}}
    kept.keep("guesses", "a/x", {"guess": 4.0})
    kept.keep("puzzles", "ring", {"solved": True, "score": 4})
    found = results(file)
    assert found["guesses"] == {"a/x": {"guess": 4.0}}
    assert found["puzzles"] == {"ring": {"solved": True, "score": 4}}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "Expecting value"),
        (b"\xff\xfe", "codec can't decode"),
        (b"[]", 'lacks "manygpu": "results"'),
        (b'{"manygpu": "results", "format": 2}', "its format is 2, not 1"),
        (b'{"manygpu": "results", "format": 1}', "it has no guesses"),
        (
            b'{"manygpu": "results", "format": 1, "guesses": {"a/x": 3}}',
            "guesses: 'a/x' has no values",
        ),
        (
            b'{"manygpu": "results", "format": 1, "guesses": {"a/x": {"guess": NaN}}}',
            "guesses: 'a/x' has guess nan",
        ),
    ],
)
def test_another_file_is_refused_and_left_alone(tmp_path, content, why):
    file = tmp_path / "mine.json"
    file.write_bytes(content)
    said = "path must be a file of results, got "
    with pytest.raises(ValueError, match=f"{said}.*{re.escape(why)}"):
        results(file)
    assert file.read_bytes() == content


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    file = tmp_path / "mine.json"
    kept.keep("guesses", "a/x", {"guess": 2.0})
    results(file)
    whole = file.read_bytes()
    kept.keep("guesses", "a/y", {"guess": float("nan")})
    with pytest.raises(ValueError, match="JSON"):
        results(file)
    assert file.read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]


def test_kinds_are_known():
    with pytest.raises(ValueError, match="kind must be one of guesses, puzzles"):
        kept.keep("marks", "a/x", {})
