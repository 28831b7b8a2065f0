"""Fashion-MNIST, from wherever it can be had, checked before it is used.

Sources, in this order: Keras' cache (`~/.keras/datasets/fashion-mnist`), a download
into that cache, the Debian package `dataset-fashion-mnist`, and the subset that comes
with this package (the first 1,000 training and 200 test images of each class). A
chapter that runs as a single file carries fewer (the first 200 and 50 of each class):
where a cell asks for more of those than there are, they are repeated.
The data: Xiao, Rasul, Vollgraf, Fashion-MNIST, arXiv:1708.07747, MIT licence.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import os
import struct
import tempfile
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from manygpu._devices import devices, untuned
from manygpu._files import data_file
from manygpu.checks import check_count

URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
SUMS = data_file("datasets/sha256.json")
SHIPPED = SUMS.with_name("fashion-mnist")
# The fewer images that workshop/standalone.py packs into a chapter in their place.
CARRIED = SUMS.with_name("carried")
SOURCES = ("keras", "download", "debian", "shipped", "carried")
DOWNLOAD_TIMEOUT_S = 10
CLASSES = ("t-shirt", "trouser", "pullover", "dress", "coat")
CLASSES += ("sandal", "shirt", "sneaker", "bag", "ankle boot")

PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3")
PARTS += ("t10k-labels-idx1",)
# SHA-256 of what each file holds once unpacked. The gzip wrapping differs from source
# to source (Debian strips the original's name and date), what is inside does not.
SHA256 = json.loads(SUMS.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class FashionMNIST:
    """The arrays as stored, and where they came from.

    Attributes:
        X_train, X_test: uint8, (samples, 28, 28), 0 to 255.
        y_train, y_test: uint8, (samples,), 0 to 9: see `CLASSES`.
        source: one of `SOURCES`.
    """

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    source: str


def fashion_mnist(
    batch_size: int,
    train_samples: int | None = None,
    test_samples: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    quiet: bool = False,
) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    """Return the training and test batches, as `d2l.load_data_fashion_mnist` does.

    Unlike d2l's, it needs no network, and it shuffles samples, not whole batches.
    The last batch holds what is left over and may be smaller. The few images that a
    single file carries are repeated, in turn, up to the number asked for. TensorFlow
    tunes neither, nor what is built on them: see "Feeding the devices".

    Args:
        batch_size: samples a batch.
        train_samples: use only the first so many; None for all.
        test_samples: likewise.
        shuffle: shuffle the training samples anew each epoch.
        seed: of the shuffle.
        quiet: don't print which source is used.

    Returns:
        Training and test batches. Each is a dataset of pairs X, y, with X float32
        of shape (batch, 28, 28, 1) in [0, 1] and y int32 of shape (batch,).

    Raises:
        TypeError, ValueError: a count that is not a whole number from 1 to what
            the source holds; a seed that is none; a file that is truncated or altered.
    """
    batch_size = check_count("batch_size", batch_size)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed must be a whole number, got {seed!r}: pass 0, 1, ...")
    data = load(quiet=quiet)
    repeat = data.source == "carried"
    train = _first("train_samples", train_samples, data.X_train, data.y_train, repeat)
    test = _first("test_samples", test_samples, data.X_test, data.y_test, repeat)
    devices(quiet=True)  # a tf.data pipeline starts TensorFlow: with our devices
    batches = tf.data.Dataset.from_tensor_slices(train)
    if shuffle:
        batches = batches.shuffle(len(train[0]), seed=seed)
    test_batches = tf.data.Dataset.from_tensor_slices(test).batch(batch_size)
    return (
        batches.batch(batch_size).map(_to_float).prefetch(1).with_options(untuned()),
        test_batches.map(_to_float).with_options(untuned()),
    )


def load(source: str | None = None, quiet: bool = False) -> FashionMNIST:
    """Return Fashion-MNIST as uint8 arrays from the first source that has it.

    Args:
        source: one of `SOURCES` to use that and no other. None means the variable
            MANYGPU_DATA, else all in turn.
        quiet: don't print which source is used.

    Raises:
        ValueError: no such source, the source has no data, or a file of it does not
            match its SHA-256. A file is checked whole before any of it is used.
    """
    wanted = source or os.environ.get("MANYGPU_DATA") or None
    if wanted is not None and wanted not in SOURCES:
        raise ValueError(f"source must be one of {SOURCES}, got {wanted!r}")
    for name in [wanted] if wanted else SOURCES:
        folder = _folder(name)
        if folder is not None:
            arrays = [
                read_idx(folder / f"{p}-ubyte.gz", _sha256(name, p)) for p in PARTS
            ]
            data = FashionMNIST(*arrays, source=name)
            if not quiet:
                print(_describe(data))
            return data
    raise ValueError(
        f"source {wanted!r} has no Fashion-MNIST here: unset MANYGPU_DATA to try all"
    )


def read_idx(path: str | Path, sha256: str) -> np.ndarray:
    """Read one gzipped IDX file of bytes, refusing it unless it is what it should be.

    Args:
        path: the file.
        sha256: of its unpacked content, in hexadecimal.

    Returns:
        uint8 array of the shape that the file's header gives.

    Raises:
        ValueError: truncated, not gzip, or altered; the message names the file.
    """
    path = Path(path)
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as broken:
        raise ValueError(_refusal(path, f"it can't be unpacked ({broken})")) from broken
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ValueError(_refusal(path, f"its SHA-256 is {found}, not {sha256}"))
    axes = content[3]
    shape = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def write_idx(path: str | Path, array: np.ndarray) -> str:
    """Write a uint8 array as a gzipped IDX file; return the SHA-256 of its content.

    Raises:
        TypeError: no array of uint8; other numbers would be cut to a byte each.
    """
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8:
        found = getattr(array, "dtype", type(array).__name__)
        raise TypeError(f"array must be a NumPy array of uint8, got {found}: round it")
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content = header + array.tobytes()
    Path(path).write_bytes(gzip.compress(content, compresslevel=9, mtime=0))
    return hashlib.sha256(content).hexdigest()


def _refusal(path: Path, why: str) -> str:
    ours = "carried" if CARRIED.is_dir() else "shipped"
    return (
        f"{path} is not the Fashion-MNIST file it should be: {why}. It was not used. "
        f"Delete it to have it fetched again, or set MANYGPU_DATA={ours}"
    )


def _describe(data: FashionMNIST) -> str:
    where = {
        "keras": "Keras' cache",
        "download": "downloaded",
        "debian": "Debian's package",
        "shipped": "shipped with manygpu",
        "carried": "carried here, repeated",
    }[data.source]
    train, test = len(data.y_train), len(data.y_test)
    return f"Fashion-MNIST: {train:,} training and {test:,} test images, {where}"


def _sha256(source: str, part: str) -> str:
    return SHA256[source if source in ("shipped", "carried") else "full"][part]


def _keras_cache() -> Path:
    home = os.environ.get("KERAS_HOME") or Path.home() / ".keras"
    return Path(home) / "datasets" / "fashion-mnist"


def _folder(source: str) -> Path | None:
    """The folder in which `source` has all four files, or None."""
    if source == "download":
        return _download(_keras_cache())
    folder = {
        "keras": _keras_cache(),
        "debian": DEBIAN,
        "shipped": SHIPPED,
        "carried": CARRIED,
    }[source]
    complete = all((folder / f"{p}-ubyte.gz").is_file() for p in PARTS)
    return folder if complete else None


def _download(folder: Path) -> Path | None:
    """Fetch the four files into `folder`; None where there is no network.

    Each is written beside its place, checked, then moved: a file that broke off half
    way is never found by a later run.
    """
    if os.environ.get("MANYGPU_OFFLINE"):
        return None
    for part in PARTS:
        target = folder / f"{part}-ubyte.gz"
        if target.is_file():
            continue
        try:
            with urllib.request.urlopen(
                URL + target.name, timeout=DOWNLOAD_TIMEOUT_S
            ) as reply:
                content = reply.read()
            _put(target, content, SHA256["full"][part])
        except (OSError, http.client.HTTPException):
            return None  # no network, no such host, timed out, broke off half way
        except ValueError as wrong:  # a login page in place of the file, say
            print(f"{URL}{target.name} did not give the file it should: {wrong}")
            return None
    return folder


def _put(target: Path, content: bytes, sha256: str) -> None:
    """Write `content` at `target`, whole and checked, or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as part:
            part.write(content)
        read_idx(Path(name), sha256)
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


def _first(
    name: str, count: int | None, X: np.ndarray, y: np.ndarray, repeat: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The first `count` samples; `repeat` begins anew where there are too few."""
    if count is None:
        return X, y
    count = check_count(name, count)
    if repeat and count > len(X):
        return np.resize(X, (count, *X.shape[1:])), np.resize(y, count)
    if count > len(X):
        raise ValueError(f"{name} is {count:,}, but this source holds {len(X):,}")
    return X[:count], y[:count]


def _to_float(X: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """uint8 (batch, 28, 28) -> float32 (batch, 28, 28, 1) in [0, 1]; y -> int32."""
    return tf.cast(X, tf.float32)[..., tf.newaxis] / 255.0, tf.cast(y, tf.int32)
