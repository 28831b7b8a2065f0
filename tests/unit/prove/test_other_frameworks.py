"""Steps of PyTorch and JAX before the judge, where these are installed.

Neither is in the lock, so nothing of this runs in CI but the message that says so;
experiments/shipped-bugs/ keeps what came out where they were.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from functools import partial

import pytest

from manygpu.prove import history
from manygpu.prove.elsewhere import CREWS, packed
from manygpu.prove.found import with_rule
from manygpu.prove.invariants import in_two_trainings, on_any_devices
from manygpu.prove.judge import judge, trial
from manygpu.prove.subject import TELLING, Case, Subject
from manygpu.prove.trials import Trial
from manygpu.prove.with_jax import of_shard_map
from manygpu.prove.with_torch import of_ddp, of_fsdp2
from tests.unit.prove.readme_code import ROOT, readme_code

HERE = {name: importlib.util.find_spec(name) is not None for name in ("torch", "jax")}
needs_torch = pytest.mark.skipif(not HERE["torch"], reason="PyTorch isn't installed")
needs_jax = pytest.mark.skipif(not HERE["jax"], reason="JAX isn't installed")


def torch_subject(of: Callable, step: str, build: str = "build", **about) -> Subject:
    from tests.unit.prove import torch_steps as s

    return of(getattr(s, step), getattr(s, build), s.loss, s.draw, s.LR, **about)


def jax_subject(step: str) -> Subject:
    from tests.unit.prove import jax_steps as s

    return of_shard_map(getattr(s, step), s.init, s.loss, s.draw, s.LR)


def broken(subject: Subject) -> str:
    found = (list(trial(subject, case)) for case in TELLING)
    return next((one[0].broken for one in found if one), "right")


@needs_torch
@pytest.mark.parametrize(
    "of, step, about",
    [
        (of_ddp, "weighed", {}),
        (of_ddp, "in_micro_batches", {}),
        (of_ddp, "loss_summed_before_gradient", {}),
        (of_ddp, "clipped", {"rule": "clipped"}),
        (of_fsdp2, "weighed", {}),
        (of_fsdp2, "clipped", {"rule": "clipped"}),
    ],
)
def test_a_right_step_of_pytorch_is_right(of, step, about):
    verdict = judge(torch_subject(of, step, **about))
    assert verdict.right, str(verdict)


@needs_torch
@pytest.mark.parametrize(
    "of, step, named",
    [
        (of_ddp, "mean_of_means", "shares"),
        (of_ddp, "summed", "mean"),
        (of_ddp, "divided_twice", "mean"),
        (of_ddp, "mean_of_micro_batch_means", "shares"),
        (of_ddp, "module_called", "copies"),
        (of_ddp, "loss_summed_and_weighed", "mean"),
        (of_ddp, "sampler_fills_up", "data"),
        (of_ddp, "stops", "runs"),
        (of_fsdp2, "mean_of_means", "shares"),
        (of_fsdp2, "summed", "mean"),
        (of_fsdp2, "divided_twice", "mean"),
        (of_fsdp2, "loss_summed_and_weighed", "mean"),
    ],
)
def test_a_wrong_step_of_pytorch_is_named(of, step, named):
    assert broken(torch_subject(of, step)) == named


@needs_torch
def test_the_rates_of_a_scheduler_are_found():
    from tests.unit.prove import torch_steps as s

    verdict = judge(torch_subject(of_ddp, "scheduled", optimizer=s.falling))
    assert verdict.right, str(verdict)
    assert "0.025" in " ".join(verdict.remarks), verdict.remarks


@needs_torch
def test_a_bias_that_ddp_ignores_and_a_shard_that_clips_alone_are_named():
    ignored = torch_subject(of_ddp, "weighed", "build_with_a_bias_ignored")
    assert broken(ignored) == "copies"
    alone = torch_subject(of_fsdp2, "clipped_by_its_shard", rule="clipped")
    assert broken(alone) == "clipping"


@pytest.fixture
def new_processes():
    """Processes that start with the environment of this test, not of one before."""
    CREWS.clear()
    yield
    CREWS.clear()


def copied_from_the_readme(address, folder, monkeypatch, old="", new=""):
    """The README's whole file, as a module that other processes import, too."""
    file, _, name = address.partition(":")
    code = readme_code(address)
    assert old in code
    (folder / f"{file}.py").write_text(code.replace(old, new), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT}")
    monkeypatch.delitem(sys.modules, file, raising=False)
    return getattr(importlib.import_module(file), name)()


DDP = pytest.param("ddp:my_ddp", marks=needs_torch)
SHARD_MAP = pytest.param("sharded:my_shard_map", marks=needs_jax)


@pytest.mark.parametrize("address", [DDP, SHARD_MAP])
def test_the_readmes_whole_file_is_judged_as_it_is_copied(
    address, tmp_path, monkeypatch, new_processes
):
    subject = copied_from_the_readme(address, tmp_path, monkeypatch)
    told, note = with_rule(subject)
    own = "its optimizer is Adam with betas 0.9 and 0.999, epsilon 1e-08 beside the "
    own += "root, after the bias is corrected and weight decay 0.01 decoupled"
    assert (own in note) == (address == "ddp:my_ddp"), note
    assert list(trial(told, Case(2, 4, 2))) == []


@pytest.mark.parametrize(
    "address, old, new, named",
    [
        pytest.param(
            *DDP.values, "/ len(X)", "/ len(own_X)", "shares", marks=DDP.marks
        ),
        pytest.param(*SHARD_MAP.values, "psum", "pmean", "mean", marks=SHARD_MAP.marks),
    ],
)
def test_the_readmes_whole_file_is_called_wrong_once_it_is_broken(
    address, old, new, named, tmp_path, monkeypatch, new_processes
):
    subject = copied_from_the_readme(address, tmp_path, monkeypatch, old, new)
    verdict = judge(subject)
    assert [one.broken for one in verdict.findings][:1] == [named], str(verdict)


@needs_jax
@pytest.mark.parametrize("step", ["by_hand", "by_transpose", "by_compiler"])
def test_a_right_step_of_jax_is_right(step):
    verdict = judge(jax_subject(step))
    assert verdict.right, str(verdict)


@needs_jax
@pytest.mark.parametrize(
    "step, named",
    [
        ("loss_in_replica", "mean"),
        ("summed_twice", "mean"),
        ("psum_forgotten", "copies"),
        ("sum_of_means", "mean"),  # of the means, and k times too many
        ("mean_of_means", "shares"),
        ("bias_left_out", "copies"),
    ],
)
def test_a_wrong_step_of_jax_is_named(step, named):
    assert broken(jax_subject(step)) == named


def adam_subject(step: str, params_of: str = "params_of") -> Subject:
    from tests.unit.prove import jax_steps as s

    carried = {"begin": s.begin, "params_of": getattr(s, params_of)}
    given = getattr(s, step), s.init, s.loss, s.draw, s.ADAM_LR
    adam = {"rule": "adam", "most_devices": 3, "hyperparameters": s.HYPERPARAMETERS}
    return of_shard_map(*given, **carried, **adam)


@needs_jax
def test_a_step_of_jax_that_carries_its_optimizer_is_right():
    subject = adam_subject("adam")
    assert [*subject.start(subject.weights, 2).state()][:1] == ["carry['count']"]
    verdict = judge(subject)
    assert verdict.right, str(verdict)
    assert "the same on all replicas" in " ".join(str(verdict).split())


@needs_jax
@pytest.mark.parametrize(
    "step, look, case, named",
    [
        ("adam_forgets", in_two_trainings, Case(2, 4, 2), "optimizer"),
        ("adam_own_squares", history.look, Case(2, 4, 1), "kept"),
        ("adam_mean_of_means", on_any_devices, Case(2, 5, 1), "shares"),
    ],
)
def test_a_step_of_jax_that_carries_something_wrong_is_seen(step, look, case, named):
    first, *_ = look(Trial(adam_subject(step), case))
    assert first.broken == named
    assert named != "kept" or "carry['v']" in first.sentence


@needs_jax
def test_what_carries_the_parameters_must_say_which_they_are():
    from tests.unit.prove import jax_steps as s

    with pytest.raises(ValueError, match="begin and params_of must be given together"):
        of_shard_map(s.adam, s.init, s.loss, s.draw, s.LR, begin=s.begin)
    verdict = judge(adam_subject("adam", params_of="all_of"))
    assert "params_of must return a tree like" in " ".join(verdict.unsure.split())


@pytest.mark.parametrize("of, package", [(of_ddp, "torch"), (of_shard_map, "jax")])
def test_a_framework_that_is_not_here_is_asked_for_in_a_line(of, package, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(
        ModuleNotFoundError, match=f"`pip install {package}` installs it"
    ):
        of(broken, broken, broken, broken, 0.1)


def test_a_function_that_no_other_process_can_import_is_refused():
    for function in (lambda: 1, partial(judge, lambda: 1)):
        with pytest.raises(ValueError, match="must be a function of a file"):
            packed([judge, function])
