"""What the chapters export: each name explained where it is made, and made once."""

import importlib
import inspect
import pkgutil

import pytest

from manygpu import scratch

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(scratch.__path__, "manygpu.scratch.")
    if not found.ispkg
]


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.split(".")[-1])
def test_each_exported_function_and_class_is_explained(module):
    """By a docstring that somebody wrote: a NamedTuple makes up one."""
    for name in {*module.__all__} - {"relu"}:  # whose one line says it
        thing = getattr(module, name)
        made_here = getattr(thing, "__module__", "") == module.__name__
        if made_here and (inspect.isfunction(thing) or inspect.isclass(thing)):
            assert thing.__doc__, name
            assert not thing.__doc__.startswith(f"{thing.__name__}("), name


def test_what_scratch_offers_is_a_chapter_s_own():
    for name in scratch.__all__:
        given = [m for m in MODULES if name in m.__all__]
        assert [getattr(m, name) is getattr(scratch, name) for m in given] == [True]
