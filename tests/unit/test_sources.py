"""Claims of the sources about TensorFlow that no chapter's cell shows."""

import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import manygpu
from manygpu import scratch
from manygpu.checks import short_device_name
from manygpu.scratch.in_step.asynchronous import arrivals, small_gradients, small_params
from manygpu.scratch.splitting.batch_normalization import guide_cnn_layers
from manygpu.trace.spans import length
from tests.unit.helpers import EIGHT, in_graph

PATIENCE_S = 30  # a thread that waits as long waits in vain


def test_the_guides_pipeline_cannot_be_imported():
    import tensorflow.python.distribute as there

    assert there is not None
    with pytest.raises(ImportError, match="pipeline"):
        from tensorflow.python.distribute import pipeline  # noqa: F401


def test_a_mirrored_strategy_takes_every_device():
    gpus = tf.config.list_logical_devices("GPU")
    taken = gpus or tf.config.list_logical_devices("CPU")
    strategy = tf.distribute.MirroredStrategy()
    assert strategy.num_replicas_in_sync == len(taken) > 1
    with strategy.scope():
        copies = strategy.experimental_local_results(tf.Variable(1.0))
    assert len({copy.device for copy in copies}) == len(taken)


def test_keras_has_no_layer_called_batchnorm():
    assert hasattr(tf.keras.layers, "BatchNormalization")
    assert not hasattr(tf.keras.layers, "BatchNorm")


def test_categorical_crossentropy_refuses_whole_number_labels():
    scores, labels = np.eye(4, 10, dtype=np.float32), np.array([0, 1, 2, 3])
    one_hot = tf.one_hot(labels, 10)
    assert tf.keras.losses.CategoricalCrossentropy()(one_hot, scores) < 1e-3
    assert tf.keras.losses.SparseCategoricalCrossentropy()(labels, scores) < 1e-3
    with pytest.raises(ValueError, match="shape|rank"):
        tf.keras.losses.CategoricalCrossentropy()(labels, scores)


def test_categorical_crossentropy_wants_probabilities():
    logits = tf.constant([[2.0, 0.5, -1.0], [0.1, 3.0, 0.2]])
    labels = tf.one_hot([0, 1], 3)
    said = tf.keras.losses.get("categorical_crossentropy")  # as compile looks it up
    right = tf.nn.softmax_cross_entropy_with_logits(labels, logits)
    np.testing.assert_allclose(said(labels, tf.nn.softmax(logits)), right, rtol=1e-5)
    assert not np.allclose(said(labels, logits), right, rtol=0.1)


@pytest.mark.parametrize(
    "parameters, size", [(331_000, "1.26 MB"), (331_613, "1.27 MB")]
)
def test_a_summary_calls_units_of_2_to_the_20_bytes_mb(parameters, size):
    inputs = tf.keras.Input((parameters,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, use_bias=False)(inputs))
    said: list[str] = []
    model.summary(print_fn=lambda line, **_: said.append(line))
    assert f"{parameters:,} ({size})" in "".join(said)
    assert round(4 * parameters / 1e6, 2) > float(size.split()[0]) + 0.05


@pytest.mark.parametrize(
    "line, name",
    [
        ("model.fit(distributed_dataset, epochs=10)", "distributed_dataset"),
        ("dataset.map(preprocess, num_parallel_calls=AUTOTUNE)", "AUTOTUNE"),
    ],
)
def test_two_lines_of_the_guide_need_names_that_nothing_makes(line, name):
    known = {"dataset": tf.data.Dataset.range(2), "preprocess": tf.identity}
    known["model"] = type("Model", (), {"fit": staticmethod(lambda *_, **__: None)})
    with pytest.raises(NameError, match=name):
        exec(line, dict(known))
    exec(line, known | {name: tf.data.AUTOTUNE})


def test_the_guides_picture_has_six_times_the_parameters():
    variables = [v for one in guide_cnn_layers() for v in (*one.params, *one.state)]
    count = sum(v.shape.num_elements() for v in variables)
    assert count == 2_004_490  # as the chapter counts it, by formula
    assert 6 < count / 331_000 < 6.1


def test_tf32_is_on_unless_somebody_turns_it_off():
    assert tf.config.experimental.tensor_float_32_execution_enabled()


def test_a_convolution_takes_nhwc_and_its_weights_channels_last():
    images = tf.ones((2, 28, 26, 3))
    after = tf.nn.conv2d(images, tf.ones((5, 3, 3, 20)), 1, "VALID")
    assert after.shape == (2, 24, 24, 20)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        tf.nn.conv2d(images, tf.ones((20, 3, 5, 3)), 1, "VALID")


def test_a_copied_parameter_is_trainable():
    original = tf.Variable([1.0, 2.0])
    copy = tf.Variable(tf.identity(original))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(copy**2)
    of_copy, of_original = tape.gradient(loss, [copy, original])
    assert copy.trainable and of_original is None
    np.testing.assert_allclose(of_copy, [2.0, 4.0])


# Who works while who else works: a thread that meets another ran beside it.


@pytest.mark.parametrize("compiled", [False, True])
def test_only_a_compiled_step_runs_two_devices_at_once(compiled):
    meeting = threading.Barrier(2)

    def work(x):
        """Go on when the other device's work runs too; say whether it came."""
        try:
            meeting.wait(PATIENCE_S if compiled else 0.1)
        except threading.BrokenBarrierError:
            return np.float32(0)
        return np.float32(1)

    def step(x):
        met = []
        for device in EIGHT[:2]:
            with tf.device(device):
                met.append(tf.numpy_function(work, [x], tf.float32, stateful=False))
        return met

    met = (in_graph(step) if compiled else step)(tf.constant(1.0))
    assert [bool(m) for m in met] == [compiled] * 2


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_prefetched_dataset_makes_the_next_element(ahead):
    second = threading.Event()

    def made(i):
        if i == 1:
            second.set()
        return i

    dataset = tf.data.Dataset.range(2).map(
        lambda i: tf.numpy_function(made, [i], tf.int64)
    )
    options = tf.data.Options()
    options.autotune.enabled = False  # it would prefetch unasked
    options.experimental_optimization.inject_prefetch = False
    dataset = (dataset.prefetch(ahead) if ahead else dataset).with_options(options)
    elements = iter(dataset)
    assert next(elements) == 0
    assert second.wait(PATIENCE_S if ahead else 0.1) == bool(ahead)
    assert next(elements) == 1


def test_a_parallel_map_has_several_elements_at_work():
    meeting = threading.Barrier(2)

    def made(i):
        meeting.wait(PATIENCE_S)  # raises if no other element is under way
        return i

    dataset = tf.data.Dataset.range(4).map(
        lambda i: tf.numpy_function(made, [i], tf.int64), num_parallel_calls=2
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2  # also where there is one core
    assert [int(i) for i in dataset.with_options(options)] == [0, 1, 2, 3]


def test_equally_fast_workers_in_step_do_not_wait():
    workers, steps = 4, 20
    spans = arrivals(lambda worker, number: 1.0, workers, workers * steps, bound=0)
    assert length(spans) == steps
    for worker in range(workers):
        own = [span for span in spans if span.device == worker]
        assert [span.start for span in own] == list(range(steps))


@pytest.mark.parametrize("late", [0, 3])
def test_sums_that_come_late_are_sent_all_the_same(late):
    places, steps, log = EIGHT[:2], 5, scratch.MessageLog()
    replicas = [scratch.get_params(small_params((6, 4, 3)), place) for place in places]
    reduce = scratch.allreduce_with(scratch.ring_allreduce, log)
    if late:
        reduce = scratch.Delayed(replicas, late, reduce)
    X, y = tf.ones((4, 6), tf.float64), tf.constant([0, 1, 2, 0])
    for _ in range(steps):
        scratch.train_batch(X, y, replicas, places, 0.1, reduce, small_gradients)
    size = 8 * (6 * 4 + 4 * 3)
    assert sum(sent for _, sent in log.messages) == steps * 2 * size


def test_the_slides_sum_stays_on_the_first_device():
    """As in their train_batch: added on the first device, read by each update."""
    devices, grads = manygpu.devices(2, quiet=True), []
    for i, device in enumerate(devices):
        with tf.device(device):
            grads.append(tf.ones((1, 2)) * (i + 1))
    with tf.device(devices[0]):
        total = tf.add_n([tf.identity(grad) for grad in grads])
    with tf.device(devices[1]):
        fetched = tf.identity(total)
    places = [short_device_name(tensor.device) for tensor in (total, fetched)]
    assert places == list(devices)
    np.testing.assert_array_equal(fetched, [[3.0, 3.0]])
    np.testing.assert_array_equal(grads[1], [[2.0, 2.0]])  # nothing was written there


def test_a_dataset_has_the_axes_that_it_was_given():
    """The slides' images get a fourth axis in d2l's loader."""
    for shape in ((8, 28, 28), (8, 28, 28, 1)):
        (batch,) = tf.data.Dataset.from_tensor_slices(tf.zeros(shape)).batch(8)
        assert batch.shape == shape
    loader = Path(importlib.util.find_spec("d2l").origin).with_name("tensorflow.py")
    assert "tf.expand_dims(X, axis=3)" in loader.read_text(encoding="utf-8")


def test_tensorflow_does_not_ask_nvidia_smi(tmp_path):
    """One that lists a GPU changes nothing of TensorFlow's own list."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\necho 'GPU 0: a board (UUID: GPU-0)'\n", encoding="utf-8"
    )
    tool.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    here = os.environ | {"PATH": path, "CUDA_VISIBLE_DEVICES": "-1"}
    ask = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    said = subprocess.run(
        ["nvidia-smi", "-L"], env=here, capture_output=True, text=True
    )
    assert said.stdout.startswith("GPU 0")
    command = [sys.executable, "-c", ask]
    found = subprocess.run(command, env=here, capture_output=True, text=True)
    assert found.stdout.split() == ["0"], found.stderr


def test_the_slides_vectors_lie_on_one_device():
    assert len(manygpu.devices(2, quiet=True)) == 2
    data = [tf.Variable(tf.ones((1, 2)) * (i + 1)) for i in range(2)]
    assert len({short_device_name(vector.device) for vector in data}) == 1


@pytest.mark.parametrize("samples", [3, 5, 96])
def test_a_plain_split_refuses_an_uneven_batch(samples):
    assert [len(part) for part in tf.split(tf.ones((4, 5)), 4)] == [1, 1, 1, 1]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        tf.split(tf.ones((samples, 5)), 4 if samples < 96 else 5)


def test_a_split_places_nothing():
    devices = manygpu.devices(4, quiet=True)
    with tf.device(devices[-1]):
        batch = tf.reshape(tf.range(20.0), (4, 5))
    places = {short_device_name(part.device) for part in tf.split(batch, 4)}
    assert len(places) == 1
