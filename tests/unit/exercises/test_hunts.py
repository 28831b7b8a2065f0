"""Bugs to be found: shown, guessed, mended; a mend that isn't one is refused."""

from __future__ import annotations

import html
import importlib
import inspect
import re
import textwrap

import pytest

import manygpu
from manygpu import _devices
from manygpu.exercises.hunts import Hunt, hunt, hunts, shared_devices
from manygpu.prove.planted import BUGS
from manygpu.prove.verdict import PROPERTIES

MANY = hunts("many-devices")
SOME = [MANY[0], *hunts("gradient-accumulation")[:1]]


def planted_ones(module):
    """A chapter's bugs of the judge; small broken functions have tests of their own."""
    own = hunts(module.rpartition(".")[2].replace("_", "-"))
    return [one for one in own if isinstance(one, Hunt)]


def right_version(one):
    """The function as the chapter has it, typed anew."""
    ((name, _),) = one.functions.items()
    source = textwrap.dedent(inspect.getsource(one._place(name)))
    return typed(source, name, one)


def typed(source, name, one):
    """A function whose source stands in a notebook that has the chapter's names."""
    module = importlib.import_module(f"manygpu.scratch.{one.bug.module}")
    space = dict(vars(module))
    lines = source.splitlines()
    while lines[0].startswith("@"):
        del lines[0]
    exec("from __future__ import annotations\n" + "\n".join(lines), space)
    return space[name.rpartition(".")[2]]


OF_CHAPTERS = {bug.module for bug in BUGS if not bug.module.startswith("prove.")}


@pytest.mark.parametrize("chapter", sorted(OF_CHAPTERS))
def test_each_bug_shows_the_broken_code(chapter):
    for one in planted_ones(chapter):
        assert len(one.functions) == 1, one.name
        for line in one.bug.after.splitlines():
            assert line.strip() in one.code, one.name
        assert repr(one).startswith(one.name)
        assert one.bug.before not in repr(one)


@pytest.mark.parametrize("one", SOME, ids=lambda one: one.name)
def test_the_right_version_is_accepted_and_the_broken_one_refused(one):
    assert one.mended(right_version(one))
    ((name, source),) = one.functions.items()
    refused = one.mended(typed(source, name, one))
    assert refused.broken == PROPERTIES[one.bug.broken].says
    assert one.mended(right_version(one))  # nothing of the broken one is left


def test_names_of_a_notebook_are_not_there_and_it_says_what_to_do():
    one = MANY[0]
    ((name, source),) = one.functions.items()
    body = source.index(":\n", source.index("->") if "->" in source else 0) + 2
    mine = typed(f"{source[:body]}    return my_own()\n", name, one)
    said = one.mended(mine).said
    assert "NameError: name 'my_own' is not defined" in said
    assert "not your notebook's; import inside the function" in said


def test_a_guess_is_right_or_not():
    one = MANY[0]
    assert one.bug.broken in one.choices
    right = one.guess(one.bug.broken)
    assert right
    assert str(right) == f"{one.name}: yes: it breaks {one.bug.broken!r}"
    other = next(name for name in PROPERTIES if name != one.bug.broken)
    refused = one.guess(other)
    assert not refused
    said = (
        f"no, {other!r} isn't the property that breaks first: {PROPERTIES[other].says}"
    )
    assert str(refused) == f"{one.name}: {said}"
    assert f'data-holds="no">{html.escape(one.name)}: no, ' in refused._repr_html_()
    with pytest.raises(ValueError, match="broken must be one of mean"):
        one.guess("everything")


def test_choices_show_a_word_and_a_sentence_each():
    told = repr(MANY[0].choices).splitlines()
    assert len(told) == len(PROPERTIES)
    for line, (word, rule) in zip(told, PROPERTIES.items(), strict=True):
        assert line.split(maxsplit=1)[0] == word
        assert rule.says in line
    assert MANY[0].choices["runs"].endswith("a crash breaks this one")


def test_a_crash_is_told_in_readable_words(capsys):
    one = hunt("collectives", 1)
    assert one.bug.broken == "runs"
    one.symptom()
    told = capsys.readouterr().out
    assert "InvalidArgumentError: Incompatible shapes: [3] vs. [2]" in told
    assert "function_node" not in told
    assert "[Op:" not in told


def test_a_symptom_says_how_far_it_is_off(capsys):
    MANY[0].symptom()
    assert "weights differ by" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("chapter", "number"), [("worker-dies", 2), ("many-workers", 2)]
)
def test_a_symptom_shows_what_resuming_and_the_loss_lack(chapter, number, capsys):
    one = hunt(chapter, number)
    assert one.bug.broken in ("resume", "loss")
    one.symptom()
    told = capsys.readouterr().out
    assert ("both resumed" in told) == (one.bug.broken == "resume")
    weights, loss = map(float, re.findall(r"([\d.]+)%", told)[-2:])
    assert loss > 5
    assert (weights > 1) == (one.bug.broken == "resume")


def test_what_can_not_be_judged_is_refused():
    with pytest.raises(ValueError, match="function must be called"):
        MANY[0].mended(len)
    outside = 3

    def needs():
        return outside

    ((name, _),) = MANY[0].functions.items()
    needs.__name__ = name
    with pytest.raises(ValueError, match="must use no variable"):
        MANY[0].mended(needs)
    with pytest.raises(ValueError, match="number must be from 1 to"):
        hunt("many-devices", 99)
    with pytest.raises(ValueError, match="chapter must be one of"):
        hunt("nothing")


def test_a_page_with_few_devices_lets_them_take_turns(monkeypatch):
    monkeypatch.setattr(_devices, "_chosen", ["a", "b"])
    real = manygpu.devices
    with shared_devices():
        assert manygpu.devices(5, quiet=True) == ["a", "b", "a", "b", "a"]
        assert manygpu.devices(1, quiet=True) == ["a"]
    assert manygpu.devices is real
    with pytest.raises(ValueError, match="already started with 2"):
        manygpu.devices(5)
