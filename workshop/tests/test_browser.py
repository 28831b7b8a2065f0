"""A browser is found or fetched, or the reader is told at once."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time

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
    def no_network(*_, **__):
        raise OSError("no such name")

    def not_run(*_, **__):
        raise AssertionError("nothing can be fetched")

    monkeypatch.setattr(socket, "create_connection", no_network)
    monkeypatch.setattr(subprocess, "run", not_run)
    with pytest.raises(SystemExit) as stopped:
        browser.ensure()
    said = str(stopped.value)
    assert "no such name" in said
    assert "apt install chromium" in said
    assert "playwright install chromium" in said


def test_a_network_that_never_answers_is_given_up(none_here, monkeypatch):
    def never(*_, **__):
        time.sleep(3)
        raise OSError("at last")

    monkeypatch.setattr(socket, "create_connection", never)
    begun = time.monotonic()
    assert "no answer in 0.2 s" in browser.unreachable("example.invalid", 0.2)
    assert time.monotonic() - begun < 2


def test_with_a_network_playwright_fetches_one(none_here, monkeypatch):
    ran, there = [], []

    def fetch(command, **_):
        ran.append(command[1:])
        there.append("fetched")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(browser, "unreachable", lambda host: "")
    monkeypatch.setattr(subprocess, "run", fetch)
    monkeypatch.setattr(browser, "playwrights", lambda: there[-1] if there else None)
    assert browser.ensure() == "fetched"
    assert ran == [["-m", "playwright", "install", "chromium"]]


def test_a_download_that_fails_is_said(none_here, monkeypatch):
    failed = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(browser, "unreachable", lambda host: "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(SystemExit, match="download failed"):
        browser.ensure()


def test_a_browser_that_does_not_start_is_named(tmp_path):
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\necho no display >&2\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    with pytest.raises(SystemExit, match="is here but doesn't start"):
        browser.try_it(str(broken))
