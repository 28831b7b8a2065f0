"""Pieces of Python, each run in a process of its own.

Each is forked from one that has imported TensorFlow and not started it, which saves
seconds. This file must not start it: it is imported in those processes.
"""

import contextlib
import io
import subprocess
import traceback
from collections.abc import Callable

from manygpu.processes.workers import Worker


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
