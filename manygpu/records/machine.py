"""The machine that a record was made on: its processor, its system, its software."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any


def facts() -> dict[str, Any]:
    """Return the machine and its software; no name, no path, nothing personal."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 1,
        "memory_gib": memory_gib(),
        "system": operating_system(),
        "python": platform.python_version(),
        "tensorflow": version("tensorflow"),
        "numpy": version("numpy"),
    }


def version(package: str) -> str:
    """The version of an installed package, which is not imported; "none" without it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def cpu_model() -> str:
    """The CPU's name, as the system tells it."""
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if sys.platform == "darwin":
        query = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(
            query, capture_output=True, text=True, check=True
        ).stdout.strip()
    return platform.processor() or platform.machine()


def memory_gib() -> float:
    """Memory of the machine in GiB; 0 where the system doesn't tell."""
    try:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0.0
    return round(pages / 2**30, 1)


def operating_system() -> str:
    """Such as 'Debian GNU/Linux 12 (bookworm), x86_64'."""
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = f"{platform.system()} {platform.release()}"
    return f"{name}, {platform.machine()}"
