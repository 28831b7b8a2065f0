"""A few rows of the table of indicators, computed again: the same words come out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments import loss_looks_right as tool
from manygpu.prove import curves, shown

THREADS = [  # all of their numbers are far from the limits
    "karpathy/nanoGPT #168",
    "NVlabs/LongLive #71",
    "keras-team/keras #15509",
    "pytorch/pytorch #31572",
]


def said(row: shown.Row) -> dict[str, bool]:
    return {name: shows(row) for name, shows in shown.INDICATORS.items()}


@pytest.mark.parametrize("thread", THREADS)
def test_a_row_comes_out_again(thread):
    (kept,) = (row for row in shown.rows() if row.thread == thread)
    (bug,) = (bug for bug in shown.first_of_each_thread() if bug.thread == thread)
    again = tool.row_of(bug)
    assert said(again) == said(kept)
    assert (again.stops, again.counts) == (kept.stops, kept.counts)


def test_the_rows_have_bugs_that_the_loss_shows_and_bugs_that_it_does_not():
    loss = shown.INDICATORS["loss curve"]
    assert {loss(row) for row in shown.rows() if row.thread in THREADS} == {True, False}


def test_a_step_that_differs_from_one_device_without_a_bug_is_refused(monkeypatch):
    right = tool.watched

    def at_another_rate(name, seed=0):
        return replace(right(name, seed), lr=0.1)  # than the step's own

    monkeypatch.setattr(tool, "watched", at_another_rate)
    with pytest.raises(
        ValueError, match="data, ring must train as one device does, is"
    ):
        tool.right_run.__wrapped__("data, ring")


def test_a_step_that_raises_an_error_ends_the_curves():
    subject = curves.watched("data")
    start, steps_taken = subject.start, []

    def begun(weights, devices):
        running = start(weights, devices)
        take = running.take

        def third_fails(X, y):
            steps_taken.append(len(y))
            if len(steps_taken) == 3:
                raise RuntimeError("out of memory")
            return take(X, y)

        running.take = third_fails
        return running

    run = curves.train(replace(subject, start=begun), seed=1)
    assert run.stops == 3 and len(run.losses) == len(run.norms) == 2
    assert steps_taken == [curves.SAMPLES] * 3
