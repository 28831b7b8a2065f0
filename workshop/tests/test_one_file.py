"""The buttons of a page: a download that runs alone, Kaggle only with an address."""

from __future__ import annotations

import types

import pytest

from workshop import notebooks
from workshop.extensions import discovery

ROOT = notebooks.ROOT

OPTIONS = {
    "repository_url": "https://github.com/owner/name",
    "repository_branch": "main",
    "launch_buttons": {"kaggle_url": notebooks.LAUNCHERS["kaggle_url"]},
}


def context(suffix: str = ".ipynb") -> dict:
    """What the theme gives a page with a download and a launch button."""
    download = {"label": "download-source-button", "tooltip": "Download source file"}
    return {
        "page_source_suffix": suffix,
        "header_buttons": [
            {"label": "download-buttons", "buttons": [download]},
            {"label": "launch-buttons", "buttons": [{"text": "Colab"}]},
        ],
    }


def app(options: dict) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        config=types.SimpleNamespace(html_theme_options=options)
    )


def test_kaggle_opens_the_notebook_in_the_repository():
    found = context()
    discovery.mend_buttons(app(OPTIONS), "book/start/devices", "", found, None)
    colab, kaggle = found["header_buttons"][1]["buttons"]
    assert colab == {"text": "Colab"}
    assert kaggle["url"] == (
        "https://kaggle.com/kernels/welcome?src="
        "https://github.com/owner/name/blob/main/book/start/devices.ipynb"
    )


@pytest.mark.parametrize("without", ["repository_url", "launch_buttons"])
def test_without_an_address_there_is_no_kaggle(without):
    found = context()
    options = {name: value for name, value in OPTIONS.items() if name != without}
    discovery.mend_buttons(app(options), "book/start/devices", "", found, None)
    assert found["header_buttons"][1]["buttons"] == [{"text": "Colab"}]


def test_the_download_says_what_it_is_and_other_pages_keep_theirs():
    notebook, text = context(), context(".md")
    for page in (notebook, text):
        discovery.mend_buttons(app({}), "book/index", "", page, None)
    (button,) = notebook["header_buttons"][0]["buttons"]
    assert button["tooltip"] == discovery.TOOLTIP
    assert text == context(".md")


# Binder.


def test_binder_installs_the_lock_with_a_python_that_the_book_supports():
    script = ROOT / "binder" / "postBuild"
    text = script.read_text(encoding="utf-8")
    assert text.startswith("#!/bin/bash\n")
    assert script.stat().st_mode & 0o111
    assert "--no-deps --require-hashes -r requirements.txt" in text
    text = (ROOT / "binder" / "runtime.txt").read_text(encoding="utf-8")
    major, minor = map(int, text.strip().removeprefix("python-").split("."))
    assert (3, 10) <= (major, minor) <= (3, 13)
