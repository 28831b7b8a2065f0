"""A learner's process: runs a notebook's cells, then answers a grader's calls.

`manygpu.exercises.one_notebook` starts it as `python -m manygpu.exercises.pupil`, in an
empty folder. It reads lines from its standard input and writes lines to a pipe of its
own. What the notebook prints goes nowhere.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from collections.abc import Callable, Iterable
from typing import Any

from manygpu.exercises.checking import called
from manygpu.exercises.families import die_with_parent
from manygpu.exercises.fence import fence
from manygpu.exercises.in_time import in_time
from manygpu.exercises.wire import from_line, result_to_line

PROCESSES = 4000  # and threads; TensorFlow starts two for each core


def limit(gigabytes: float) -> None:
    """Let this process take so much memory, and write no large file."""
    size = int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**8, 10**8))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.getpid() == 1:  # in a namespace of its own, where no others are counted
        resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))


def run_cells(
    cells: Iterable[tuple[int, str]],
    seconds: int,
    tell: Callable[..., None],
    tries: list[str],
) -> dict[str, Any]:
    """Run cells as a notebook does, tell of each before it begins; return its names."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    tries.clear()  # those are IPython's own
    for number, code in cells:
        code = re.sub(r"^%matplotlib.*", "", code, flags=re.MULTILINE)
        tell(cell=number)
        try:
            ran = in_time(seconds, shell.run_cell, code)
            error = ran.error_before_exec or ran.error_in_exec
        except BaseException as wrong:  # its time is over, or it is no text at all
            error = wrong
        if error is not None:
            tell(failed=number, said=f"{type(error).__name__}: {_said(error)}")
        if tries:
            tell(refused=number, said=take(tries))
    return shell.user_ns


def _said(error: BaseException) -> str:
    """What an error says; a learner's own may not even be able to."""
    try:
        return f"{error!s:.200}"
    except Exception as wrong:
        return f"and what it says stops with {type(wrong).__name__}"


def take(tries: list[str]) -> list[str]:
    """What was refused since the last time, each once."""
    found = [*dict.fromkeys(tries)]
    tries.clear()
    return found


def main() -> None:
    """Read what is to be run, run it, and answer calls until there are no more."""
    lines, out = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)

    def tell(**said: Any) -> None:
        print(json.dumps(said), file=out, flush=True)

    asked = json.loads(lines.readline())
    die_with_parent()
    limit(asked["gigabytes"])
    tries = fence(asked["graded"])
    names = run_cells(asked["cells"], asked["seconds"], tell, tries)
    tell(ready=True)
    for line in lines:
        function, in_place, given = from_line(line)
        try:
            if function not in names:
                raise NotImplementedError(f"there is no {function}")
            answer = names[function]
            found = in_time(asked["seconds"], called, answer, given, in_place)
            said = {"found": result_to_line(found)}
        except BaseException as wrong:
            said = {"error": type(wrong).__name__, "said": _said(wrong)}
        tell(**said, refused=take(tries))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
