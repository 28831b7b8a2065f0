"""The rendered book and a real browser, for the tests that look at pages."""

from __future__ import annotations

import functools
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.browser import QUIET, find

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def html_root() -> Path:
    """The folder of the rendered book: BOOK_HTML, else what `make book` made."""
    given = os.environ.get("BOOK_HTML")
    folder = Path(given) if given else ROOT / "_build" / "html"
    if not (folder / "book" / "index.html").is_file():
        pytest.fail(f"{folder} holds no rendered book: run `make book` first")
    return folder


class _Quiet(http.server.SimpleHTTPRequestHandler):
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
