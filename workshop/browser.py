"""Find a browser for the tests of the rendered book, before anything slow begins.

python workshop/browser.py    say which one there is, or what to do
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Google\Chrome\Application\chrome.exe",
)
# As root, Chromium starts only without its sandbox; the pages are our own.
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
STORE = "cdn.playwright.dev"
PATIENCE_S = 3.0
ADVICE = """\
No browser was found, and none could be fetched.
The last step of `make test` opens the rendered book in Chromium or Chrome. Install one,
    Debian, Ubuntu   apt install chromium
    macOS, Windows   Google Chrome from its maker
    anywhere         {python} -m playwright install chromium
and run `make test` again. (`make book` needs no browser.) Nothing was run yet."""


def find() -> str | None:
    """The system's Chromium or Chrome, else the one that Playwright installed."""
    on_path = filter(None, map(shutil.which, NAMES))
    found = next(on_path, None) or next(filter(os.path.isfile, PLACES), None)
    return found or playwrights()


def playwrights() -> str | None:
    """The browser that Playwright has downloaded, or None."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).is_file() else None


def ensure() -> str:
    """Return a browser's path, installing Playwright's if there is none.

    Raises:
        SystemExit: there is none and none can be had, or it doesn't start; the message
            says what to do.
    """
    path = find() or fetch()
    if path is None:
        sys.exit(ADVICE.format(python=sys.executable))
    try_it(path)
    return path


def fetch() -> str | None:
    """Let Playwright fetch its Chromium; without a network, give up in seconds."""
    try:
        socket.create_connection((STORE, 443), timeout=PATIENCE_S).close()
    except OSError as error:
        print(f"{STORE} can't be reached ({error})", flush=True)
        return None
    print("no browser here: Playwright fetches Chromium", flush=True)
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    done = subprocess.run(command, check=False)
    return None if done.returncode else playwrights()


def try_it(path: str) -> None:
    """Start the browser once; stop with its own words if it can't."""
    from playwright.sync_api import Error, sync_playwright

    try:
        with sync_playwright() as playwright:
            playwright.chromium.launch(executable_path=path, args=QUIET).close()
    except Error as broken:
        said = str(broken).strip()[:1500]
        sys.exit(f"{path} is here but doesn't start. It said:\n{said}")


if __name__ == "__main__":
    print(ensure())
