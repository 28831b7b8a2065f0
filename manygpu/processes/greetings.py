"""What TensorFlow writes whenever it starts, and how a command's user is spared it.

`TF_CPP_MIN_LOG_LEVEL` can't do this alone: TensorFlow greets while its libraries load,
before it has read that variable.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator

DRIVER = "cuda_platform"  # an error, where there are GPUs
LOADING = (
    r"absl::InitializeLog|cudart_stub|cpu_feature_guard|port\.cc"
    r"|^To enable the following instructions"
)
AT_START = re.compile(f"{LOADING}|{DRIVER}")  # no answer to why a process died
ENDING_S = 1.0  # for what is still to be written
# A process of its own passes the lines on, so that the last words of one that crashes
# aren't lost. It ends when nobody can write any more.
PASS_ON = """
import re, sys
left_out = [re.compile(one) for one in sys.argv[1:]]
to = open(2, "wb", buffering=0, closefd=False)
for line in sys.stdin.buffer:
    text = line.decode("utf-8", "replace")
    if to and not any(one.search(text) for one in left_out):
        try:
            to.write(line)
        except OSError:  # nobody reads any more
            to = None
"""


@contextlib.contextmanager
def without_greetings(with_gpus: bool, *more: str) -> Iterator[None]:
    """Leave out of this process's stderr what TensorFlow writes whenever it starts.

    All other lines come through, errors too. Processes started meanwhile are heard in
    the same way.

    Args:
        with_gpus: whether this machine has GPUs: then the lines about their driver
            stay.
        more: regular expressions of other lines that are left out.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # warnings; errors stay
    if not _is_own(sys.stderr):  # of a notebook, or of a test
        yield
        return
    left_out = [f"^(?![EF][0-9]{{4}} ).*({LOADING})", *more]
    left_out += [] if with_gpus else [DRIVER]
    sys.stderr.flush()
    command = [sys.executable, "-I", "-S", "-c", PASS_ON, *left_out]
    # In a session of its own: Ctrl-C ends the command, whose last words it passes on.
    apart = {"stdin": subprocess.PIPE, "start_new_session": True}
    passing_on = subprocess.Popen(command, **apart)
    before = os.dup(2)
    os.dup2(passing_on.stdin.fileno(), 2)
    passing_on.stdin.close()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)
        with contextlib.suppress(subprocess.TimeoutExpired):
            passing_on.wait(ENDING_S)  # a process that still runs may write on


def _is_own(stream: object) -> bool:
    """Return whether a stream is this process's second file."""
    try:
        return stream.fileno() == 2
    except (AttributeError, OSError, ValueError):
        return False
