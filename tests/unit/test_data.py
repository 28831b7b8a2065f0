"""Fashion-MNIST: where it comes from, and that nothing but itself is ever used.

Most tests use a tiny data set that stands in for the whole one, with SHA-256 sums of
its own, so that each source can be given or taken away.
"""

import gzip
import http.client
import io
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu import data
from tests import refusals
from tests.refusals import good
from workshop import standalone

TRAIN, TEST = 60, 20  # samples of the tiny data set
SMALL = ("shipped", "carried")  # sources with fewer images than all
WHOLE = sorted(f"{part}-ubyte.gz" for part in data.PARTS)


def tiny(seed: int) -> list[np.ndarray]:
    """Images whose first pixel is their number and labels that follow from it."""
    rng = np.random.default_rng(seed)
    arrays = []
    for samples in (TRAIN, TEST):
        X = rng.integers(0, 256, (samples, 28, 28), np.uint8)
        X[:, 0, 0] = np.arange(samples)
        arrays += [X, (np.arange(samples) % 10).astype(np.uint8)]
    return arrays


def firsts(found: data.FashionMNIST, train: int, test: int) -> list[np.ndarray]:
    """The first so many images and labels of each class, in their own order."""
    arrays = []
    for part, a_class in (("train", train), ("test", test)):
        X, y = getattr(found, f"X_{part}"), getattr(found, f"y_{part}")
        kept = sorted(n for c in range(10) for n in np.flatnonzero(y == c)[:a_class])
        arrays += [X[kept], y[kept]]
    return arrays


def write(folder: Path, arrays: list[np.ndarray]) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    return {
        part: data.write_idx(folder / f"{part}-ubyte.gz", array)
        for part, array in zip(data.PARTS, arrays, strict=True)
    }


class Sources:
    """All sources in a temporary folder, each empty until it is given."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        full, subset = write(folder / "full", tiny(1)), write(folder / "small", tiny(2))
        sums = {"full": full, "shipped": subset, "carried": subset}
        monkeypatch.setattr(data, "SHA256", sums)
        for name in ("debian", "shipped", "carried"):
            monkeypatch.setattr(data, name.upper(), folder / name)
        monkeypatch.setenv("KERAS_HOME", str(folder / "keras"))
        self.keras = folder / "keras" / "datasets" / "fashion-mnist"
        self.asked: list[str] = []
        self.give("shipped")

    def give(self, source: str) -> Path:
        """Let `source` have the data; return where."""
        if source == "download":
            self.serve(self.right)
            return self.keras
        folder = self.keras if source == "keras" else self.folder / source
        origin = "small" if source in SMALL else "full"
        shutil.copytree(self.folder / origin, folder, dirs_exist_ok=True)
        return folder

    def right(self, name: str) -> bytes:
        return (self.folder / "full" / name).read_bytes()

    def serve(self, answer: Callable[[str], object]) -> None:
        """Connect the network: `answer(name)` gives a file's bytes, or raises."""

        def urlopen(url: str, timeout: float):
            assert timeout > 0
            self.asked.append(url)
            reply = answer(url.removeprefix(data.URL))
            return io.BytesIO(reply) if isinstance(reply, bytes) else reply

        self.monkeypatch.delenv("MANYGPU_OFFLINE", raising=False)
        self.monkeypatch.setattr(urllib.request, "urlopen", urlopen)

    def left_by_download(self) -> list[str]:
        """All files in Keras' cache, half-written ones too."""
        return sorted(path.name for path in self.keras.rglob("*"))


@pytest.fixture
def sources(tmp_path, monkeypatch) -> Sources:
    return Sources(tmp_path, monkeypatch)


# Which source is used.


@pytest.mark.parametrize("source", data.SOURCES)
def test_each_source_gives_its_arrays_and_says_which_it_was(sources, source, capsys):
    sources.give(source)
    found = data.load(source)
    expected = tiny(2 if source in SMALL else 1)
    arrays = (found.X_train, found.y_train, found.X_test, found.y_test)
    for array, right in zip(arrays, expected, strict=True):
        assert array.dtype == np.uint8
        np.testing.assert_array_equal(array, right)
    assert found.source == source
    said = capsys.readouterr().out
    assert said.startswith("Fashion-MNIST: 60 training and 20 test images, ")
    words = {"keras": "Keras' cache", "download": "downloaded", "debian": "Debian"}
    words |= {"shipped": "shipped with manygpu", "carried": "carried here, repeated"}
    assert words[source] in said
    assert len(said.splitlines()) == 1
    data.load(source, quiet=True)
    data.fashion_mnist(10, quiet=True)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "given, said, used",
    [
        (["keras", "download", "debian"], None, "keras"),
        (["download", "debian"], None, "download"),
        (["debian"], None, "debian"),
        ([], None, "shipped"),
        (["keras"], "shipped", "shipped"),
    ],
)
def test_the_first_source_that_has_the_data_is_used_or_the_one_that_is_named(
    sources, monkeypatch, given, said, used
):
    for source in given:
        sources.give(source)
    if said:
        monkeypatch.setenv("MANYGPU_DATA", said)
    assert data.load(quiet=True).source == used
    if "keras" in given:  # the argument overrules the variable
        assert data.load("keras", quiet=True).source == "keras"


@pytest.mark.parametrize("source", ["keras", "download", "debian", "Keras"])
def test_a_named_source_without_the_data_is_refused_and_not_replaced(sources, source):
    said = "source must be one of" if source == "Keras" else "has no Fashion-MNIST"
    with pytest.raises(ValueError, match=said) as refused:
        data.load(source)
    assert f"'{source}'" in str(refused.value)
    assert source != "Keras" or all(s in str(refused.value) for s in data.SOURCES)


def test_without_a_variable_the_cache_is_in_the_home_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("KERAS_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert data._keras_cache() == tmp_path / ".keras" / "datasets" / "fashion-mnist"


def test_keras_itself_finds_what_we_put_into_its_cache(run_python, tmp_path):
    """Its own loader, offline, reads the very files that we would."""
    shutil.copytree(data.SHIPPED, tmp_path / "datasets" / "fashion-mnist")
    ran = run_python(
        "import importlib, sys, tensorflow as tf\n"
        # It reads KERAS_HOME when it is imported.
        "importlib.reload(sys.modules['keras.src.backend.config'])\n"
        "(X, y), _ = tf.keras.datasets.fashion_mnist.load_data()\n"
        "print(X.shape, int(X.sum()), int(y.sum()))",
        KERAS_HOME=str(tmp_path),
        http_proxy="http://127.0.0.1:9",
        https_proxy="http://127.0.0.1:9",
    )
    ours = data.load("shipped", quiet=True)
    right = f"{ours.X_train.shape} {int(ours.X_train.sum())} {int(ours.y_train.sum())}"
    assert ran.stdout.splitlines()[-1] == right, ran.stderr


# A file that is not what it should be.


DAMAGES = {
    "truncated": lambda good: good[: len(good) // 2],
    "altered": lambda good: gzip.compress(gzip.decompress(good)[:-1] + b"?"),
    "longer": lambda good: good + gzip.compress(b"more"),
}


@pytest.mark.parametrize("source", ["keras", "debian", "shipped", "carried"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_by_name_and_left_where_it_is(
    sources, source, damage
):
    for name in WHOLE:
        path = sources.give(source) / name
        bad = DAMAGES[damage](path.read_bytes())
        path.write_bytes(bad)
        with pytest.raises(ValueError, match="is not the Fashion-MNIST file") as error:
            data.load(source if source in SMALL else None)
        said, other = str(error.value), "carried" if source == "carried" else "shipped"
        assert str(path) in said and "It was not used" in said
        assert f"MANYGPU_DATA={other}" in said
        assert path.read_bytes() == bad
        sources.give(source)


@given(where=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255))
@settings(deadline=None, max_examples=150)
def test_no_altered_byte_ever_gives_another_array(tmp_path_factory, where, bits):
    """Some bytes of gzip's own header mean nothing; all others are noticed."""
    path = tmp_path_factory.getbasetemp() / "small.gz"
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    sha256 = data.write_idx(path, array)
    bad = bytearray(path.read_bytes())
    bad[int(where * len(bad))] ^= bits
    path.write_bytes(bad)
    try:
        found = data.read_idx(path, sha256)
    except ValueError as error:
        assert path.name in str(error)
    else:
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("bad", [np.array([256]), [1, 2]])
def test_what_is_no_array_of_bytes_is_not_written(tmp_path, bad):
    with pytest.raises(TypeError, match="array must be a NumPy array of uint8, got"):
        data.write_idx(tmp_path / "some.gz", bad)
    assert list(tmp_path.iterdir()) == []


# Downloading.


def test_a_download_fills_the_cache_with_what_is_missing(sources):
    sources.give("download")
    assert data.load(quiet=True).source == "download"
    assert sources.left_by_download() == WHOLE
    assert sorted(sources.asked) == [data.URL + name for name in WHOLE]
    assert data.load(quiet=True).source == "keras"
    (sources.keras / WHOLE[2]).unlink()
    assert data.load(quiet=True).source == "download"
    assert sources.asked[4:] == [data.URL + WHOLE[2]]


class BreaksOff(io.BytesIO):
    """A reply that ends before the server said it would, as http.client tells it."""

    def read(self, *_):
        raise http.client.IncompleteRead(self.getvalue(), 1000)


@pytest.mark.parametrize(
    "bad, reply, is_said",
    [
        (1, lambda good: BreaksOff(good[:50]), False),
        (1, lambda good: good[:-20], True),  # and no error
        (1, lambda good: b"<html>please log in</html>", True),
        (1, urllib.error.URLError("no such host"), False),
        (1, http.client.BadStatusLine("nonsense"), False),
        (4, urllib.error.URLError("gone"), False),  # the good ones are kept
    ],
)
def test_of_a_bad_download_nothing_is_kept_and_the_next_source_is_used(
    sources, bad, reply, is_said, capsys
):
    def answer(name):
        if len(sources.asked) != bad:
            return sources.right(name)
        if isinstance(reply, Exception):
            raise reply
        return reply(sources.right(name))

    sources.serve(answer)
    sources.give("debian")
    assert data.load(quiet=True).source == "debian"
    assert len(sources.asked) == bad
    assert len(sources.left_by_download()) == bad - 1
    assert (data.URL in capsys.readouterr().out) == is_said
    sources.give("download")
    assert data.load(quiet=True).source == "download"
    assert len(sources.asked) == 5  # what is missing


def test_offline_no_network_is_touched_nor_where_nothing_can_be_kept(
    sources, monkeypatch, tmp_path
):
    sources.give("download")
    (tmp_path / "a-file").write_text("", encoding="utf-8")
    with monkeypatch.context() as away:
        away.setenv("KERAS_HOME", str(tmp_path / "a-file"))
        assert data.load(quiet=True).source == "shipped"
    sources.asked.clear()
    monkeypatch.setenv("MANYGPU_OFFLINE", "1")
    assert data.load(quiet=True).source == "shipped"
    assert sources.asked == []


# The batches.


def numbers_of(X: tf.Tensor) -> list[int]:
    """The number of each sample of a batch (see `tiny`)."""
    return [round(float(x) * 255) for x in X[:, 0, 0, 0].numpy()]


def numbers(batches: tf.data.Dataset) -> list[list[int]]:
    return [numbers_of(X) for X, _ in batches]


@pytest.mark.parametrize("part, kind", [(0, "train"), (1, "test")])
def test_batches_are_the_files_bytes_over_255_and_whole_labels(sources, part, kind):
    batches = data.fashion_mnist(60, shuffle=False, quiet=True)[part]
    [(X, y)] = batches
    stored = data.load(quiet=True)
    right = getattr(stored, f"X_{kind}") / np.float32(255)
    np.testing.assert_allclose(X, right[..., None], rtol=1e-6)
    np.testing.assert_array_equal(y, getattr(stored, f"y_{kind}"))
    specs = tf.TensorSpec((None, 28, 28, 1)), tf.TensorSpec(None, tf.int32)
    for found, wanted in zip(batches.element_spec, specs, strict=True):
        assert wanted.is_compatible_with(found)


@pytest.mark.parametrize("batch_size, last", [(7, 4), (20, 20), (1000, 60)])
def test_every_sample_comes_once_an_epoch_with_its_own_label(sources, batch_size, last):
    train, _ = data.fashion_mnist(batch_size, quiet=True)
    for _ in range(2):
        seen, sizes = [], []
        for X, y in train:
            assert [n % 10 for n in numbers_of(X)] == y.numpy().tolist()
            seen += numbers_of(X)
            sizes.append(len(y))
        assert sorted(seen) == list(range(TRAIN))
        assert set(sizes[:-1]) <= {batch_size} and sizes[-1] == last  # what is left


def test_nobody_tunes_what_has_nothing_to_tune(sources):
    both = data.fashion_mnist(4, quiet=True)
    assert [d.options().autotune.enabled for d in both] == [False, False]


def test_shuffling_mixes_samples_and_not_only_batches(sources):
    """d2l shuffles after batching: which samples share a batch never changes.

    Nor only neighbours: then the first batch would hold early samples only.
    """
    train, _ = data.fashion_mnist(10, quiet=True)
    blocks = [set(range(i, i + 10)) for i in range(0, TRAIN, 10)]
    epochs = [numbers(train), numbers(train)]
    assert all(set(batch) not in blocks for epoch in epochs for batch in epoch)
    first, second = ({frozenset(b) for b in epoch} for epoch in epochs)
    assert not first & second
    assert max(epochs[0][0]) > TRAIN // 2 > min(epochs[0][-1])


def test_batches_start_tensorflow_with_our_devices(run_python):
    code = """
import tensorflow as tf
from manygpu.data import fashion_mnist

fashion_mnist(10, train_samples=10, test_samples=10, quiet=True)
print(len(tf.config.list_logical_devices("CPU")))
"""
    answer = run_python(code, MANYGPU_DEVICES="3", MANYGPU_DATA="shipped")
    assert answer.returncode == 0, answer.stderr
    # Where there are GPUs the devices are those, beside one CPU.
    gpus = "GPU" in data.devices(1, quiet=True)[0]
    assert answer.stdout.strip() == ("1" if gpus else "3")


def test_each_epoch_is_shuffled_anew_and_the_seed_brings_all_of_them_back(sources):
    train, again, other = (
        data.fashion_mnist(10, seed=seed, quiet=True)[0] for seed in (3, 3, 4)
    )
    epochs = [numbers(train), numbers(train)]
    assert epochs[0] != epochs[1]
    assert epochs == [numbers(again), numbers(again)]
    assert numbers(other) != epochs[0]


def test_fewer_samples_are_the_first_ones_in_the_files_order(sources):
    train, test = data.fashion_mnist(7, shuffle=False, quiet=True)
    _, shuffled = data.fashion_mnist(7, quiet=True)
    assert sum(numbers(train), []) == list(range(TRAIN))
    assert sum(numbers(test), []) == sum(numbers(shuffled), []) == list(range(TEST))
    fewer = {"train_samples": 13, "test_samples": 5}
    train, test = data.fashion_mnist(50, **fewer, shuffle=False, quiet=True)
    assert (numbers(train), numbers(test)) == ([[*range(13)]], [[*range(5)]])


REFUSED = good(data.fashion_mnist, batch_size=10, quiet=True).refuses(
    ("batch_size", [0], ValueError, "batch_size must be"),
    ("batch_size", [2.5], TypeError, "batch_size must be"),
    ("train_samples", [0], ValueError, "train_samples must be"),
    ("test_samples", [2.5], TypeError, "test_samples must be"),
    ("seed", [1.5, True], TypeError, "seed must be"),
    ("train_samples", [TRAIN + 1], ValueError, "train_samples is 61,", "holds 60"),
    ("test_samples", [TEST + 1], ValueError, "test_samples is 21,", "holds 20"),
)


@pytest.mark.parametrize("refusal", REFUSED, ids=str)
def test_a_number_that_is_none_or_more_than_there_is_is_refused(sources, refusal):
    refusals.is_refused(refusal)
    data.fashion_mnist(10, train_samples=TRAIN, test_samples=TEST, quiet=True)


# The few images that a chapter carries which runs as a single file.


def test_carried_images_come_last_and_are_repeated_up_to_the_number_asked_for(
    sources, capsys
):
    sources.give("carried")
    assert data.load(quiet=True).source == "shipped"
    shutil.rmtree(data.SHIPPED)
    train, test = data.fashion_mnist(
        50, train_samples=2 * TRAIN + 3, test_samples=TEST + 1, shuffle=False
    )
    assert sum(numbers(train), []) == [*range(TRAIN), *range(TRAIN), 0, 1, 2]
    assert numbers(test) == [[*range(TEST), 0]]
    for X, y in train:
        assert [n % 10 for n in numbers_of(X)] == y.numpy().tolist()
    assert "carried here, repeated" in capsys.readouterr().out
    train, _ = data.fashion_mnist(7, shuffle=False, quiet=True)
    assert sum(numbers(train), []) == list(range(TRAIN))


def test_what_a_file_carries_are_the_first_images_of_each_class(tmp_path, monkeypatch):
    for name, content in standalone.images().items():
        (tmp_path / Path(name).name).write_bytes(content)
    monkeypatch.setattr(data, "CARRIED", tmp_path)
    found, shipped = data.load("carried", quiet=True), data.load("shipped", quiet=True)
    mine = [found.X_train, found.y_train, found.X_test, found.y_test]
    for array, right in zip(mine, firsts(shipped, 200, 50), strict=True):
        np.testing.assert_array_equal(array, right)


# The subset that is shipped.


def test_the_shipped_subset_is_the_first_of_each_class_of_the_whole(tmp_path):
    if data._folder("debian") is None:
        pytest.skip("the Debian package dataset-fashion-mnist is not installed")
    whole = data.load("debian", quiet=True)
    assert write(tmp_path, firsts(whole, 1000, 200)) == data.SHA256["shipped"]
    for name in WHOLE:
        made = gzip.decompress((tmp_path / name).read_bytes())
        assert made == gzip.decompress((data.SHIPPED / name).read_bytes())
