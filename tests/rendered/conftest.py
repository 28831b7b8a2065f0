"""The rendered book and a real browser, for the tests that look at pages."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import http.server
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workshop.browser import QUIET, find
from workshop.pages import ROOT
from workshop.serving import Pages

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
# What a tab can be told at any time, and what it is told if a test doesn't care.
LOOKS = {"color_scheme": "light", "reduced_motion": "no-preference"}
OWN = "file:", "data:", "about:"
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


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the rendered book, so that no file can forget to say it."""
    for item in items:
        if "html_root" in getattr(item, "fixturenames", ()):
            item.add_marker("rendered")


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


@dataclasses.dataclass
class Heard:
    """A tab, and what it has said and asked for since it was taken."""

    tab: Any  # a page, as Playwright says
    said: list[str] = dataclasses.field(default_factory=list)
    errors: list[str] = dataclasses.field(default_factory=list)
    failed: list[str] = dataclasses.field(default_factory=list)
    asked: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        """Listen."""
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("requestfailed", lambda request: self.failed.append(request.url))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.on("console", self.note)

    def note(self, message) -> None:
        """Keep what the console says."""
        self.said.append(message.text)
        if message.type == "error":
            self.errors.append(message.text)

    def forget(self) -> None:
        """Leave the page and what it has kept, for the next test."""
        self.tab.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        self.tab.mouse.move(0, 0)
        self.tab.goto("about:blank")


class Tabs:
    """The tabs of a browser, taken by one test after the other.

    To open one costs more than most tests do.
    """

    def __init__(self, browser) -> None:
        """None is open yet."""
        self.browser, self.idle = browser, collections.defaultdict(list)

    @contextlib.contextmanager
    def lent(self) -> Iterator[Callable[..., Heard]]:
        """Lend tabs, `take(viewport=PHONE, color_scheme="dark")`, and clean them.

        With `fresh`, one that nobody has had or will have; of other settings that a
        tab keeps for good, such as `has_touch`, there is a kind of tabs each.
        """
        taken = []

        def take(fresh=False, **settings) -> Heard:
            size = settings.pop("viewport", DESK)
            looks = {name: settings.pop(name, first) for name, first in LOOKS.items()}
            idle = [] if fresh else self.idle[repr(settings)]
            if not idle:
                context = self.browser.new_context(viewport=size, **settings)
                idle.append(Heard(context.new_page()))
            taken.append((heard := idle.pop(), idle, fresh))
            if heard.tab.viewport_size != size:
                heard.tab.set_viewport_size(size)
            heard.tab.emulate_media(media="screen", **looks)
            for told in (heard.said, heard.errors, heard.failed, heard.asked):
                told.clear()
            return heard

        yield take
        for heard, idle, fresh in taken:
            if fresh:
                heard.tab.context.close()
            else:
                heard.forget()
                idle.append(heard)


@pytest.fixture(scope="session")
def tabs(browser) -> Tabs:
    """Tabs, for those tests that need no other settings."""
    return Tabs(browser)


@pytest.fixture
def visit(html_root: Path, tabs: Tabs) -> Iterator[Callable]:
    """Open a page of the book: `visit("book/index", PHONE, color_scheme="dark")`.

    From the disk, unless `root` says whence; other arguments are settings of the
    browser. No page may complain, whatever a test does to it.
    """
    heard = []
    with tabs.lent() as take:

        def open_page(page: str, size=DESK, root="", query="", **settings):
            heard.append(take(viewport=size, **settings))
            tab = heard[-1].tab
            tab.goto(f"{root or html_root.as_uri()}/{page}.html{query}")
            return tab

        yield open_page
    assert [error for each in heard for error in each.errors] == []


@pytest.fixture
def lone(tabs: Tabs, tmp_path: Path) -> Iterator[Callable]:
    """Open a figure on a page of its own: `lone(html, "kind", width="auto", ...)`.

    What it returns has the page's tab and the figure. Other arguments are settings of
    the browser. The tests need no rendered book, and whatever they do must not make
    the page complain or fetch anything.
    """
    heard = []
    with tabs.lent() as take:

        def open_figure(html: str, kind: str, width="auto", **settings):
            file = tmp_path / f"page{len(heard)}.html"
            file.write_text(PAGE.format(width=width, figure=html), encoding="utf-8")
            heard.append(take(**settings))
            tab = heard[-1].tab
            tab.goto(file.as_uri())
            if settings.get("java_script_enabled", True):
                tab.wait_for_selector(f".manygpu-{kind}[data-ready]")
            return SimpleNamespace(tab=tab, figure=tab.locator(f".manygpu-{kind}"))

        yield open_figure
    assert [each.said + each.errors for each in heard] == [[]] * len(heard)
    asked = [url for each in heard for url in each.asked]
    assert [url for url in asked if not url.startswith(OWN)] == []
