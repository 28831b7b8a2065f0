"""Figures are drawn as SVG with a caption; no page shows a bare picture."""

from __future__ import annotations

from pathlib import Path


def test_no_page_shows_a_picture_that_figures_did_not_draw(html_root: Path):
    bare = sorted(path.name for path in (html_root / "_images").glob("*.png"))
    assert not bare, "a cell ends with an unfinished figure: see manygpu.figures"
