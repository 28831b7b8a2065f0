"""The judge's core, on a step written in NumPy: it needs no framework."""

from __future__ import annotations

import pydoc
import re
import signal
import sys
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from manygpu import chapters
from manygpu.__main__ import main, parser
from manygpu.measure import shares
from manygpu.processes.launch import STOPPING
from manygpu.prove import Case, Subject, command, judge, progress
from manygpu.prove.counts import Counts, Solved
from manygpu.prove.judge import Check, asked
from manygpu.prove.progress import Progress
from manygpu.prove.rules import begun
from manygpu.prove.subject import one_each
from manygpu.prove.told import (
    AROUND,
    FLAGS,
    LISTED,
    NAMED,
    OF_RULE,
    with_known_names,
)
from manygpu.prove.verdict import Refused, told
from workshop.pages import ROOT

LR, FEATURES, CLASSES = 0.5, 6, 4


def gradient(X, y, weights):
    """Of a perceptron's summed cross-entropy: by hand."""
    W, b, V = weights
    h = np.tanh(X @ W + b)
    p = np.exp(h @ V)
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).sum()
    p[np.arange(len(y)), y] -= 1
    of_h = (p @ V.T) * (1 - h * h)
    return loss, [X.T @ of_h, of_h.sum(0), h.T @ p]


def draw(samples, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, FEATURES)), rng.integers(0, CLASSES, samples)


class Replicas:
    """Data parallel by hand; `bend(grads, sizes)` may do something to the gradients."""

    def __init__(self, weights, devices, bend):
        self.own = [[w.copy() for w in weights] for _ in range(devices)]
        self.bend, self.past = bend, []

    def copies(self):
        return self.own

    def take(self, X, y):
        sizes = shares(len(X), len(self.own))
        ends = np.cumsum(sizes)[:-1]
        parts = zip(np.split(X, ends), np.split(y, ends), self.own, strict=True)
        losses, grads = zip(*(gradient(*part) for part in parts), strict=True)
        self.past.append([sum(same) for same in zip(*grads, strict=True)])
        bent = self.bend(self, grads, sizes)
        for own, sums in zip(self.own, bent, strict=True):
            for w, g in zip(own, sums, strict=True):
                w -= LR * g / len(X)
        return sum(losses) / len(X)


def judged_subject(bend, devices=8):
    weights = [np.random.default_rng(0).normal(size=s) for s in ((6, 5), 5, (5, 4))]
    return Subject(
        lambda weights, k: Replicas(weights, k, bend), gradient, draw, weights, LR,
        most_devices=devices,
    )  # fmt: skip


def judged(bend, devices=8):
    return judge(judged_subject(bend, devices))


def summed(run, grads, sizes):
    return [run.past[-1]] * len(sizes)


def scaled(factor):
    return lambda run, grads, sizes: (
        [[factor(run, sizes) * g for g in run.past[-1]]] * len(sizes)
    )


def mean_of_means(run, grads, sizes):
    share = [sum(sizes) / (len(sizes) * n) for n in sizes]
    own = [[s * g for g in of] for s, of in zip(share, grads, strict=True)]
    return [[sum(same) for same in zip(*own, strict=True)]] * len(sizes)


def without_last(run, grads, sizes):
    return [[sum(same[:-1]) for same in zip(*grads, strict=True)]] * len(sizes)


def bias_often(run, grads, sizes):
    W, b, V = run.past[-1]
    return [[W, len(sizes) * b, V]] * len(sizes)


def half_alone(run, grads, sizes):
    W, b, V = run.past[-1]
    W = np.concatenate([grads[0][0][:3], W[3:]])
    return [[W, b, V]] * len(sizes)


def stale(run, grads, sizes):
    return [run.past[max(0, len(run.past) - 2)]] * len(sizes)


def stale_on_several(run, grads, sizes):
    return (stale if len(sizes) > 1 else summed)(run, grads, sizes)


def clipped_apart(run, grads, sizes):
    norms = [np.sqrt(sum((g * g).sum() for g in own)) for own in grads]
    own = [[g / n for g in of] for n, of in zip(norms, grads, strict=True)]
    return [[sum(same) for same in zip(*own, strict=True)]] * len(sizes)


def transposed(run, grads, sizes):
    W, b, V = run.past[-1]
    return [[W.T.reshape(W.shape), b, V]] * len(sizes)


def last_copy_moves(run, grads, sizes):
    first = run.past[-1]
    return [first] * (len(sizes) - 1) + [[2 * g for g in first]]


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_a_right_step_is_right(devices):
    assert judged(summed, devices).right


@pytest.mark.parametrize(
    "bend, broken, smallest, said",
    [
        (scaled(lambda run, sizes: len(sizes)), "mean", Case(2, 2), "counted 3 times"),
        (scaled(lambda run, sizes: 1 / len(sizes)), "mean", Case(2, 2), "twice"),
        (scaled(lambda run, sizes: 1.001), "mean", Case(1, 1), "counted 1.001 times"),
        (scaled(lambda run, sizes: -1), "mean", Case(1, 1), "the wrong sign"),
        (mean_of_means, "shares", Case(2, 3), "0.778 0.778 0.778 1.17 1.17 1.17 1.17"),
        (without_last, "data", Case(2, 2), "1 1 1 1 1 0 0 times: 2 not at all"),
        (bias_often, "parameter", Case(2, 2), "parameter 1 (5) counted the samples 3"),
        (half_alone, "part", Case(2, 2), "15 are summed over all devices, 15 of"),
        (stale, "state", Case(1, 1, 2), "followed the batch of an earlier step"),
        (
            last_copy_moves,
            "copies",
            Case(2, 2),
            "these are wrong: 2",
        ),
        (clipped_apart, "clipping", Case(2, 3), "each device scaled its own gradient"),
        (transposed, "layout", Case(1, 1), "at each other's places"),
    ],
)
def test_a_wrong_step_is_named_with_its_smallest_case(bend, broken, smallest, said):
    (found, *_) = judged(bend).findings
    assert (found.broken, found.smallest) == (broken, smallest)
    assert said in found.sentence


def test_a_step_that_stops_is_told_with_its_error():
    def stops(run, grads, sizes):
        raise RuntimeError("the ring is broken")

    (found,) = judged(stops).findings
    assert found.broken == "runs"
    assert "RuntimeError: the ring is broken" in found.sentence


# A step that refuses a batch of too few samples


def cutting(pieces, moves=False, bent=summed):
    """A step that cuts each share in so many, and refuses one of fewer; else right."""

    def bend(run, grads, sizes):
        if min(sizes) < pieces:
            if moves:
                run.own[0][0][0] += 1
            raise ValueError(f"pieces is {pieces} for {min(sizes)} samples")
        return bent(run, grads, sizes)

    return judged_subject(bend)


@pytest.mark.parametrize("full", [False, True])
def test_a_batch_that_may_be_refused_is_not_judged_and_named(full):
    subject = replace(cutting(2), parts=lambda devices: 2 * devices)
    verdict = judge(subject, full)
    assert verdict.right, str(verdict)
    told = " ".join(one for one in verdict.remarks if one.startswith("refused"))
    assert ("2 devices, 3 samples, 3 steps" in told) == full
    assert all(case.samples >= 2 * case.devices for case in verdict.trials)


def test_a_step_that_refuses_enough_samples_is_told():
    for parts in (one_each, lambda devices: devices + 1):
        verdict = judge(replace(cutting(4), parts=parts))
        (found,) = verdict.findings
        assert found.broken == "runs"
        assert "ValueError: pieces is 4 for 2 samples" in found.sentence
        assert not found.smallest.samples < parts(found.smallest.devices)
        undeclared = any("says so: Subject.parts" in one for one in verdict.remarks)
        assert undeclared == (parts is one_each)


def test_a_step_that_refuses_every_case_is_told():
    (found,) = judge(replace(cutting(10**6), parts=lambda devices: 40)).findings
    assert found.broken == "runs"
    assert found.case.samples >= 40


def test_a_step_whose_default_cases_are_too_small_is_counted_in_larger_ones():
    subject = replace(cutting(20), parts=lambda devices: 20 * devices)
    verdict = judge(subject)
    assert verdict.right, str(verdict)
    assert min(case.samples for case in verdict.trials) > 20
    assert verdict.held[0] == "each sample counted once, all copies alike"
    wrong = replace(cutting(20, bent=scaled(lambda run, sizes: 2)), parts=subject.parts)
    (found, *_) = judge(wrong).findings
    assert (found.broken, len(found.times)) == ("mean", found.case.samples)


def test_a_question_whose_cases_are_all_refused_shows_nothing_to_hold():
    cases = [Case(2, 2), Case(3, 3)]
    for few, held in ((cases, ""), (cases[:1], "it holds")):
        look = lambda case, few=few: [Refused(case)] if case in few else []  # noqa: E731
        question = Check(look, cases, "it holds")
        assert asked(cutting(2), question, Progress()) == ([], held)


def test_a_refusal_that_has_moved_a_weight_is_a_fault():
    subject = replace(cutting(3, moves=True), parts=lambda devices: 3 * devices)
    (found, *_) = judge(subject).findings
    assert (found.broken, found.case) == ("empty", Case(3, 7, 2))
    assert "refused, but weights have moved" in found.sentence


# The command


STEPS = """
import contextlib
import signal
from dataclasses import replace

from tests.quick.test_prove import draw, judged_subject, scaled, summed

def right():
    return judged_subject(summed)

def wrong():
    return judged_subject(scaled(lambda run, sizes: len(sizes)))

def of_another_rate():
    return judged_subject(scaled(lambda run, sizes: 2))

def with_a_seed(seed=0):
    return right()

def stops():
    raise OSError("no such data set")

def needs_a_package():
    import no_such_package

def of_no_rule():
    return replace(right(), rule="lamb")

def of_momentum():
    def bend(run, grads, sizes):
        now = run.past[-1]
        if len(run.past) > 1:
            now = [0.75 * v + g for v, g in zip(run.velocity, now)]
        run.velocity = now
        return [now] * len(sizes)

    def divided(run, grads, sizes):  # each step's sum has its own size
        run.past[-1] = [g / sum(sizes) for g in run.past[-1]]
        return [[sum(sizes) * v for v in of] for of in bend(run, grads, sizes)]

    return judged_subject(divided)

def of_no_number():
    return replace(right(), rule="adam", hyperparameters={"beta": 0.9})

def of_whole_numbers():
    return replace(right(), weights=[w.astype(int) for w in right().weights])

def of_no_devices():
    return replace(right(), least_devices=4, most_devices=3)

def draws_one_more():
    return replace(right(), draw=lambda n, seed: draw(n + 1, seed))

def nobody_counts():
    return replace(right(), gradient=None, least_devices=2, most_devices=2)

def never_moves():
    bend = lambda run, grads, sizes: [[0 * g for g in run.past[-1]]] * len(sizes)
    return replace(judged_subject(bend), gradient=None)

def four_times():
    made = judged_subject(scaled(lambda run, sizes: len(sizes)))
    return replace(made, least_devices=4, most_devices=4, even=True)

def step(X, y, device_params, devices):
    pass

@contextlib.contextmanager
def given():
    yield right()

def none():
    return 3

def stopped_by(number, swallowing=False):
    taken = []

    def bend(run, grads, sizes):
        taken.append(len(sizes))
        if len(taken) == 20:
            try:
                signal.raise_signal(number)
            except KeyboardInterrupt:
                if not swallowing:
                    raise
        return summed(run, grads, sizes)

    return judged_subject(bend)

def by_ctrl_c():
    return stopped_by(signal.SIGINT)

def by_a_scheduler():
    return stopped_by(signal.SIGTERM)

def by_ctrl_c_swallowed():
    return stopped_by(signal.SIGINT, swallowing=True)

def while_it_is_made():
    signal.raise_signal(signal.SIGINT)

def while_a_fault_gets_smaller():
    taken = []

    def bend(run, grads, sizes):
        taken.append(len(sizes))
        if len(taken) == 6:  # behind the look at dtypes, and the first case
            signal.raise_signal(signal.SIGINT)
        return scaled(lambda run, sizes: len(sizes))(run, grads, sizes)

    return replace(judged_subject(bend), hyperparameters={})
"""


@pytest.fixture
def steps_here(tmp_path, monkeypatch):
    (tmp_path / "my_steps.py").write_text(STEPS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_steps", raising=False)


@pytest.mark.parametrize(
    "words, status, said",
    [
        ("my_steps:right", 0, "my_steps:right: right in 6 trials, on 1 to 3 devices"),
        ("my_steps:right --full", 0, "right in 26 trials, on 1 to 8 devices"),
        ("my_steps:given", 0, "my_steps:given: right in 6 trials, on 1 to 3 devices"),
        ("my_steps:wrong", 1, "wrong. Broken: the gradient is the mean over"),
        ("my_steps:wrong", 1, "every sample counted 3 times, the number of devices"),
        ("my_steps:wrong", 1, "Smallest trial: 2 devices, 2 samples, 1 step"),
        ("my_steps:four_times", 1, "every sample counted 4 times, the number of"),
        ("my_steps:four_times", 1, "not tried: other numbers of devices than 4"),
        ("my_steps:with_a_seed", 0, "right in 6 trials"),
        ("my_steps:of_another_rate", 2, "can't tell, because on one device, where no"),
        ("my_steps:of_another_rate", 2, "sample, 1 step, every sample counted 2 times"),
        ("my_steps:of_another_rate", 2, "to hold: the same when repeated, the same on"),
        ("my_steps:nobody_counts", 2, "because no trial can count the samples, as the"),
        ("my_steps:never_moves", 2, "because no weight moves in a trial's steps"),
        ("my_steps:of_no_rule", 0, "is counted, as rule='lamb' is none that can be re"),
        (
            "my_steps:of_no_number",
            2,
            "a hyperparameter of rule='adam' must be one of betas, epsilon, inside, ",
        ),
        ("my_steps:of_whole_numbers", 2, "the weights must be float64, float32,"),
        ("my_steps:of_no_devices", 2, "least_devices must be from 1 to most_devices"),
        ("my_steps:draws_one_more", 2, "samples and as many targets, got"),
        ("my_steps:right --rule other", 0, "as rule='other' is none that can be"),
        ("my_steps:right --hyperparameter lr", 2, "must be NAME=VALUE, got lr"),
        ("my_steps:right --rule SGD --hyperparameter beta=1", 2, "of rule='sgd' must"),
        ("my_steps:right --hyperparameter beta=1", 2, "got beta: do you mean betas?"),
        ("my_steps:right --hyperparameter lr=x", 2, "--hyperparameter must be NAME=V"),
        ("my_steps:right --hyperparameter decay='x'", 2, "decay must be a number, or"),
        (
            "my_steps:right --hyperparameter eps=1",
            2,
            "got epsilon: say rule=adam or adamw or",
        ),
        (
            "my_steps:right --rule adam --hyperparameter betas=0.9",
            2,
            "hyperparameter betas must be two numbers from 0 to 1, such as 0.9,0.999, "
            "got 0.9: give it so",
        ),
        (
            "my_steps:of_momentum --rule SGD --hyperparameter Momentum=0.75 "
            "--hyperparameter weight_decay=0 --hyperparameter nesterov=false",
            0,
            "right in 6 trials",
        ),
        ("my_steps:of_another_rate --hyperparameter LR=1.0", 0, "right in 6 trials"),
        ("my_steps:right --rule adma", 0, "be replayed (only sgd, clipped, momentum"),
        (
            "my_steps:of_momentum --rule momentum --hyperparameter momentum=0.75",
            0,
            "right in 6 trials",
        ),
        (
            "my_steps:of_momentum --rule momentum --hyperparameter momentum=0.9",
            2,
            "the gradient and rule='momentum' say",
        ),
        ("my_steps:of_momentum", 0, "on one device best is SGD with momentum 0.75"),
        ("my_steps:stops", 2, "my_steps:stops stops with OSError: no such data set"),
        ("my_steps:stops", 2, "data set (my_steps.py, line 21)"),
        ("my_steps:needs_a_package", 2, "ModuleNotFoundError: No module named 'no_s"),
        ("my_steps:step", 2, "step must be a step(X, y, device_params, devices, lr)"),
        ("my_steps:none", 2, "my_steps:none must return a prove.Subject, got"),
        ("my_steps:absent", 2, "my_steps:absent: AttributeError"),
        ("nowhere:step", 2, "nowhere:step: ModuleNotFoundError: No module named"),
        ("my_steps", 2, "'my_steps' is no module:function"),
    ],
)
def test_the_command_says_whether_a_step_is_right(
    steps_here, capsys, words, status, said
):
    assert main(["prove", *words.split()]) == status
    printed = capsys.readouterr()
    text = " ".join((printed.out or printed.err).split())
    assert said in text
    assert ("can't" in text) == (status == 2)


def test_the_command_says_what_it_tries_beside_the_verdict(steps_here, capsys):
    assert main(["prove", "my_steps:right"]) == 0
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert lines[0] == "0 s, importing my_steps:right"
    checks = [line for line in lines if re.match(r"\d+ s, check \d+ of 13: ", line)]
    assert [f"check {n} of 13:" in checks[n - 1] for n in range(1, 14)] == [True] * 13
    assert checks[3].endswith("the same when repeated? 3 devices, 7 samples, 1 step")
    assert (
        printed.out.startswith("my_steps:right: right") and "check" not in printed.out
    )
    assert main(["prove", "my_steps:right", "--quiet"]) == 0
    assert capsys.readouterr() == (printed.out, "")


def test_a_long_check_says_how_far_it_is(steps_here, capsys, monkeypatch):
    monkeypatch.setattr(progress, "SILENCE_S", 0.0)
    assert main(["prove", "my_steps:right"]) == 0
    lines = capsys.readouterr().err.splitlines()
    still = [line for line in lines if "s, still " in line]
    runs = [int(re.search(r"\(training run (\d+)\)$", line)[1]) for line in still]
    assert runs == [*range(1, len(runs) + 1)] and len(runs) >= 30
    assert "still looking for the step's optimizer" in " ".join(still)
    assert "still check 13 of 13: several devices like one?" in still[-1]


def test_the_search_for_a_smaller_trial_is_told_too(steps_here, capsys):
    assert main(["prove", "my_steps:wrong"]) == 1
    smaller = "check 1 found a fault; does it show in 2 devices, 2 samples, 2 steps"
    assert smaller in capsys.readouterr().err


def test_checks_that_follow_from_others_are_counted(steps_here, capsys):
    """Of a rule that isn't the step's: then devices are compared with one device."""
    assert main(["prove", "my_steps:of_another_rate"]) == 2
    lines = capsys.readouterr().err.splitlines()
    asked = [line for line in lines if re.search(r"check \d+ of \d+:", line)]
    assert "check 10 of 13: with an overflow?" in asked[-2]
    assert "check 11 of 13: several devices like one? 3 devices" in asked[-1]


@pytest.mark.parametrize(
    ("step", "status", "said"),
    [
        ("by_ctrl_c", 130, "by_ctrl_c: not finished: stopped after 4 of 13 checks."),
        ("by_ctrl_c", 130, "Tried, and found to hold: each sample counted once, all"),
        ("by_a_scheduler", 143, "by_a_scheduler: not finished: stopped after 4 of 13"),
        ("by_ctrl_c_swallowed", 130, "not finished: stopped after 4 of 13 checks."),
        ("while_it_is_made", 130, "before the first check, while importing my_steps:"),
        ("while_a_fault_gets_smaller", 130, "With 3 devices, 7 samples, 1 step, every"),
    ],
)
def test_what_was_found_before_an_interrupt_is_shown(
    steps_here, capsys, monkeypatch, step, status, said
):
    before = {number: signal.getsignal(number) for number in STOPPING}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["prove", f"my_steps:{step}", "--quiet"]) == status
    finally:
        for number, heard in before.items():
            signal.signal(number, heard)
    printed = capsys.readouterr()
    text = " ".join(printed.out.split())
    assert said in text and printed.err == ""
    assert not any(word in text for word in ("right", "wrong", "can't tell"))


def test_an_interrupt_is_handed_to_the_process_that_judges(monkeypatch):
    """And its status is the command's."""
    judging = Mock(wait=Mock(side_effect=[KeyboardInterrupt(signal.SIGTERM), 143]))
    started = Mock(return_value=judging)
    monkeypatch.setattr(command.subprocess, "Popen", started)
    words = ["prove", "mine:step", "--quiet", "--full", "--rule", "adam"]
    assert command.in_a_split_process(parser().parse_args(words)) == 143
    judging.send_signal.assert_called_once_with(signal.SIGTERM)
    (given,) = started.call_args.args
    assert {"mine:step", "--quiet", "--full", "--split-first"} < {*given}
    judging.wait.side_effect = [-signal.SIGKILL]
    assert command.in_a_split_process(parser().parse_args(words)) == 137


@pytest.mark.parametrize(("full", "least", "most"), [(False, 30, 60), (True, 90, 180)])
def test_as_many_runs_are_started_as_the_readme_says(full, least, most):
    made, runs = judged_subject(summed), []

    def start(weights, devices):
        runs.append(devices)
        return made.start(weights, devices)

    assert judge(replace(made, start=start), full).right
    assert least <= len(runs) <= most, len(runs)


def test_a_verdict_names_a_chapter_that_can_be_opened(monkeypatch):
    """By its file, and where the book has an address, by that, in one piece."""
    verdict = " ".join(str(judged(bias_often)).split())
    path = "book/splitting/layerwise.ipynb"
    assert f'Read "Tensor parallelism (layerwise splitting)": {path}' in verdict
    assert (ROOT / path).is_file()
    monkeypatch.setattr(chapters, "BOOK", "https://someone-or-other.github.io/manygpu/")
    place = f"{chapters.BOOK}book/splitting/layerwise.html"
    assert place in str(judged(bias_often)).split()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([-6.66e-16, 3.0], "0 3"),
        ([1.0, 1.0001], "1 1.0001"),
        ([1.0, 1.17123], "1 1.17"),
        ([0.99999, 1.0], "0.99999 1"),
        ([1.0], "1"),
        ([-0.0, -1.0], "0 -1"),
    ],
)
def test_numbers_are_told_apart_from_right_ones(values, said):
    assert told(*values) == said


def counted(times: np.ndarray, left_over: float) -> Counts:
    """What was solved of one parameter, where rounding leaves up to 1e-7 over."""
    some = np.array([left_over])
    slack = Solved(np.full((1, 3), 1e-6), np.array([1e-7]), np.full(3, 1e-6), some / 2)
    copy = Solved(times[None], some, times, some)
    return Counts([copy], True, np.array([True]), lambda: (slack, 1e-6))


def test_a_sample_that_counts_more_brings_its_rounding_along():
    """A bias of fit's uneven shares: no "nothing else moved it" for a rounding."""
    uneven = np.array([7 / 9, 7 / 9, 7 / 3])
    assert not counted(uneven, 2e-7).unexplained.any()
    assert counted(uneven, 2e-7).agree
    once = counted(np.ones(3), 2e-7)
    assert once.unexplained.all() and not once.agree
    assert counted(uneven, 3e-7).unexplained.all()
    assert counted(np.full(3, np.nan), 2e-7).unexplained.all()


def test_a_step_that_needs_some_samples_is_right_with_as_many():
    """In all cases, too, and so few as it refuses it must refuse as a whole."""

    class Few(Replicas):
        def take(self, X, y):
            if len(X) < 4:
                raise ValueError("X must have 4 samples")
            return super().take(X, y)

    made = judged_subject(summed, devices=3)
    made = replace(made, start=lambda weights, k: Few(weights, k, summed))
    told = judge(made).findings
    assert [one.broken for one in told] == ["runs"]
    assert judge(replace(made, parts=lambda devices: 4), full=True).right


class LossOff(Replicas):
    """A right step that reports its loss a little too large."""

    def __init__(self, weights, devices, by):
        super().__init__(weights, devices, summed)
        self.by = by

    def take(self, X, y):
        return super().take(X, y) * (1 + self.by)


@pytest.mark.parametrize(("units", "broken"), [(9, []), (135, ["loss"])])
def test_a_loss_may_be_off_by_rounding_and_no_more(units, broken):
    """Of float64, in whose last place the mean of a few samples rounds."""
    by = units * np.finfo(np.float64).eps
    start = lambda weights, devices: LossOff(weights, devices, by)  # noqa: E731
    verdict = judge(replace(judged_subject(summed), start=start))
    assert [found.broken for found in verdict.findings] == broken


class OpError(Exception):
    """As TensorFlow's errors are: no ValueError."""


def with_errors(error, bend=summed, loss=1.0, **about):
    """A step that stops with an error where a device has no sample.

    loss: by what the loss of several devices is multiplied.
    """

    class Stops(Replicas):
        def take(self, X, y):
            if len(X) < len(self.own) and error:
                raise error("Reshape cannot infer the missing size " + "of it " * 150)
            return super().take(X, y) * (loss if len(self.own) > 1 else 1)

    made = judged_subject(bend)
    start = lambda weights, devices: Stops(weights, devices, bend)  # noqa: E731
    return replace(made, start=start, **about)


def test_only_an_error_that_is_declared_refuses_a_batch():
    verdict = judge(with_errors(OpError))
    (found,) = verdict.findings
    assert (found.broken, found.case) == ("empty", Case(3, 2))
    said = "shares of 1, 1 and 0 samples: it stops with OpError: Reshape cannot infer"
    assert found.sentence.startswith(said)
    assert found.sentence.count("of it") == 150, "the error is told whole"
    assert "give the error's class in refusals=" in found.sentence
    verdict = judge(with_errors(OpError, refusals=(OpError,)))
    assert verdict.right and "refuses empty shards" in verdict.held
    note = "with 3 devices, 2 samples, 1 step (shares of 1, 1 and 0 samples), the step "
    assert any(
        one.startswith(f"{note}is refused: OpError: Resh") for one in verdict.remarks
    )


@pytest.mark.parametrize(
    ("bend", "error", "broken"),
    [
        (stale_on_several, None, "state"),
        (bias_often, None, "parameter"),
        (summed, OpError, "empty"),
    ],
)
def test_a_wrong_loss_hides_no_worse_fault(bend, error, broken):
    """Not even one of a later step, or of a later question."""
    verdict = judge(with_errors(error, bend, loss=3.0))
    found = [one.broken for one in verdict.findings]
    assert found[0] == broken and found[-1] == "loss", found
    assert found.count("loss") == 1
    assert "Also, the step reports a loss of" in str(verdict)


VALUES = {"betas": (0.8, 0.9), "rates": (0.1, 0.2), "layers": (1.0, 2.0)}


@pytest.mark.parametrize("rule", NAMED)
def test_each_name_that_is_listed_is_one_of_its_rule(rule):
    numbers = dict.fromkeys(FLAGS, True) | VALUES
    known = [*OF_RULE.get(rule, ()), *AROUND]
    given = {name: numbers.get(name, 0.5) for name in known}
    own = replace(judged_subject(summed), rule=rule.title(), hyperparameters=given)
    assert begun(with_known_names(own)).lr == LR
    assert all(name in LISTED for name in known)


@pytest.mark.parametrize(
    ("rule", "given", "known"),
    [
        ("SGD", {"momentum": 0.9}, ("momentum", {"momentum": 0.9})),
        ("sgd", {"Nesterov": True, "momentum": 0.9}, ("nesterov", {"momentum": 0.9})),
        (None, {"momentum": 0, "weight_decay": 0.1}, (None, {"decay": 0.1})),
        ("AdamW", {"eps": 1e-6}, ("adamw", {"epsilon": 1e-6})),
        ("Adam", {"eps": 1e-8}, ("adam", {"epsilon": 1e-8, "before": False})),
        ("adam", {"beta_2": 0.95}, ("adam", {"betas": (0.9, 0.95)})),
        ("RMSprop", {"alpha": 0.99}, ("rmsprop", {"rho": 0.99})),
        ("sgd", {"max_norm": 1.0}, ("sgd", {"clip": 1.0})),
        ("LAMB", {"trust": 1}, ("LAMB", {"trust": 1})),
    ],
)
def test_names_of_other_frameworks_are_known(rule, given, known):
    own = replace(judged_subject(summed), rule=rule, hyperparameters=given)
    told = with_known_names(own)
    assert (told.rule, told.hyperparameters) == known


def test_a_step_that_takes_even_shares_only_is_told_how_to_say_so():
    class Even(Replicas):
        def take(self, X, y):
            if len(X) % len(self.own):
                raise OpError("array split does not result in an equal division")
            return super().take(X, y)

    start = lambda weights, devices: Even(weights, devices, summed)  # noqa: E731
    made = replace(judged_subject(summed), start=start)
    (found,) = judge(made).findings
    assert (found.broken, found.case) == ("runs", Case(3, 7))
    said = "shares of 3, 2 and 2 samples: it stops with OpError: array split does not"
    assert found.sentence.startswith(said)
    assert "with even shares it runs." in found.sentence
    assert "pass even=True to the adapter" in found.sentence
    assert judge(replace(made, even=True)).right
    note = "pass even=True to the adapter"
    assert note in " ".join(judged(mean_of_means).remarks)
    assert note not in " ".join(judged(bias_often).remarks)


def test_what_a_wrong_loss_breaks_is_not_told_twice():
    """The first device's mean depends on the order of the samples, too."""

    class LossOfTheFirst(Replicas):
        def take(self, X, y):
            first = len(X) - len(X) * (len(self.own) - 1) // len(self.own)
            loss, _ = gradient(X[:first], y[:first], self.own[0])
            super().take(X, y)
            return loss / first

    made = judged_subject(summed)
    start = lambda weights, k: LossOfTheFirst(weights, k, summed)  # noqa: E731
    verdict = judge(replace(made, start=start))
    assert [one.broken for one in verdict.findings] == ["loss"], str(verdict)


def test_the_adapters_are_listed_without_tensorflow():
    """Which these tests can't import; an adapter's own help needs it."""
    from manygpu.prove import adapters

    shown = pydoc.render_doc(adapters, renderer=pydoc.plaintext)
    assert "`of_fit`: Keras `fit`" in shown and "of_fit(build, draw, lr=0.1)" in shown
    with pytest.raises(AttributeError, match="has no attribute 'of_nothing'"):
        adapters.of_nothing  # noqa: B018
