"""Pieces of Python, each run in a process of its own.

`run` forks one that has imported TensorFlow and not started it; `start` starts one
afresh, seconds slower, for what is decided when TensorFlow is imported. This file
itself must not start TensorFlow: it is imported in those processes.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import traceback
from collections.abc import Callable

from manygpu.workers import Worker


def serve() -> Callable[[str], subprocess.CompletedProcess]:
    """In the new process: run what is sent, and say what came of it."""

    def answer(code: str) -> subprocess.CompletedProcess:
        out, err = io.StringIO(), io.StringIO()
        status = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
                if isinstance(end.code, str):
                    print(end.code, file=err)
            except Exception:
                status = 1
                traceback.print_exc()
        return subprocess.CompletedProcess(code, status, out.getvalue(), err.getvalue())

    return answer


def run(code: str, **variables: str | None) -> subprocess.CompletedProcess:
    """Run a piece of Python in a new process; None takes a variable away."""
    with Worker(serve, variables=variables, name="a piece of Python") as worker:
        return worker.ask(code)


def start(code: str, **variables: str | None) -> subprocess.CompletedProcess:
    """The same, in a process that has imported nothing."""
    environment = {**os.environ, **variables}
    environment = {k: v for k, v in environment.items() if v is not None}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
