"""Find a browser for the tests of the rendered book, before anything slow begins.

python workshop/browser.py    say which one there is, or what to do
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
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
No browser was found, and none can be fetched: {why}.
The last step of `make test` opens the rendered book in Chromium or Chrome. Install one,
    Debian, Ubuntu   apt install chromium
    macOS, Windows   Google Chrome from its maker
    anywhere         {python} -m playwright install chromium
and run `make test` again. (`make book` needs no browser.) Nothing was run yet."""


def find() -> str | None:
    """The system's Chromium or Chrome, else the one that Playwright installed."""
    on_path = next(filter(None, map(shutil.which, NAMES)), None)
    if on_path:
        return on_path
    found = next(filter(os.path.isfile, PLACES), None)
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
            says what to do. Without a network that takes some three seconds.
    """
    path = find()
    if path is None:
        why = unreachable(STORE)
        if why:
            sys.exit(ADVICE.format(why=why, python=sys.executable))
        print("no browser here: Playwright fetches Chromium", flush=True)
        command = [sys.executable, "-m", "playwright", "install", "chromium"]
        done = subprocess.run(command, check=False)
        path = playwrights() if done.returncode == 0 else None
        if path is None:
            why = "its download failed, as said above"
            sys.exit(ADVICE.format(why=why, python=sys.executable))
    try_it(path)
    return path


def try_it(path: str) -> None:
    """Start the browser once; stop with its own words if it can't."""
    from playwright.sync_api import Error, sync_playwright

    try:
        with sync_playwright() as playwright:
            playwright.chromium.launch(executable_path=path, args=QUIET).close()
    except Error as broken:
        said = str(broken).strip()[:1500]
        sys.exit(f"{path} is here but doesn't start. It said:\n{said}")


def unreachable(host: str, patience_s: float = PATIENCE_S) -> str:
    """Why `host` can't be reached; "" if it can. Never longer than `patience_s`."""
    answer = [f"{host} gave no answer in {patience_s:g} s"]

    def look() -> None:
        try:
            socket.create_connection((host, 443), timeout=patience_s).close()
            answer[0] = ""
        except OSError as error:
            answer[0] = f"{host} can't be reached ({error})"

    # Looking up a name knows no time-out, so it is left behind if it takes too long.
    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(patience_s)
    return answer[0]


if __name__ == "__main__":
    print(ensure())
