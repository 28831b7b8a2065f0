"""Files that come with the package: each module names here the ones that it reads.

    FILE = data_file("choosing/data/prices.csv")

finds the file, and declares it: a chapter that runs as a single file carries what its
modules declare. `workshop/needs.py` reads these calls without running them, so a path
is written out, never computed. A test refuses any other way to the package's folder.
"""

from __future__ import annotations

from pathlib import Path

_HOME = Path(__file__).parent


def data_file(path: str) -> Path:
    """Return where a file of the package is.

    Args:
        path: from the package's folder, such as "choosing/data/prices.csv".

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not (file := _HOME / path).is_file():
        raise FileNotFoundError(_missing("path", path))
    return file


def data_folder(path: str, *patterns: str) -> Path:
    """Return a folder of the package from which the caller reads several files.

    Args:
        path: from the package's folder, such as "records/machines".
        patterns: of the names that are read, such as "*.json"; at least one of them.

    Raises:
        FileNotFoundError: a pattern matches no file there.
    """
    for pattern in patterns:
        if not any((_HOME / path).glob(pattern)):
            raise FileNotFoundError(_missing("pattern", f"{path}/{pattern}"))
    return _HOME / path


def _missing(name: str, found: str) -> str:
    return (
        f"{name} must name a file that comes with manygpu, got {found!r}, which is "
        f"not in {_HOME}: install manygpu again, or download this notebook again"
    )
