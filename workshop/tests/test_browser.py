"""A browser is found or fetched, or the reader is told at once."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess

import pytest

from workshop import browser


@pytest.fixture
def none_here(monkeypatch):
    """A machine without any browser."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(os.path, "isfile", lambda path: False)
    monkeypatch.setattr(browser, "playwrights", lambda: None)
    monkeypatch.setattr(browser, "try_it", lambda path: None)


def test_the_systems_browser_comes_first(monkeypatch):
    places = {"google-chrome": "a/chrome", "chromium-browser": "a/chromium"}
    monkeypatch.setattr(shutil, "which", places.get)
    assert browser.find() == "a/chromium"


def test_then_the_places_of_other_systems_then_playwrights(none_here, monkeypatch):
    monkeypatch.setattr(browser, "playwrights", lambda: "its own")
    assert browser.find() == "its own"
    monkeypatch.setattr(os.path, "isfile", lambda path: path == browser.PLACES[2])
    assert browser.find() == browser.PLACES[2]


def test_without_browser_and_network_it_says_what_to_do(none_here, monkeypatch):
    def no_network(address, timeout):
        assert timeout < 5
        raise OSError("no such name")

    monkeypatch.setattr(socket, "create_connection", no_network)
    monkeypatch.setattr(subprocess, "run", None)  # nothing can be fetched
    with pytest.raises(SystemExit, match="apt install chromium"):
        browser.ensure()


@pytest.mark.parametrize("status", [0, 1])
def test_with_a_network_playwright_fetches_one(none_here, monkeypatch, status):
    ran = []

    def fetch(command, **_):
        ran.append(command[1:])
        there = "fetched" if status == 0 else None
        monkeypatch.setattr(browser, "playwrights", lambda: there)
        return subprocess.CompletedProcess(command, status)

    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: socket.socket())
    monkeypatch.setattr(subprocess, "run", fetch)
    if status:
        with pytest.raises(SystemExit, match="apt install chromium"):
            browser.ensure()
    else:
        assert browser.ensure() == "fetched"
    assert ran == [["-m", "playwright", "install", "chromium"]]


def test_a_browser_that_does_not_start_is_named(tmp_path):
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\necho no display >&2\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    with pytest.raises(SystemExit, match="is here but doesn't start"):
        browser.try_it(str(broken))
