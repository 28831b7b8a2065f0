"""What a page runs: a reader's text in, what came of it out, as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import traceback
from typing import Any

from manygpu.exercises.puzzles import hall, puzzle
from manygpu.exercises.puzzles.scoring import ANSWERS, LONG, RUNS, refusal

MOST_PRINTED = 5_000  # letters: a page shows them


class Printed(io.TextIOBase):
    """Keeps the first letters that are printed, however many there are."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        """Keep some of a text; say that all of it was written."""
        self.text += text[: MOST_PRINTED - len(self.text)]
        return len(text)


def run(name: str, source: str) -> str:
    """Run a reader's answer and score it.

    Args:
        name: the puzzle's.
        source: Python that defines `answer`.

    Returns:
        JSON with "score" (null if it has none), "bound", "best", "solved", "words",
        "drawing" (SVG) and "printed".
    """
    asked, printed = puzzle(name), Printed()
    found: dict[str, Any] = {"score": None, "solved": False, "drawing": ""}
    found |= {"bound": asked.bound, "best": asked.best}
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            answer = hall.answer_of(source)
        except (Exception, SystemExit) as error:
            found["words"] = refusal(RUNS, where(error))
        else:
            found |= _scored(asked, answer)
    return json.dumps(found | {"printed": printed.text})


def _scored(asked: Any, answer: Any) -> dict[str, Any]:
    if answer is None:
        return {"words": refusal(ANSWERS, "Give your plan that name.")}
    got = asked.score(answer)
    shown = {"score": got.score, "solved": got.solved}
    return shown | {"words": got.words, "drawing": got.drawing}


def where(error: BaseException) -> str:
    """What stopped a reader's text, and in which of its lines."""
    line = getattr(error, "lineno", None)
    for frame in traceback.extract_tb(error.__traceback__):
        line = frame.lineno if frame.filename == hall.SOURCE else line
    said = f"{type(error).__name__}: {getattr(error, 'msg', error)!s:.{LONG}}"
    return f"Line {line}: {said}" if line else said
