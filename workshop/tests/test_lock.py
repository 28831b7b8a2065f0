"""The lock: every direct need with its reason; uv sees to pins, hashes and machines."""

from __future__ import annotations

import re

import pytest

from workshop.notebooks import ROOT

LOCKS = ("requirements.txt", "requirements-gpu.txt")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[\w,-]+\])?==([^\s;\\]+)", re.M)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(file: str) -> list[tuple[str, str]]:
    """Each direct need of a .in file, and the text that follows it."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    found = [(NAME.match(line), line) for line in lines]
    return [(normal(name.group()), line[name.end() :]) for name, line in found if name]


def versions(lock: str) -> set[tuple[str, str]]:
    """Each package of a lock with its version: one for each marker."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    return {(normal(name), version) for name, version in PINNED.findall(text)}


@pytest.mark.parametrize("file", ["requirements.in", "requirements-gpu.in"])
def test_each_direct_need_stands_there_once_with_its_reason(file):
    found = needs(file)
    assert found and len(dict(found)) == len(found)
    for name, rest in found:
        _, _, reason = rest.partition("#")
        assert len(reason.split()) >= 2, f"{file}: why {name}?"


@pytest.mark.parametrize("lock", [*LOCKS, "requirements-oldest.txt"])
def test_each_direct_need_is_in_the_lock_and_no_address(lock):
    assert dict(needs("requirements.in")).keys() <= dict(versions(lock)).keys()
    text = (ROOT / lock).read_text(encoding="utf-8")
    for word in ("://", "--index-url", "--extra-index-url", "--find-links", " @ "):
        assert word not in text


def test_the_gpu_lock_is_the_other_and_the_cuda_libraries():
    text = (ROOT / "requirements-gpu.in").read_text(encoding="utf-8")
    assert "-r requirements.in" in text
    plain, gpu = map(versions, LOCKS)
    assert plain <= gpu and {"nvidia-nccl-cu12"} < {name for name, _ in gpu - plain}
    assert all(name.startswith("nvidia-") for name, _ in gpu - plain)


def test_d2l_comes_without_its_own_pins():
    text = (ROOT / LOCKS[0]).read_text(encoding="utf-8")
    assert ("d2l", "1.0.3") in versions(LOCKS[0])
    assert not re.search(r"^    #   d2l$", text, flags=re.M)


def test_what_the_package_needs_alone_is_in_the_lock_too():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^dependencies = \[(.*?)\]", project, flags=re.M | re.S)
    names = {normal(NAME.match(n).group()) for n in re.findall(r'"([^"]+)"', listed)}
    assert names
    assert names <= dict(versions(LOCKS[0])).keys()
