"""What each check refuses; of those that call it, the other tables say that they do."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from manygpu import checks
from tests import refusals
from tests.refusals import good
from tests.unit.helpers import EIGHT

ONE, NAN, INF = "/device:CPU:0", float("nan"), float("inf")
IMAGES, LABELS = np.zeros((4, 28, 28, 1), np.float32), np.zeros(4, np.int32)
PAIR = [tf.zeros(2), tf.ones(2)]
TWICE, G = tf.Variable([1.0, 2.0]), tf.zeros(2)
OTHER = tf.zeros(2, tf.float64)
TURNED = [np.zeros(s) for s in [(4, 1, 28, 28), (4, 28, 28, 3), (4, 32, 32, 1)]]
LOGICAL = tf.config.list_logical_devices("CPU")[0]
NOWHERE = ["/device:CPU:99", "/device:GPU:7", "TPU:0", "", "/", "here", "CPU:x", "0"]
MASKED = np.ma.array([1.0, 2.0], mask=[0, 1])
NO_ARRAYS = [{"w": value} for value in ([1.0], tf.zeros(2), MASKED)]
KINDS = [object, str, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4]
STRANGE = [{"w": np.ones(3).astype(kind)} for kind in KINDS]


def replicas(k: int = 2, shape: tuple = (3,), dtype=tf.float32) -> list:
    return [[tf.Variable(tf.zeros(shape, dtype)), tf.Variable(tf.ones((), dtype))]] + (
        replicas(k - 1, shape, dtype) if k > 1 else []
    )


PLACED, SHARED = replicas(), replicas()
SHARED[1][1] = SHARED[0][1]
MIXED = replicas(1) + replicas(1, dtype=tf.float64)
NO_VARIABLE = [replicas(1)[0], [tf.zeros(3), PLACED[1][1]]]
OTHERS = replicas(1) + replicas(1, (4,))

REFUSED = [
    *good(checks.check_share, name="momentum", value=0.5).refuses(
        ("value", [True, np.False_, "1", None, 1j], TypeError, "momentum must be a nu"),
        ("value", [-0.1, 1.1, 2, NAN], ValueError, "momentum must be from 0 to 1, got"),
        ({"value": 1, "below_1": True}, ValueError, "momentum must be below 1, got 1"),
    ),
    *good(checks.check_not_negative, name="epsilon", value=0).refuses(
        ("value", [True, "a"], TypeError, "epsilon must be a number, got {!r}"),
        ("value", [-1, NAN, INF], ValueError, "epsilon must be finite and not neg"),
    ),
    *good(checks.check_truth, name="finite", value=np.True_).refuses(
        ("value", ["no", 1, G], TypeError, "finite must be one truth value, got"),
        ("value", [tf.constant([True])], TypeError, "finite must be one truth value"),
    ),
    *good(checks.check_count, name="n", value=np.int64(3)).refuses(
        ("value", [0, -1, np.int32(0)], ValueError, "n must be at least 1, got {!r}"),
        ("value", [True, np.True_, 2.0, "2", None, [2]], TypeError, "n must be a whol"),
        ("value", [np.array(2.5)], TypeError, "n must be a whole number, got {!r}: pa"),
    ),
    *good(checks.check_rank, rank=np.int64(1), size=2).refuses(
        ("rank", [2, -1], ValueError, "rank must be 0 to 1, got {!r}"),
        ("rank", ["a", 1.0, True], TypeError, "rank must be a whole number, got {!r}"),
        ("size", [0], ValueError, "size must be at least 1"),
    ),
    *good(checks.check_not_empty, name="devices", values=("a", "b")).refuses(
        ("values", [[], ()], ValueError, "devices is empty: give at least one"),
        ("values", [ONE], TypeError, "devices must be a list, got str: put it in a"),
    ),
    *good(checks.check_one_each, devices=[1, 2], updates=[3, 4]).refuses(
        ("updates", [[3]], ValueError, "updates has 1 entries for 2 devices: one each"),
        ("updates", [[]], ValueError, "updates is empty"),
        ("devices", [[1, 2, 3]], ValueError, "updates has 2 entries for 3 devices"),
    ),
    *good(checks.check_floating, name="dtype", dtype=tf.bfloat16).refuses(
        ("dtype", [tf.int32], TypeError, "dtype must be floating point, got int32: us"),
        ("dtype", ["number"], TypeError, "dtype must be floating point, got 'number'"),
    ),
    *good(
        checks.check_params,
        name="params",
        params=[tf.constant(1.0), tf.Variable(1.0)],
        count=2,
    ).refuses(
        ("count", [8, 1], ValueError, "params must hold {!r} tensors, got 2"),
        ("params", [[]], ValueError, "params is empty"),
        ("params", [tf.zeros(3)], TypeError, "params must be a list"),
        ("params", [[G, np.zeros(2)]], TypeError, "params[1] must be a tensor or vari"),
        ("params", [[G, OTHER]], TypeError, "one dtype, got ['float32', 'float64']: c"),
        ({"params": [tf.range(3)] * 2, "floating": True}, TypeError, "params[0] must"),
    ),
    *good(checks.check_images, name="X", X=IMAGES).refuses(
        ("X", [[[1]]], TypeError, "X must be a tensor or array, got list"),
        ("X", [IMAGES[..., 0]], ValueError, "rank 4", "(4, 28, 28)", "[..., tf.newaxi"),
        ("X", TURNED, ValueError, "X must have shape (samples, 28, 28, 1)"),
        ("X", [IMAGES[:0]], ValueError, "X holds no images: give at least one"),
    ),
    *good(
        checks.check_batch, X={"a": IMAGES, "b": IMAGES}, y=LABELS, parts=4, classes=2
    ).refuses(
        ("X", [np.float32(1)], ValueError, "X must have a first axis"),
        ("X", [IMAGES[:3]], ValueError, "same length, got 3 samples and 4"),
        ("X", [{"a": IMAGES, "b": IMAGES[:2]}], ValueError, "got 4 samples and 2"),
        ("X", [()], ValueError, "X is empty"),
        ({"X": IMAGES[:0], "y": LABELS[:0]}, ValueError, "X has no samples"),
        ("X", ["a"], TypeError, "X must be a tensor or array, got str"),
        ("X", [[[1.0]]], TypeError, "X must be a tensor or array, got float"),
        ("X", [tf.constant(["a"])], TypeError, "X must hold real numbers, got <dtype"),
        ("X", [np.zeros(4, complex)], TypeError, "X must hold real numbers, got compl"),
        ("X", [np.zeros(4, object)], TypeError, "X must hold real numbers, got object"),
        ("y", [LABELS[:, None]], ValueError, "y must have rank 1 (one label a sample)"),
        ("y", [np.int32(1)], ValueError, "y must have a first axis of samples"),
        ("y", [None], TypeError, "y must be a tensor or array, got NoneType"),
        ("y", [np.zeros(4)], TypeError, "y must hold whole numbers, the labels"),
        ("y", [np.zeros(4, bool)], TypeError, "y must hold real numbers"),
        ("y", [tf.constant([*"abcd"])], TypeError, "y must hold real numbers"),
        (
            "parts",
            [5],
            ValueError,
            "parts is 5 for 4 samples: each part",
            "or a larger",
        ),
        ("parts", [0], ValueError, "parts must be at least 1"),
        ("parts", [ONE], TypeError, "parts must be a whole number"),
    ),
    *good(checks.check_labels, name="y", y=tf.constant([0, 9]), classes=10).refuses(
        ("y", [tf.constant([-1, 0])], ValueError, "labels from 0 to 9, got -1 to 0"),
        ("y", [tf.constant([0, 10])], ValueError, "labels from 0 to 9, got 0 to 10"),
        ("y", [tf.constant([3, 255])], ValueError, "labels from 0 to 9, got 3 to 255"),
    ),
    *good(checks.check_replicas, device_params=PLACED, devices=EIGHT[:2]).refuses(
        (
            "devices",
            [[ONE]],
            ValueError,
            "2 replicas for 1 devices: make",
            "get_params",
        ),
        ("device_params", [[]], ValueError, "device_params is empty"),
        ("device_params", [[[], []]], ValueError, "device_params[0] is empty"),
        ("device_params", [PLACED[0]], TypeError, "device_params[0] must be a list"),
        ("device_params", [NO_VARIABLE], TypeError, "device_params[1][0] must be a tf"),
        ("device_params", [SHARED], ValueError, "device_params[1][1] is the same var"),
        ("device_params", [OTHERS], ValueError, "device_params[1] has shapes [(4,), ("),
        ("device_params", [MIXED], TypeError, "device_params must have one dtype, got"),
        ("devices", [[]], ValueError, "devices is empty"),
        # TensorFlow would quietly take the CPU.
        ("devices", [[ONE, "/device:CPU:99"]], ValueError, "devices[1] '/device:CPU:9"),
    ),
    *good(checks.check_reducible, data=PAIR).refuses(
        ("data", [(G,)], TypeError, "data must be a list", "got tuple: pass list(data"),
        ("data", [[]], ValueError, "data is empty"),
        ("data", [[TWICE, G]], TypeError, "data mixes variables and tensors"),
        ("data", [[TWICE, TWICE]], ValueError, "data holds the same variable twice"),
        ("data", [[G, tf.zeros(3)]], ValueError, "of one shape", "[(2,), (3,)]"),
        ("data", [[G, OTHER]], TypeError, "data must have one dtype"),
        ("data", [[tf.constant("a")]], TypeError, "data must hold numbers, got string"),
    ),
    *good(checks.check_positive, name="lr", value=np.float16(0.5)).refuses(
        ("value", [0, -0.1, NAN, INF], ValueError, "lr must be positive and", "{!r}"),
        ("value", [1e40, 10**400], ValueError, "lr must be positive and finite, got"),
        ("value", [tf.constant(-1.0), tf.constant(NAN)], ValueError, "lr must be posi"),
        ("value", [tf.Variable(0.0)], ValueError, "lr must be positive and finite"),
        ("value", ["0.1", None, True, [0.1]], TypeError, "lr must be a number", "{!r}"),
        ("value", [np.bool_(True), np.array("a")], TypeError, "lr must be a number"),
        ("value", [np.array([0.1])], TypeError, "lr must be a number"),
        ("value", [tf.constant([0.1]), tf.constant(1)], TypeError, "lr must be one nu"),
    ),
    *good(checks.check_device, name="device", device=LOGICAL.name).refuses(
        ("device", NOWHERE, ValueError, "device {!r} does not exist here: choose", ONE),
        ("device", [0, [ONE]], TypeError, "device must be a device name", "got "),
        ("device", [LOGICAL], TypeError, "device must be a device name", "its .name"),
    ),
    *good(checks.check_gradients, params=[TWICE, TWICE], grads=PAIR).refuses(
        ("params", [[]], ValueError, "params is empty"),
        ("grads", [[]], ValueError, "grads is empty"),
        ("grads", [[G]], ValueError, "grads must hold 2 gradients, one a parameter, g"),
        ("grads", [[G] * 3], ValueError, "grads must hold 2 gradients", "got 3"),
        ("grads", [[G, tf.zeros(3)]], ValueError, "grads[1] must have the shape of pa"),
        ("grads", [[G, None]], TypeError, "grads[1] must be a tensor, got NoneType"),
        ("grads", [[G, tf.range(2)]], TypeError, "grads[1] must be floating point, go"),
    ),
    *good(checks.check_sums, replicas=[[TWICE], []], sums=[[G], []]).refuses(
        ("sums", [[]], ValueError, "sums is empty"),
        ("sums", [[[G]]], ValueError, "sums has 1 lists for 2 replicas"),
        ("sums", [[[], []]], ValueError, "sums[0] is empty"),
        ("sums", [[[tf.zeros(3)], []]], ValueError, "sums[0][0] must have the shape"),
    ),
    *good(checks.check_same_form, grads=[PAIR, PAIR]).refuses(
        ("grads", [[]], ValueError, "grads is empty"),
        ("grads", [[[], []]], ValueError, "grads[0] is empty"),
        ("grads", [[[G], []]], ValueError, "grads[1] is empty"),
        ("grads", [tf.ones((2, 2))], TypeError, "grads must be a list"),
        ("grads", [[[G], PAIR]], ValueError, "grads[1] holds 2 gradients, grads[0] 1"),
        ("grads", [[[G], [None]]], TypeError, "grads[1][0] must be a tensor, got None"),
        ("grads", [[[G], [tf.zeros(3)]]], ValueError, "float32 of shape (3,), but gra"),
        ("grads", [[[G], [OTHER]]], ValueError, "grads[1][0] is float64 of shape (2,)"),
    ),
    *good(checks.check_fits, grads=[[G], [G]], like=[TWICE], devices=2).refuses(
        ("grads", [[[G]]], ValueError, "grads has 1 devices, but what is kept is of 2"),
        ("grads", [[PAIR, PAIR]], ValueError, "grads must hold 1 gradients"),
        ("grads", [[[tf.ones(3)]] * 2], ValueError, "grads[0] must have the shape"),
        ("grads", [[[OTHER]] * 2], TypeError, "grads[0][0] is float64, what is kept f"),
    ),
    *good(checks.check_samples, name="X", X=IMAGES[..., 0], sample=(28, None)).refuses(
        ("X", [np.float32(1)], ValueError, "X must have shape (samples, 28, None), go"),
        ("sample", [(28, 28, 1)], ValueError, "add the missing axis with X[..., tf.ne"),
    ),
    *good(checks.check_times, work=np.array([1.0, 2.0])).refuses(
        ("work", [True, "1", None, 1j], TypeError, "work must be real numbers, got"),
        ("work", [0, NAN, INF, np.array([1, NAN])], ValueError, "work must be above 0"),
        ({"work": -1, "least": 0}, ValueError, "work must be at least 0 and finite, g"),
    ),
    *good(checks.check_arrays, name="state", arrays={"w": np.ones(2)}).refuses(
        ("arrays", [{3: np.ones(2)}], TypeError, "state must have texts as names, got"),
        ("arrays", NO_ARRAYS, TypeError, "state['w'] must be a plain array"),
        ("arrays", STRANGE, TypeError, "state['w'] must hold numbers of NumPy's own"),
    ),
]


@pytest.mark.parametrize("refusal", REFUSED, ids=str)
def test_a_check_refuses(refusal):
    refusals.is_refused(refusal)


@pytest.mark.parametrize("refusal", refusals.goods(REFUSED), ids=str)
def test_what_is_right_passes(refusal):
    refusals.is_taken(refusal)


@pytest.mark.parametrize("sample", [(28, 28, 3), (1, 1), (1,)])
def test_the_advice_to_add_an_axis_is_given_only_where_it_helps(sample):
    with pytest.raises(ValueError, match="X must have shape") as refusal:
        checks.check_samples("X", IMAGES[..., 0], sample)
    assert "newaxis" not in str(refusal.value)
