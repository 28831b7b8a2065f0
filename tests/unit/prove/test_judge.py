"""The judge: the book's steps are right, each planted bug is seen and named."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from manygpu.prove import small, steps
from manygpu.prove.adapters import of_fit
from manygpu.prove.judge import abilities, checks, judge, looked, trial
from manygpu.prove.planted import BUGS, Bug, planted
from manygpu.prove.subject import Case
from manygpu.prove.verdict import Finding
from manygpu.scratch.data_parallel import many_devices
from manygpu.trainings import parts

# Whose trainings take long to begin: only the counts are tried.
COSTLY = (
    "context",
    "context, all-gather",
    "context, all-to-all",
    "cut tokens",
    "error feedback",
    "experts",
    "full rank",
)


def counted(subject):
    """The first finding of the counts, if they find something."""
    found = (list(trial(subject, case)) for case in subject.counted(full=False))
    return next((one[0] for one in found if one), None)


def first_finding(subject):
    """The one that a verdict names first, without what `judge` asks after it."""
    for check in checks(subject, abilities(subject), full=False):
        for case in check.cases:
            for saw in looked(check, case):
                if isinstance(saw, Finding) and saw.broken not in subject.excused:
                    return saw
    return None


@pytest.mark.parametrize("name", [n for n in steps.BY_NAME if n not in COSTLY])
def test_a_step_of_the_book_is_right(name):
    verdict = judge(steps.BY_NAME[name](name))
    assert verdict.right, str(verdict)
    assert str(verdict).startswith(f"{name}: right in ")


@pytest.mark.parametrize("name", COSTLY)
def test_a_costly_step_of_the_book_counts_each_sample_once(name):
    assert counted(steps.BY_NAME[name](name)) is None


@pytest.mark.parametrize("name", ["data, ring", "pipeline"])
def test_rounding_is_no_bug(name):
    verdict = judge(small.rounded(steps.BY_NAME[name](name), np.float32))
    assert verdict.right, str(verdict)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.module}: {bug.after[:50]}")
def test_a_planted_bug_is_seen_and_named(bug):
    subject = steps.BY_NAME[bug.subject](bug.subject)
    with planted(bug):
        found = first_finding(subject)
    assert found and found.broken == bug.broken, found


@pytest.mark.parametrize("bug", [b for b in BUGS if "data" in b.subject][::7])
def test_a_planted_bug_is_seen_in_16_bits_too(bug):
    subject = small.rounded(steps.BY_NAME[bug.subject](bug.subject), ml_dtypes.bfloat16)
    with planted(bug):
        assert counted(subject)


def test_fit_is_right_with_even_shares_and_weighs_uneven_ones():
    def build():
        tf.keras.utils.set_random_seed(0)
        wide = tf.keras.Input((small.WIDTHS[0],))
        model = tf.keras.Sequential([wide, tf.keras.layers.Dense(small.WIDTHS[-1])])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.SGD(0.5, momentum=0.9), loss)
        return model

    def draw(samples, seed):
        X, y = small.draw(samples, seed)
        return X.astype(np.float32), y

    subject = of_fit(build, draw, 0.5, rule="momentum")
    assert list(trial(subject, Case(2, 4, 2))) == []
    found = next(trial(subject, Case(2, 3)))
    assert found.broken == "shares"
    assert found.times == pytest.approx([0.75, 0.75, 1.5], abs=1e-3)


@pytest.fixture
def built(monkeypatch):
    """The axes of each mesh that the judge builds."""
    sizes, make = [], parts.Mesh

    def noted(devices, **axes):
        sizes.append({name: n for name, n in axes.items() if name != "shared"})
        return make(devices, **axes)

    monkeypatch.setattr(parts, "Mesh", noted)
    return sizes


def test_by_default_a_mesh_is_cut_along_both_axes(built):
    subject = steps.BY_NAME["mesh"]("mesh")
    verdict = judge(subject)
    assert verdict.right, str(verdict)
    assert built and all(own == {"data": 2, "layerwise": 2} for own in built)
    assert "the same on 1 to " in " ".join(verdict.held)
    assert not any("place" in one or "idle" in one for one in verdict.remarks)


# Each can be seen only where both axes are cut.
ON_BOTH_AXES = [
    Bug(
        "splitting.hybrid_meshes",
        "split_cross_entropy(pieces, labels[group[0]], send)",
        "split_cross_entropy(pieces, labels[0], send)",
        "runs",
        "mesh",
    ),
    Bug(
        "splitting.hybrid_meshes",
        "    for line in groups_along(shards.mesh, axis):",
        "    for line in groups_along(shards.mesh, axis)[:1]:",
        "copies",
        "mesh",
    ),
]


@pytest.mark.parametrize("bug", ON_BOTH_AXES, ids=["labels", "groups"])
def test_a_bug_that_needs_both_axes_is_seen_by_default(bug, built):
    subject = steps.BY_NAME["mesh"]("mesh")
    with planted(bug):
        found = first_finding(subject)
    assert found and found.broken == bug.broken, found


MESHES_AND_PIPELINES = [n for n in steps.BY_NAME if n.startswith(("mesh", "pipeline"))]


@pytest.mark.parametrize("name", [*MESHES_AND_PIPELINES, "data, micro-batches"])
def test_a_right_step_stays_right_on_up_to_eight_devices(name):
    subject = steps.BY_NAME[name](name)
    verdict = judge(subject, full=True)
    assert verdict.right, str(verdict)
    refused = " ".join(one for one in verdict.remarks if one.startswith("refused"))
    may = subject.is_small(Case(2, 2))
    assert ("2 devices, 2 samples, 1 step" in refused) == may
    assert (Case(2, 2) in verdict.trials) != may
    most = max(k for k in (1, 2, 3, 5, 8) if k <= subject.most_devices)
    assert max(case.devices for case in verdict.trials) == most


def test_a_line_that_is_not_there_cannot_be_broken():
    code = many_devices.train_batch.__code__
    here = BUGS[0]._replace(function="")
    for wrong, said in (
        ({"before": "no such line"}, "has 0 times"),
        ({"before": "return"}, "not once"),
        ({"after": BUGS[0].before}, "changes no function"),
    ):
        with (
            pytest.raises(LookupError, match=said),
            planted(here._replace(**wrong)),
        ):
            raise AssertionError("the block must not run")
    assert many_devices.train_batch.__code__ is code


def test_what_rounding_did_to_an_average_is_no_bug():
    """In this case Adam's second step is further off than last digits alone."""
    subject = steps.BY_NAME["sharded state 0"]("sharded state 0")
    assert list(trial(subject, Case(3, 8, 2, 302))) == []
