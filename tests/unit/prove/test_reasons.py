"""The reason of an error is found in what frameworks wrap around it."""

from __future__ import annotations

import pytest

from manygpu.prove.reasons import MOST, reason_of
from manygpu.prove.verdict import told

KERAS = """Exception encountered when calling Dense.call().

\x1b[1mMatrix size-incompatible: [4,5] and [6,8] {{node MatMul}} [Op:MatMul]\x1b[0m

Arguments received by Dense.call():
  • inputs=tf.Tensor(shape=(4, 5), dtype=float32)
  • training=<class 'inspect._empty'>"""

GRAPH = """Graph execution error:

Detected at node sequential/dense/MatMul defined at (most recent call last):
<stack traces unavailable>
Incompatible shapes: [4] vs. [5]
\t [[{{node sequential/dense/MatMul}}]] [Op:__inference_train_step_123]"""

USER_CODE = """in user code:

    File "/me/step.py", line 12, in one_step  *
        return model(x) / count
    File "/lib/keras/layer.py", line 90, in __call__  **
        raise error

    ValueError: count must be positive, got 0:
    the batch is empty
"""

WORKER = """Traceback (most recent call last):
  File "/lib/workers.py", line 446, in _answer
    asked.send((True, answer(question)))
  File "/me/step.py", line 7, in step
    loss.backward()
RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:534] Connection closed by peer
Exception raised from wait at /pytorch/ProcessGroupGloo.cpp:12 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation) + 0x98 (0x7f)
frame #1: <unknown function> + 0x1 (0x8)"""

REPLICA = """Caught KeyError in replica 0 on device 0.
Original Traceback (most recent call last):
  File "/lib/parallel_apply.py", line 64, in _worker
    output = module(*input)
KeyError: 'labels'
"""


@pytest.mark.parametrize(
    "text, kind, said",
    [
        (
            KERAS,
            "InvalidArgumentError",
            "InvalidArgumentError: Matrix size-incompatible: [4,5] and [6,8]",
        ),
        (
            GRAPH,
            "InvalidArgumentError",
            "InvalidArgumentError: Incompatible shapes: [4] vs. [5]",
        ),
        (
            USER_CODE,
            "ValueError",
            "ValueError: count must be positive, got 0: the batch is empty",
        ),
        (
            WORKER,
            "",
            "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:534] Connection closed "
            "by peer",
        ),
        (REPLICA, "KeyError", "KeyError: 'labels'"),
        (
            "rank 1 has no such class",
            "ValueError",
            "ValueError: rank 1 has no such class",
        ),
        ("", "StopIteration", "StopIteration: "),
    ],
    ids=["keras", "graph", "user code", "worker", "replica", "plain", "empty"],
)
def test_the_reason_is_found_whole(text, kind, said):
    assert reason_of(text, kind) == said


def test_a_reason_is_not_endless():
    assert len(reason_of("many words " * 200, "ValueError")) <= MOST + 20


@pytest.mark.parametrize(
    "value, said",
    [(1.0, "1"), (1.00000003, "1.00000003"), (0.99999, "0.99999"), (2.34567, "2.35")],
)
def test_digits_are_enough_to_see_why(value, said):
    assert told(value) == said
