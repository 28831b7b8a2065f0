"""The lock: everything pinned and hashed, every direct need with its reason."""

from __future__ import annotations

import re
from importlib import metadata

import pytest

from tools.notebooks import ROOT

LOCKS = ("requirements.txt", "requirements-gpu.txt")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(file: str) -> dict[str, str]:
    """Each direct need of a .in file with the text that follows it."""
    lines = (ROOT / file).read_text().splitlines()
    lines = [
        line for line in lines if line.strip() and not line.startswith(("#", "-r"))
    ]
    found = [(NAME.match(line), line) for line in lines]
    return {normal(m.group()): line[m.end() :] for m, line in found}


def entries(lock: str) -> dict[str, list[str]]:
    """Each package of a lock, with all its entries (one a marker), joined up."""
    text = (ROOT / lock).read_text().replace("\\\n", " ")
    lines = [
        x for x in text.splitlines() if x.strip() and not x.lstrip().startswith("#")
    ]
    found: dict[str, list[str]] = {}
    for line in lines:
        name = NAME.match(line)
        assert name, f"{lock}: {line!r} is no package"
        found.setdefault(normal(name.group()), []).append(line[name.end() :])
    return found


def versions(lock: str) -> dict[str, set[str]]:
    """The pinned versions of each package, with their markers."""
    return {
        name: {entry.split("--hash")[0].strip() for entry in all_of_it}
        for name, all_of_it in entries(lock).items()
    }


@pytest.mark.parametrize("file", ["requirements.in", "requirements-gpu.in"])
def test_each_direct_need_has_its_reason(file):
    found = needs(file)
    assert found
    for name, rest in found.items():
        _, _, reason = rest.partition("#")
        assert len(reason.split()) >= 2, f"{file}: why {name}?"


@pytest.mark.parametrize("lock", LOCKS)
def test_each_direct_need_is_in_the_lock(lock):
    assert set(needs("requirements.in")) <= set(entries(lock))


def test_what_the_gpu_needs_is_in_its_lock():
    assert set(needs("requirements-gpu.in")) <= set(entries("requirements-gpu.txt"))
    assert "-r requirements.in" in (ROOT / "requirements-gpu.in").read_text()


@pytest.mark.parametrize("lock", LOCKS)
def test_each_entry_is_pinned_to_one_version_and_hashed(lock):
    found = entries(lock)
    assert len(found) > 50
    for name, all_of_it in found.items():
        for entry in all_of_it:
            assert re.match(r"(\[[\w,-]+\])?==[\w.!+]+(\s|$)", entry), f"{name}{entry}"
            hashes = re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry)
            assert hashes, f"{name} has no hash"
            assert len(hashes) == entry.count("--hash=")


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_names_no_index_and_no_address(lock):
    text = (ROOT / lock).read_text()
    for word in (
        "://",
        "--index-url",
        "--extra-index-url",
        "--find-links",
        " @ ",
        "-e ",
    ):
        assert word not in text


def test_the_gpu_lock_pins_the_same_versions_of_all_that_both_have():
    plain, gpu = versions(LOCKS[0]), versions(LOCKS[1])
    assert set(plain) <= set(gpu)
    different = {
        name: (found, gpu[name])
        for name, found in plain.items()
        if found != {re.sub(r"^\[[\w,-]+\]", "", version) for version in gpu[name]}
    }
    assert different == {}


def test_the_gpu_lock_adds_the_cuda_libraries_and_nothing_else():
    more = set(entries(LOCKS[1])) - set(entries(LOCKS[0]))
    assert "nvidia-nccl-cu12" in more
    assert {name for name in more if not name.startswith("nvidia-")} == set()


def test_what_is_installed_is_what_the_lock_says():
    found = versions(LOCKS[0])
    for name in ("tensorflow", "keras", "numpy", "d2l", "jupyter-book", "nbdev"):
        pinned = {version.split(";")[0].strip() for version in found[name]}
        assert f"=={metadata.version(name)}" in pinned


def test_d2l_comes_without_its_own_pins():
    text = (ROOT / LOCKS[0]).read_text()
    entry = text[text.index("\nd2l==") :].split("\n\n")[0]
    assert "==1.0.3" in entry
    assert not re.search(r"^    #   d2l$", text, flags=re.M)


def test_what_the_package_needs_alone_is_in_the_lock_too():
    project = (ROOT / "pyproject.toml").read_text()
    (listed,) = re.findall(r"^dependencies = \[(.*?)\]", project, flags=re.M | re.S)
    names = {normal(NAME.match(n).group()) for n in re.findall(r'"([^"]+)"', listed)}
    assert names
    assert names <= set(entries(LOCKS[0]))
