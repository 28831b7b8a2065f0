"""The lock: everything pinned and hashed, every direct need with its reason."""

from __future__ import annotations

import re
from importlib import metadata

import pytest
from packaging.markers import Marker

from workshop.notebooks import ROOT

LOCKS = ("requirements.txt", "requirements-gpu.txt")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(file: str) -> dict[str, str]:
    """Each direct need of a .in file with the text that follows it."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    lines = [
        line for line in lines if line.strip() and not line.startswith(("#", "-r"))
    ]
    found = [(NAME.match(line), line) for line in lines]
    return {normal(m.group()): line[m.end() :] for m, line in found}


def entries(lock: str) -> dict[str, list[str]]:
    """Each package of a lock, with all its entries (one a marker), joined up."""
    text = (ROOT / lock).read_text(encoding="utf-8").replace("\\\n", " ")
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
    """The pinned versions of each package, without their markers."""
    return {
        name: {entry.split("--hash")[0].split(";")[0].strip() for entry in all_of_it}
        for name, all_of_it in entries(lock).items()
    }


def machines() -> list[dict[str, str]]:
    """What a marker may ask for, on each kind of machine that the book runs on."""
    systems = (
        ("posix", "linux", "Linux", "x86_64"),
        ("posix", "linux", "Linux", "aarch64"),
        ("posix", "darwin", "Darwin", "arm64"),
        ("nt", "win32", "Windows", "AMD64"),
    )
    return [
        {
            "os_name": os_name,
            "sys_platform": platform,
            "platform_system": system,
            "platform_machine": machine,
            "platform_python_implementation": "CPython",
            "implementation_name": "cpython",
            "python_version": python,
            "python_full_version": f"{python}.9",
        }
        for os_name, platform, system, machine in systems
        for python in ("3.10", "3.11", "3.12", "3.13")
    ]


def named(machine: dict[str, str]) -> str:
    words = ("sys_platform", "platform_machine", "python_version")
    return "-".join(machine[word] for word in words)


def installed(lock: str, machine: dict[str, str]) -> dict[str, list[str]]:
    """What one machine installs from a lock: the versions of each package."""
    found: dict[str, list[str]] = {}
    for name, all_of_it in entries(lock).items():
        for entry in all_of_it:
            version, _, marker = entry.split("--hash")[0].partition(";")
            if not marker.strip() or Marker(marker).evaluate(machine):
                version = re.sub(r"^\[[\w,-]+\]", "", version).strip()
                found.setdefault(name, []).append(version)
    return found


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
    assert "-r requirements.in" in (ROOT / "requirements-gpu.in").read_text(
        encoding="utf-8"
    )


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
    text = (ROOT / lock).read_text(encoding="utf-8")
    for word in (
        "://",
        "--index-url",
        "--extra-index-url",
        "--find-links",
        " @ ",
        "-e ",
    ):
        assert word not in text


@pytest.mark.parametrize("machine", machines(), ids=named)
def test_both_locks_install_the_same_versions_of_all_that_both_have(machine):
    plain, gpu = installed(LOCKS[0], machine), installed(LOCKS[1], machine)
    assert len(plain) > 50
    assert {name: gpu.get(name) for name in plain} == plain


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("machine", machines(), ids=named)
def test_no_machine_is_told_to_install_two_versions_of_one_package(lock, machine):
    found = installed(lock, machine)
    assert {name: v for name, v in found.items() if len(v) > 1} == {}


def test_the_gpu_lock_adds_the_cuda_libraries_and_nothing_else():
    more = set(entries(LOCKS[1])) - set(entries(LOCKS[0]))
    assert "nvidia-nccl-cu12" in more
    assert {name for name in more if not name.startswith("nvidia-")} == set()


def test_what_is_installed_is_what_the_lock_says():
    found = versions(LOCKS[0])
    for name in ("tensorflow", "keras", "numpy", "d2l", "jupyter-book", "nbdev"):
        assert f"=={metadata.version(name)}" in found[name]


def test_d2l_comes_without_its_own_pins():
    text = (ROOT / LOCKS[0]).read_text(encoding="utf-8")
    entry = text[text.index("\nd2l==") :].split("\n\n")[0]
    assert "==1.0.3" in entry
    assert not re.search(r"^    #   d2l$", text, flags=re.M)


def test_what_the_package_needs_alone_is_in_the_lock_too():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^dependencies = \[(.*?)\]", project, flags=re.M | re.S)
    names = {normal(NAME.match(n).group()) for n in re.findall(r'"([^"]+)"', listed)}
    assert names
    assert names <= set(entries(LOCKS[0]))
