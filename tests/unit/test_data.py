"""Fashion-MNIST: where it comes from, and that nothing but itself is ever used.

Most tests use a tiny data set that stands in for the whole one, with SHA-256 sums of
its own, so that each source can be given or taken away.
"""

from __future__ import annotations

import gzip
import http.client
import io
import shutil
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu import data
from workshop import make_subset, standalone

TRAIN, TEST = 60, 20  # samples of the tiny data set


def tiny(seed: int) -> list[np.ndarray]:
    """Images whose first pixel is their number and labels that follow from it."""
    rng = np.random.default_rng(seed)
    arrays = []
    for samples in (TRAIN, TEST):
        X = rng.integers(0, 256, (samples, 28, 28), np.uint8)
        X[:, 0, 0] = np.arange(samples)
        arrays += [X, (np.arange(samples) % 10).astype(np.uint8)]
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
        self.full, self.subset = folder / "full", folder / "subset"
        sums = {
            "full": write(self.full, tiny(1)),
            "shipped": write(self.subset, tiny(2)),
        }
        sums["carried"] = sums["shipped"]
        self.keras = folder / "keras" / "datasets" / "fashion-mnist"
        self.debian, self.shipped = folder / "debian", folder / "shipped"
        self.carried = folder / "carried"
        self.asked: list[str] = []
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(data, "SHA256", sums)
        monkeypatch.setattr(data, "DEBIAN", self.debian)
        monkeypatch.setattr(data, "SHIPPED", self.shipped)
        monkeypatch.setattr(data, "CARRIED", self.carried)
        monkeypatch.setenv("KERAS_HOME", str(folder / "keras"))
        self.give("shipped")

    def give(self, source: str) -> Path:
        """Let `source` have the data; return where."""
        if source == "download":
            self.serve(lambda name: (self.full / name).read_bytes())
            return self.keras
        folder = getattr(self, source)
        origin = self.subset if source in ("shipped", "carried") else self.full
        shutil.copytree(origin, folder, dirs_exist_ok=True)
        return folder

    def serve(self, answer) -> None:
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
        return (
            sorted(p.name for p in self.keras.rglob("*")) if self.keras.is_dir() else []
        )


@pytest.fixture
def sources(tmp_path, monkeypatch) -> Sources:
    return Sources(tmp_path, monkeypatch)


WHOLE = sorted(f"{part}-ubyte.gz" for part in data.PARTS)


# Which source is used.


@pytest.mark.parametrize("source", data.SOURCES)
def test_each_source_gives_its_arrays_and_says_which_it_was(sources, source, capsys):
    sources.give(source)
    found = data.load(source)
    expected = tiny(2 if source in ("shipped", "carried") else 1)
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
    (line,) = said.splitlines()
    of_all = line.replace(" 60 ", " 60,000 ").replace(" 20 ", " 10,000 ")
    assert len(of_all) <= 80  # as wide as a page's column


@pytest.mark.parametrize(
    "given, used",
    [
        (["keras", "download", "debian"], "keras"),
        (["download", "debian"], "download"),
        (["debian"], "debian"),
        (["keras"], "keras"),
        ([], "shipped"),
    ],
)
def test_the_first_source_that_has_the_data_is_used(sources, given, used):
    for source in given:
        sources.give(source)
    assert data.load(quiet=True).source == used


def test_quiet_prints_nothing(sources, capsys):
    data.load(quiet=True)
    data.fashion_mnist(10, quiet=True)
    assert capsys.readouterr().out == ""


def test_the_variable_names_a_source_and_the_argument_overrules_it(
    sources, monkeypatch
):
    sources.give("keras")
    monkeypatch.setenv("MANYGPU_DATA", "shipped")
    assert data.load(quiet=True).source == "shipped"
    assert data.load("keras", quiet=True).source == "keras"


@pytest.mark.parametrize("wrong", ["imagenet", "Keras", "0"])
def test_an_unknown_source_is_refused_with_those_there_are(sources, monkeypatch, wrong):
    monkeypatch.setenv("MANYGPU_DATA", wrong)
    with pytest.raises(ValueError, match="source must be one of") as error:
        data.load()
    assert repr(wrong) in str(error.value)
    assert all(name in str(error.value) for name in data.SOURCES)


@pytest.mark.parametrize("source", ["keras", "download", "debian"])
def test_a_named_source_without_the_data_is_refused_and_not_replaced(sources, source):
    with pytest.raises(ValueError, match=f"source '{source}' has no Fashion-MNIST"):
        data.load(source)


def test_a_cache_with_a_file_missing_is_no_source(sources):
    (sources.give("keras") / WHOLE[0]).unlink()
    assert data.load(quiet=True).source == "shipped"


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
        "(X, y), (X_test, y_test) = tf.keras.datasets.fashion_mnist.load_data()\n"
        "print(X.shape, y_test.shape, int(X.sum()))",
        KERAS_HOME=str(tmp_path),
        http_proxy="http://127.0.0.1:9",
        https_proxy="http://127.0.0.1:9",
    )
    ours = data.load("shipped", quiet=True)
    right = f"{ours.X_train.shape} {ours.y_test.shape} {int(ours.X_train.sum())}"
    assert ran.stdout.splitlines()[-1] == right, ran.stderr


# A file that is not what it should be.


DAMAGES = {
    "truncated": lambda good: good[: len(good) // 2],
    "altered": lambda good: gzip.compress(gzip.decompress(good)[:-1] + b"?"),
    "empty": lambda good: b"",
    "not gzip": lambda good: b"<html>please log in</html>",
    "another": lambda good: gzip.compress(b"\0\0\x08\x01\0\0\0\x01\7"),
    "longer": lambda good: good + gzip.compress(b"more"),
}


@pytest.mark.parametrize("source", ["keras", "debian", "shipped", "carried"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_by_name_and_left_where_it_is(
    sources, source, damage
):
    for part in data.PARTS:
        path = sources.give(source) / f"{part}-ubyte.gz"
        bad = DAMAGES[damage](path.read_bytes())
        path.write_bytes(bad)
        named = source if source in ("shipped", "carried") else None
        with pytest.raises(ValueError, match="is not the Fashion-MNIST file") as error:
            data.load(named)
        said, other = str(error.value), "carried" if source == "carried" else "shipped"
        assert str(path) in said and "It was not used" in said
        assert f"MANYGPU_DATA={other}" in said
        assert path.read_bytes() == bad
        sources.give(source)


@pytest.fixture(scope="module")
def idx_file(tmp_path_factory) -> tuple[Path, bytes, str, np.ndarray]:
    """A small good file: where, its bytes, its sum, its array."""
    path = tmp_path_factory.mktemp("idx") / "small.gz"
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    sha256 = data.write_idx(path, array)
    return path, path.read_bytes(), sha256, array


@given(where=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255))
@settings(deadline=None, max_examples=150)
def test_no_altered_byte_ever_gives_another_array(idx_file, where, bits):
    """Some bytes of gzip's own header mean nothing; all others are noticed."""
    path, good, sha256, array = idx_file
    bad = bytearray(good)
    bad[int(where * len(bad))] ^= bits
    path.write_bytes(bad)
    try:
        found = data.read_idx(path, sha256)
    except ValueError as error:
        assert path.name in str(error)
    else:
        np.testing.assert_array_equal(found, array)


@given(kept=st.floats(0, 1, exclude_max=True))
@settings(deadline=None, max_examples=60)
def test_no_truncated_file_is_ever_read(idx_file, kept):
    path, good, sha256, _ = idx_file
    path.write_bytes(good[: int(kept * len(good))])
    with pytest.raises(ValueError, match=path.name):
        data.read_idx(path, sha256)


@given(
    shape=st.lists(st.integers(0, 5), min_size=1, max_size=4), seed=st.integers(0, 99)
)
@settings(deadline=None, max_examples=30)
def test_what_is_written_is_what_is_read(idx_file, shape, seed):
    path = idx_file[0]
    array = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    np.testing.assert_array_equal(
        data.read_idx(path, data.write_idx(path, array)), array
    )


@pytest.mark.parametrize("bad", [np.ones(3), np.array([256]), [1, 2], np.array([True])])
def test_what_is_no_array_of_bytes_is_not_written(tmp_path, bad):
    path = tmp_path / "some.gz"
    with pytest.raises(TypeError, match="array must be a NumPy array of uint8, got"):
        data.write_idx(path, bad)
    assert not path.exists()


# Downloading.


def test_a_download_fills_the_cache_for_the_next_time(sources):
    sources.give("download")
    assert data.load(quiet=True).source == "download"
    assert sources.left_by_download() == WHOLE
    assert sorted(sources.asked) == [data.URL + name for name in WHOLE]
    assert data.load(quiet=True).source == "keras"
    assert len(sources.asked) == 4


def test_only_what_is_missing_is_fetched(sources):
    sources.give("download")
    (sources.give("keras") / WHOLE[2]).unlink()
    assert data.load(quiet=True).source == "download"
    assert sources.asked == [data.URL + WHOLE[2]]


class BreaksOff(io.BytesIO):
    """A reply that ends before the server said it would, as http.client tells it."""

    def read(self, *_):
        raise http.client.IncompleteRead(self.getvalue(), 1000)


class TimesOut(io.BytesIO):
    def read(self, *_):
        raise TimeoutError("timed out")


@pytest.mark.parametrize(
    "reply, is_said",
    [
        (lambda good: BreaksOff(good[:50]), False),
        (lambda good: TimesOut(good[:50]), False),
        (lambda good: good[:-20], True),  # and no error
        (lambda good: b"<html>please log in</html>", True),
        (lambda good: b"", True),
    ],
)
def test_of_a_bad_download_nothing_is_kept_and_the_next_source_is_used(
    sources, reply, is_said, capsys
):
    sources.serve(lambda name: reply((sources.full / name).read_bytes()))
    sources.give("debian")
    assert data.load(quiet=True).source == "debian"
    assert sources.left_by_download() == []
    assert (data.URL in capsys.readouterr().out) == is_said


def test_a_download_that_breaks_off_at_the_last_file_keeps_the_good_ones(sources):
    def answer(name):
        if len(sources.asked) == 4:
            raise urllib.error.URLError("gone")
        return (sources.full / name).read_bytes()

    sources.serve(answer)
    assert data.load(quiet=True).source == "shipped"
    assert len(sources.left_by_download()) == 3
    sources.give("download")
    assert data.load(quiet=True).source == "download"
    assert len(sources.asked) == 5


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.URLError("no such host"),
        urllib.error.HTTPError(data.URL, 404, "not found", {}, None),
        ConnectionResetError("reset"),
        http.client.RemoteDisconnected("closed"),
        http.client.BadStatusLine("nonsense"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_without_a_network_the_next_source_is_used(sources, error):
    def answer(name):
        raise error

    sources.serve(answer)
    assert data.load(quiet=True).source == "shipped"
    assert len(sources.asked) == 1


def test_offline_no_network_is_touched(sources, monkeypatch):
    sources.give("download")
    monkeypatch.setenv("MANYGPU_OFFLINE", "1")
    assert data.load(quiet=True).source == "shipped"
    assert sources.asked == []


def test_a_cache_that_can_not_be_written_leaves_the_next_source(
    sources, monkeypatch, tmp_path
):
    sources.give("download")
    (tmp_path / "a-file").write_text("", encoding="utf-8")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "a-file"))
    assert data.load(quiet=True).source == "shipped"


# The batches.


def numbers(batches: tf.data.Dataset) -> list[list[int]]:
    """The number of each sample, batch by batch (see `tiny`)."""
    return [[round(float(x) * 255) for x in X[:, 0, 0, 0].numpy()] for X, _ in batches]


@pytest.mark.parametrize("part", [0, 1], ids=["train", "test"])
def test_batches_are_float_images_and_whole_labels(sources, part):
    batches = data.fashion_mnist(16, quiet=True)[part]
    X, y = next(iter(batches))
    assert (X.dtype, X.shape) == (tf.float32, (16, 28, 28, 1))
    assert (y.dtype, y.shape) == (tf.int32, (16,))
    X_spec, y_spec = batches.element_spec
    assert X_spec.shape.as_list() == [None, 28, 28, 1]
    assert y_spec.shape.as_list() == [None]


def test_pixels_are_the_files_bytes_over_255(sources):
    _, test = data.fashion_mnist(TEST, quiet=True)
    X, y = next(iter(test))
    stored = data.load(quiet=True)
    right = stored.X_test.astype(np.float32) / np.float32(255)
    np.testing.assert_allclose(X[..., 0].numpy(), right, rtol=1e-6)
    assert float(tf.reduce_min(X)) >= 0
    assert float(tf.reduce_max(X)) <= 1
    np.testing.assert_array_equal(y.numpy(), stored.y_test)


@pytest.mark.parametrize("batch_size, last", [(7, 4), (20, 20), (59, 1), (1000, 60)])
def test_the_last_batch_holds_what_is_left_over(sources, batch_size, last):
    train, _ = data.fashion_mnist(batch_size, quiet=True)
    sizes = [len(y) for _, y in train]
    assert sum(sizes) == TRAIN
    assert set(sizes[:-1]) <= {batch_size}
    assert sizes[-1] == last


def test_every_sample_comes_once_an_epoch_with_its_own_label(sources):
    train, _ = data.fashion_mnist(7, quiet=True)
    for _ in range(2):
        seen = []
        for X, y in train:
            of_batch = [round(float(x) * 255) for x in X[:, 0, 0, 0].numpy()]
            assert [n % 10 for n in of_batch] == y.numpy().tolist()
            seen += of_batch
        assert sorted(seen) == list(range(TRAIN))


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


@pytest.mark.parametrize("bad", ["a", None, 1.5, True])
def test_a_seed_that_is_none_is_refused(sources, bad):
    with pytest.raises(TypeError, match="seed must be a whole number, got"):
        data.fashion_mnist(10, seed=bad, quiet=True)


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


def test_without_shuffling_and_of_tests_the_files_order_is_kept(sources):
    train, test = data.fashion_mnist(7, shuffle=False, quiet=True)
    assert sum(numbers(train), []) == list(range(TRAIN))
    _, shuffled = data.fashion_mnist(7, quiet=True)
    assert sum(numbers(test), []) == sum(numbers(shuffled), []) == list(range(TEST))


def test_fewer_samples_are_the_first_ones(sources):
    train, test = data.fashion_mnist(
        50, train_samples=13, test_samples=5, shuffle=False, quiet=True
    )
    assert numbers(train) == [list(range(13))]
    assert numbers(test) == [list(range(5))]


@pytest.mark.parametrize(
    "name, most", [("train_samples", TRAIN), ("test_samples", TEST)]
)
def test_more_samples_than_the_source_holds_are_refused(sources, name, most):
    data.fashion_mnist(10, quiet=True, **{name: most})
    with pytest.raises(ValueError, match=f"{name} is {most + 1}, .* holds {most}"):
        data.fashion_mnist(10, quiet=True, **{name: most + 1})


@pytest.mark.parametrize("name", ["batch_size", "train_samples", "test_samples"])
@pytest.mark.parametrize("value, kind", [(0, ValueError), (2.5, TypeError)])
def test_a_count_that_is_none_is_refused_by_name(sources, name, value, kind):
    counts = {"batch_size": 10, name: value}
    with pytest.raises(kind, match=name):
        data.fashion_mnist(**counts, quiet=True)


# The few images that a chapter carries which runs as a single file.


def test_carried_images_come_last_and_are_repeated_up_to_the_number_asked_for(
    sources, capsys
):
    sources.give("carried")
    assert data.load(quiet=True).source == "shipped"
    shutil.rmtree(sources.shipped)
    train, test = data.fashion_mnist(
        50, train_samples=2 * TRAIN + 3, test_samples=TEST + 1, shuffle=False
    )
    assert sum(numbers(train), []) == [*range(TRAIN), *range(TRAIN), 0, 1, 2]
    assert numbers(test) == [[*range(TEST), 0]]
    for X, y in train:
        first = [round(float(x) * 255) for x in X[:, 0, 0, 0].numpy()]
        assert [n % 10 for n in first] == y.numpy().tolist()
    assert "carried here, repeated" in capsys.readouterr().out
    train, _ = data.fashion_mnist(7, shuffle=False, quiet=True)
    assert sum(numbers(train), []) == list(range(TRAIN))


def test_what_a_file_carries_are_the_first_images_of_each_class(tmp_path, monkeypatch):
    for name, content in standalone.images().items():
        (tmp_path / Path(name).name).write_bytes(content)
    monkeypatch.setattr(data, "CARRIED", tmp_path)
    found, shipped = data.load("carried", quiet=True), data.load("shipped", quiet=True)
    for part, a_class in (("train", 200), ("test", 50)):
        for kind, expected in zip(
            "Xy",
            make_subset.subset(
                getattr(shipped, f"X_{part}"), getattr(shipped, f"y_{part}"), a_class
            ),
            strict=True,
        ):
            np.testing.assert_array_equal(getattr(found, f"{kind}_{part}"), expected)


# The subset that is shipped.


def test_the_shipped_subset_has_as_many_of_each_class():
    found = data.load("shipped", quiet=True)
    assert found.X_train.shape == (10_000, 28, 28)
    assert found.X_test.shape == (2_000, 28, 28)
    assert np.bincount(found.y_train).tolist() == [make_subset.TRAIN_A_CLASS] * 10
    assert np.bincount(found.y_test).tolist() == [make_subset.TEST_A_CLASS] * 10
    assert len(data.CLASSES) == 10


def test_the_shipped_subset_is_what_make_subset_makes(tmp_path):
    if data._folder("debian") is None:
        pytest.skip("the Debian package dataset-fashion-mnist is not installed")
    assert make_subset.write_subset(tmp_path) == data.SHA256["shipped"]
    for name in WHOLE:
        made = gzip.decompress((tmp_path / name).read_bytes())
        assert made == gzip.decompress((data.SHIPPED / name).read_bytes())


def test_a_subset_takes_the_first_of_each_class_in_their_own_order():
    y = np.array([*range(10)] * 3)
    X = np.arange(30)
    kept, labels = make_subset.subset(X, y, 2)
    assert kept.tolist() == list(range(20))
    assert labels.tolist() == [*range(10)] * 2
