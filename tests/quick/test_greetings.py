"""TensorFlow's greetings are left out of stderr, and nothing else is."""

from __future__ import annotations

import subprocess
import sys

import pytest

GREETING = "I0000 00:00:1796 1 port.cc:153] oneDNN custom operations are on."
FIRST = "WARNING: All log messages before absl::InitializeLog() is called are written"
DRIVER = "E0000 00:00:1796 1 cuda_platform.cc:52] failed call to cuInit: UNKNOWN ERROR"
ERROR = "E0000 00:00:1796 1 port.cc:99] no memory is left"
FATAL = "Fatal: the library needs AVX"
RETRACING = "5 out of 9 calls triggered tf.function retracing"

# Whatever the process writes, by whichever way, and however it ends.
SCRIPT = f"""
import os, subprocess, sys
from manygpu.processes.greetings import without_greetings

with without_greetings(bool({{gpus}}), "function retracing"):
    os.write(2, b"{FIRST}\\n{GREETING}\\n{DRIVER}\\n")
    print("{RETRACING}", file=sys.stderr)
    print("a warning", file=sys.stderr)
    subprocess.run([sys.executable, "-c", "import os; os.write(2, b'{GREETING}\\\\n')"])
    os.write(2, b"{ERROR}\\n{FATAL}")
    if {{crashes}}:
        os.abort()
print(" afterwards", file=sys.stderr)
"""


@pytest.mark.parametrize("gpus", [0, 2])
@pytest.mark.parametrize("crashes", [False, True])
def test_greetings_are_left_out_and_all_else_comes_through(gpus, crashes):
    script = SCRIPT.format(gpus=gpus, crashes=crashes)
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    due = [*[DRIVER] * bool(gpus), "a warning", ERROR]
    due.append(FATAL + " afterwards" * (not crashes))
    assert ran.stderr.splitlines() == due
    assert (ran.returncode == 0) == (not crashes)


def test_a_process_does_not_wait_for_one_that_writes_on():
    """The command ends though a process that it started still could write."""
    script = (
        "import subprocess, sys\n"
        "from manygpu.processes.greetings import without_greetings\n"
        "with without_greetings(False):\n"
        "    late = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1)\n"
        "print('done')\n"
        "late.stdin.close()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert ran.stdout == "done\n"
