"""The rendered book and a real browser, for the tests that look at pages."""

from __future__ import annotations

import functools
import http.server
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from workshop.browser import QUIET, find
from workshop.pages import ROOT
from workshop.serving import Pages

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
# A page for one figure, with the inks of the book's two themes.
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Explorable</title>
<meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; font: 16px sans-serif; }}
body {{ margin: 16px; width: {width}; color: #222832; background: #ffffff; }}
@media (prefers-color-scheme: dark) {{
  body {{ color: #ced6dd; background: #121212; }}
}}
figure {{ margin: 0; }}
</style><body><main><h1>Explorable</h1>{figure}</main></body></html>"""


@pytest.fixture(scope="session")
def html_root() -> Path:
    """The folder of the rendered book: BOOK_HTML, else what `make book` made."""
    given = os.environ.get("BOOK_HTML")
    folder = Path(given) if given else ROOT / "_build" / "html"
    if not (folder / "book" / "index.html").is_file():
        pytest.fail(f"{folder} holds no rendered book: run `make book` first")
    return folder


class _Quiet(Pages):
    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


@pytest.fixture(scope="session")
def served(html_root: Path) -> Iterator[str]:
    """The address of the rendered book, served on loopback."""
    handler = functools.partial(_Quiet, directory=html_root)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """A headless Chromium: the system's, else the one Playwright installed."""
    from playwright.sync_api import sync_playwright

    found = find()  # before Playwright runs: it may be asked too
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=QUIET)
        yield running
        running.close()


@pytest.fixture
def visit(html_root: Path, browser) -> Iterator[Callable]:
    """Open a page of the book: `visit("book/index", PHONE, color_scheme="dark")`.

    From the disk, unless `root` says whence; other arguments are settings of the
    browser. No page may complain, whatever a test does to it.
    """
    contexts, said = [], []

    def open_page(page: str, size=DESK, root="", query="", **settings):
        contexts.append(browser.new_context(viewport=size, **settings))
        tab = contexts[-1].new_page()
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("console", lambda m: said.append(m.text) if m.type == "error" else None)
        tab.goto(f"{root or html_root.as_uri()}/{page}.html{query}")
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


@pytest.fixture
def lone(browser, tmp_path: Path) -> Iterator[Callable]:
    """Open a figure on a page of its own: `lone(html, "kind", width="auto", ...)`.

    What it returns has the page's tab and the figure. Other arguments are settings of
    the browser. The tests need no rendered book, and whatever they do must not make
    the page complain or fetch anything.
    """
    contexts, said, asked = [], [], []

    def open_figure(html: str, kind: str, width="auto", **settings) -> SimpleNamespace:
        file = tmp_path / f"page{len(contexts)}.html"
        file.write_text(PAGE.format(width=width, figure=html), encoding="utf-8")
        context = browser.new_context(**settings)
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("console", lambda m: said.append(m.text))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(file.as_uri())
        if settings.get("java_script_enabled", True):
            tab.wait_for_selector(f".manygpu-{kind}[data-ready]")
        return SimpleNamespace(tab=tab, figure=tab.locator(f".manygpu-{kind}"))

    yield open_figure
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
