"""The package's rooms, as pyproject.toml has them: what may import what."""

from importlinter import cli

from workshop.needs import ROOT, exports, graph


def test_the_package_keeps_to_its_layers_and_has_no_circle(capsys):
    assert cli.lint_imports(str(ROOT / "pyproject.toml"), no_cache=True) == 0, (
        capsys.readouterr().out
    )


def test_a_chapter_imports_chapters_before_it_only():
    order = list(exports())
    for place, module in enumerate(order):
        later = graph().find_modules_directly_imported_by(module) & {*order[place:]}
        assert not later, module
