"""Cut the shipped subset of Fashion-MNIST out of the whole: 1,000 + 200 a class.

Run it where the whole data set is at hand; it prints the SHA-256 that manygpu.data
holds. tests/unit/test_data.py checks that the shipped files are what this makes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from manygpu import data

TRAIN_A_CLASS, TEST_A_CLASS = 1000, 200


def subset(X: np.ndarray, y: np.ndarray, a_class: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `a_class` samples of each of the ten classes, in their own order."""
    kept = np.sort(
        np.concatenate([np.flatnonzero(y == c)[:a_class] for c in range(10)])
    )
    return X[kept], y[kept]


def write_subset(folder: Path) -> dict[str, str]:
    """Write the four files into `folder`; return their SHA-256 by part."""
    whole = data.load("debian", quiet=True)
    arrays = (
        *subset(whole.X_train, whole.y_train, TRAIN_A_CLASS),
        *subset(whole.X_test, whole.y_test, TEST_A_CLASS),
    )
    folder.mkdir(parents=True, exist_ok=True)
    return {
        part: data.write_idx(folder / f"{part}-ubyte.gz", array)
        for part, array in zip(data.PARTS, arrays, strict=True)
    }


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else data.SHIPPED
    for part, sha256 in write_subset(target).items():
        print(part, sha256)
