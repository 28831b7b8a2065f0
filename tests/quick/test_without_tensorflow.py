"""What runs in a page, and what starts at once, needs no TensorFlow."""

import subprocess
import sys

from workshop.pages import ROOT


def python(code: str) -> subprocess.CompletedProcess:
    command, told = [sys.executable, "-c", code], {"encoding": "utf-8", "check": False}
    return subprocess.run(command, cwd=ROOT, capture_output=True, **told)


WITHOUT = """
import sys
from manygpu import __main__
from manygpu.choosing import search
from manygpu.costs import LayerCost
from manygpu.scratch import bubble, earliest_spans, gpipe, simulate, zero_bubble
from manygpu.scratch.splitting.pipeline import orders_of
from manygpu.scratch.splitting.what_a_tensor_means import P, R, ask, typed
from manygpu.simulate import steps
from manygpu.trace.spans import Span
assert Span(0, "", 1, 3).seconds == 2 and LayerCost("one", 1, 1, 1, 1)
assert 0 < bubble(earliest_spans(orders_of(gpipe(2, 2)))) < 1 and simulate.__doc__
assert "refused" in ask(lambda: typed((2,), axis=P) + typed((2,), axis=R))
print({"tensorflow", "matplotlib", "IPython"} & {*sys.modules})
"""


def test_plans_spans_and_costs_need_neither_tensorflow_nor_what_draws():
    """They may run in a page, and a command starts at once."""
    ran = python(WITHOUT)
    assert (ran.returncode, ran.stdout) == (0, "set()\n"), ran.stderr


ALONE = """
import sys
before = {*sys.modules}
sys.modules.update(dict.fromkeys(("numpy", "tensorflow", "matplotlib", "IPython")))
from manygpu.hops import Hop
from manygpu.scratch.splitting import pipeline, smaller_bubble
plans = [pipeline.gpipe(3, 4), pipeline.one_forward_one_backward(3, 4)]
plans += [smaller_bubble.zero_bubble(3, 4), smaller_bubble.interleaved(6, 6, 3)]
for plan in plans:
    stages = 1 + max(slot.op.stage for slot in plan)
    assert pipeline.check_plan(plan, [None] * stages) == plan
    assert 0 < pipeline.bubble(pipeline.planned(plan, 0.5)) < 1
    assert max(pipeline.in_flight(pipeline.orders_of(plan))) >= 3
assert pipeline.balanced_cuts([1, 2, 3], 2) == [2] and Hop(0, 1, 2).carries is None
new = {name.partition(".")[0] for name, one in sys.modules.items() if one}
print(sorted(new - before - sys.stdlib_module_names))
"""


def test_plans_need_nothing_but_pythons_own_library():
    """Puzzles play them in a page, where there is nothing else."""
    ran = python(ALONE)
    assert (ran.returncode, ran.stdout) == (0, "['manygpu']\n"), ran.stderr


def test_the_package_itself_and_its_launcher_can_be_imported():
    modules = "manygpu, manygpu.processes.launch, manygpu.processes.workers"
    ran = python(f"import {modules}; print(manygpu.__version__)")
    assert ran.returncode == 0, ran.stderr
    ran = python("import manygpu; manygpu.device")
    assert "has no attribute 'device'" in ran.stderr
