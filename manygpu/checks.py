"""Refuse bad input by name, before anything changes.

Each function here raises `TypeError` or `ValueError` with three things in its
message: the argument, what was given, and what to do. The chapters call them in
one line, so that their own code stays about training.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from numbers import Real
from types import FunctionType, ModuleType
from typing import Any

from manygpu import _numpy as np
from manygpu import _tensorflow as tf


def is_truth(value: Any) -> bool:
    """Return whether `value` is True or False, Python's own or NumPy's.

    It asks for the type's name, so that a plan can be checked where NumPy isn't.
    """
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")


def check_count(name: str, value: Any) -> int:
    """Return `value` if it is a whole number of at least 1.

    Raises:
        TypeError: it is not an integer (True and 2.0 are refused too).
        ValueError: it is below 1.
    """
    try:
        count = operator.index(value)
    except TypeError:
        count = None
    if count is None or is_truth(value):  # NumPy 1 counts True
        raise TypeError(f"{name} must be a whole number, got {value!r}: pass 1, 2, ...")
    if count < 1:
        raise ValueError(f"{name} must be at least 1, got {value!r}")
    return count


def check_rank(rank: Any, size: Any) -> int:
    """Return `rank` if it is one of `size` ranks.

    Raises:
        TypeError: it, or `size`, is not an integer.
        ValueError: it is not 0 to `size` - 1, or `size` is below 1.
    """
    ranks = range(check_count("size", size))
    if is_truth(rank) or not isinstance(rank, (int, np.integer)):
        raise TypeError(f"rank must be a whole number, got {rank!r}: pass 0, 1, ...")
    if rank not in ranks:
        raise ValueError(f"rank must be 0 to {ranks[-1]}, got {rank!r}")
    return int(rank)


def check_not_empty(name: str, values: Any) -> None:
    """Refuse what is not a list or tuple, or is empty.

    Raises:
        TypeError: not a list or tuple (a single device name is a common slip).
        ValueError: nothing in it.
    """
    if not isinstance(values, (list, tuple)):
        raise TypeError(
            f"{name} must be a list, got {type(values).__name__}: put it in a list"
        )
    if not values:
        raise ValueError(f"{name} is empty: give at least one entry")


def check_one_each(**lists: Any) -> None:
    """Refuse lists of different length, by name: zip would leave out the rest."""
    (first, as_many), *_ = lists.items()
    for name, values in lists.items():
        check_not_empty(name, values)
        if len(values) != len(as_many):
            raise ValueError(
                f"{name} has {len(values)} entries for {len(as_many)} {first}: one each"
            )


def check_floating(name: str, dtype: Any) -> tf.DType:
    """Return it as a dtype if it is one of floating point; else raise TypeError."""
    try:
        found = tf.as_dtype(dtype)
    except TypeError:
        found = None
    if found is None or not found.is_floating:
        said = repr(dtype) if found is None else found.name
        raise TypeError(
            f"{name} must be floating point, got {said}: use tf.float32, "
            f"tf.bfloat16, ..."
        )
    return found


def check_params(
    name: str,
    params: Any,
    count: int | None = None,
    floating: bool = False,
    specs: bool = False,
) -> None:
    """Refuse parameters that are not a list of tensors or variables of one dtype.

    Args:
        name: the argument's name, for the message.
        params: list of tensors or variables.
        count: how many there must be (LeNet has 8), or None for any number.
        floating: whether the dtype must be one of floating point.
        specs: whether tf.TensorSpec will do, where only shapes are asked for.
    """
    kinds = (tf.Tensor, tf.Variable, *([tf.TensorSpec] if specs else []))
    check_not_empty(name, params)
    if count is not None and len(params) != count:
        raise ValueError(f"{name} must hold {count} tensors, got {len(params)}")
    for i, p in enumerate(params):
        if not isinstance(p, kinds):
            raise TypeError(
                f"{name}[{i}] must be a tensor or variable, got {type(p).__name__}"
            )
    dtypes = {p.dtype.name for p in params}
    if len(dtypes) > 1:
        raise TypeError(
            f"{name} must have one dtype, got {sorted(dtypes)}: cast them to one"
        )
    if floating:
        check_floating(f"{name}[0]", params[0].dtype)


def check_images(name: str, X: Any) -> None:
    """Refuse a batch that is not NHWC, of shape (samples, 28, 28, 1)."""
    _check_array(name, X)
    shape = tuple(X.shape)
    if len(shape) != 4:
        raise ValueError(
            f"{name} must have rank 4 (samples, height, width, channels), got shape "
            f"{shape}: add the missing axis with {name}[..., tf.newaxis]"
        )
    if shape[1:] != (28, 28, 1):
        raise ValueError(f"{name} must have shape (samples, 28, 28, 1), got {shape}")
    if shape[0] == 0:
        raise ValueError(f"{name} holds no images: give at least one")


def _check_array(name: str, value: Any, truths: bool = False) -> tf.DType:
    """Return the dtype of a tensor or array of real numbers with a known rank.

    truths: whether it may hold truth values too.
    """
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise TypeError(
            f"{name} must be a tensor or array, got {type(value).__name__}: put it "
            f"into tf.constant"
        )
    try:
        dtype = tf.as_dtype(value.dtype)
    except TypeError:
        dtype = tf.string  # no dtype of TensorFlow's: it holds no numbers
    if not (dtype.is_floating or dtype.is_integer or truths and dtype.is_bool):
        raise TypeError(f"{name} must hold real numbers, got {value.dtype}: cast it")
    if tf.TensorShape(value.shape).rank is None:
        raise ValueError(f"{name} must have a known rank: give the graph its shape")
    return dtype


def check_batch(
    X: Any, y: Any, parts: int = 1, classes: int | None = None, rank: int = 1
) -> list[tf.Operation]:
    """Refuse a batch that can't be cut into `parts`, or has labels of no class.

    Args:
        X: (samples, ...) tensor or array of real numbers, or a nest of such.
        y: the same with what is to be learned; (samples,) labels, say.
        parts: into how many pieces it is cut: one a device, a micro-batch, ...
        classes: labels are 0 to classes - 1; None to leave y's numbers unchecked.
        rank: of y where there are classes; 2 for a label per token.

    Returns:
        list[tf.Operation]: none where all is known. In a graph, labels, and perhaps
        the lengths, are known when it runs: make what uses the batch wait for these
        operations, with `tf.control_dependencies`. They raise
        tf.errors.InvalidArgumentError; only XLA (jit_compile=True) leaves them out.

    Raises:
        TypeError: X or y is not of arrays of numbers, labels are not whole ones, or
            `parts` is no whole number.
        ValueError: no parts, X and y of different length, fewer samples than parts,
            or, with `classes`, y of another rank or a label that is no class.
    """
    parts = check_count("parts", parts)
    lengths = [*_lengths("X", X), *_lengths("y", y)]
    later = [] if classes is None else check_labels("y", y, classes, rank)
    if None in lengths:
        return _lengths_for_later(tf.nest.flatten((X, y)), parts) + later
    samples = lengths[0]
    for other in lengths:
        if other != samples:
            raise ValueError(
                f"X and y must have the same length, got {samples} samples and {other}"
            )
    if not samples:
        raise ValueError("X has no samples: a batch needs at least one")
    if samples < parts:
        raise ValueError(f"parts is {parts} for {samples} samples: {_TOO_FEW}")
    return later


_TOO_FEW = (
    "each part needs at least one; use fewer parts (devices, micro-batches) or a "
    "larger batch"
)


def _lengths(name: str, values: Any) -> list[int | None]:
    """How many samples each array of a nest has; None: known when a graph runs."""
    lengths = []
    for value in tf.nest.flatten(values):
        _check_array(name, value, truths=True)
        if len(value.shape) < 1:
            raise ValueError(
                f"{name} must have a first axis of samples, got a single number"
            )
        lengths.append(value.shape[0])
    if not lengths:
        raise ValueError(f"{name} is empty: give at least one array")
    return lengths


def _lengths_for_later(tensors: list, parts: int) -> list[tf.Operation]:
    """What `check_batch` says of the lengths, said when the graph runs.

    No kernel would say it everywhere: many take an empty shard and go on.
    """
    samples, *others = (tf.shape(t)[0] for t in tensors)
    same = ["X and y must have the same length, got", samples, "samples and"]
    enough = [f"parts is {parts} for", samples, f"samples: {_TOO_FEW}"]
    right = [_assert_later(samples == n, [*same, n]) for n in others]
    return [*right, _assert_later(samples >= parts, enough)]


def _assert_later(right: tf.Tensor, said: list) -> tf.Operation:
    """Say so when the graph runs and it isn't right.

    As one operation: `tf.debugging.Assert` puts it into a branch, and a pipeline's
    graph would have one for each micro-batch, which takes a fifth of its tracing.
    """
    return tf.raw_ops.Assert(condition=right, data=said)


def check_labels(name: str, y: Any, classes: int, rank: int = 1) -> list[tf.Operation]:
    """Refuse labels, (samples,), that are not 0 to classes - 1; see `check_batch`.

    A larger rank: axes ahead of the samples. TensorFlow's own loss raises for other
    labels on a CPU and answers NaN on a GPU.
    """
    check_whole_numbers(name, y)
    if len(y.shape) != rank:
        shape = tuple(y.shape)
        raise ValueError(
            f"{name} must have rank {rank} (one label a sample), got shape {shape}"
        )
    y = tf.convert_to_tensor(y)
    with tf.device(y.device):
        # As int64: classes may be more than the labels' own dtype can hold.
        least, most = (tf.cast(f(y), tf.int64) for f in (tf.reduce_min, tf.reduce_max))
        none = most < least
        right = none | (least >= 0) & (most < classes)
    what = f"{name} must hold labels from 0 to {classes - 1}, got"
    if not tf.executing_eagerly():
        return [_assert_later(right, [what, least, "to", most])]
    if not right:
        raise ValueError(f"{what} {int(least)} to {int(most)}: drop or mend them")
    return []


def import_d2l() -> ModuleType:
    """Return d2l's TensorFlow module, which only the loops that draw need.

    Raises:
        ImportError: it is not installed; the message says how to.
    """
    try:
        from d2l import tensorflow as d2l
    except ImportError as missing:
        raise ImportError(
            "drawing while training needs the package d2l, which is not installed "
            "here: pip install --no-deps d2l==1.0.3"
        ) from missing
    return d2l


def check_replicas(device_params: Any, devices: Sequence[str]) -> None:
    """Refuse replicas that don't match the devices or share a variable.

    Replicas that share a variable would take every update once a device. A device
    that does not exist would not fail: TensorFlow would quietly use the CPU instead.

    Args:
        device_params: one list of variables a device.
        devices: one name a device.
    """
    check_not_empty("device_params", device_params)
    check_not_empty("devices", devices)
    if len(device_params) != len(devices):
        raise ValueError(
            f"device_params has {len(device_params)} replicas for {len(devices)} "
            f"devices: make one replica a device with get_params"
        )
    for k, device in enumerate(devices):
        check_device(f"devices[{k}]", device)
    seen = set()
    for k, replica in enumerate(device_params):
        check_not_empty(f"device_params[{k}]", replica)
        for i, p in enumerate(replica):
            if not isinstance(p, tf.Variable):
                raise TypeError(
                    f"device_params[{k}][{i}] must be a tf.Variable, got "
                    f"{type(p).__name__}: get_params makes them"
                )
            if id(p) in seen:
                raise ValueError(
                    f"device_params[{k}][{i}] is the same variable as in another "
                    f"replica: each device needs its own copy, see get_params"
                )
            seen.add(id(p))
        shapes = [tuple(p.shape) for p in replica]
        first = [tuple(p.shape) for p in device_params[0]]
        if shapes != first:
            raise ValueError(
                f"device_params[{k}] has shapes {shapes}, device_params[0] {first}: "
                f"replicas must be copies of one model"
            )
    dtypes = {p.dtype.name for replica in device_params for p in replica}
    if len(dtypes) > 1:
        raise TypeError(
            f"device_params must have one dtype, got {sorted(dtypes)}: make all "
            f"replicas of one model with get_params"
        )


def check_reducible(data: Any) -> None:
    """Refuse what an in-place all-reduce can't sum.

    Args:
        data: list with one variable a device, or one tensor a device.

    Raises:
        TypeError: not a list, variables mixed with tensors, several dtypes, or no
            numbers.
        ValueError: empty, or entries of different shape, or one variable twice.
    """
    if not isinstance(data, list):
        raise TypeError(
            f"data must be a list, which is changed in place, got "
            f"{type(data).__name__}: pass list(data)"
        )
    check_params("data", data)
    dtype = data[0].dtype
    if not (dtype.is_floating or dtype.is_integer or dtype.is_complex):
        raise TypeError(f"data must hold numbers, got {dtype.name}: cast it")
    variables = [isinstance(d, tf.Variable) for d in data]
    if any(variables) and not all(variables):
        raise TypeError(
            "data mixes variables and tensors: pass all of one kind, one per device"
        )
    if all(variables) and len({id(d) for d in data}) < len(data):
        raise ValueError("data holds the same variable twice: pass one per device")
    shapes = [tuple(d.shape) for d in data]
    if len(set(shapes)) > 1:
        raise ValueError(
            f"data must hold tensors of one shape to sum them, got {shapes}"
        )


def check_rate(name: str, value: Any) -> None:
    """Refuse what is not one positive number; a tensor's value is left unread.

    Raises:
        TypeError: not one real number, or a tensor of whole ones.
        ValueError: a number that is not positive, not finite, or beyond float32.
    """
    if not isinstance(value, (tf.Tensor, tf.Variable)):
        check_positive(name, value)
    elif not value.dtype.is_floating or value.shape.rank not in (0, None):
        raise TypeError(
            f"{name} must be one number of floating point, got {value.dtype.name} of "
            f"shape {value.shape}"
        )


def check_positive(name: str, value: Any) -> list[tf.Operation]:
    """Refuse what is not one positive number, or is no float32 at all.

    Args:
        name: the argument's name, for the message: "lr", a rate of learning.
        value: a number of Python or NumPy, or a tensor or variable without axes.

    Returns:
        list[tf.Operation]: in a graph, for a number known only when it runs, what to
        wait for with `tf.control_dependencies`; see `check_batch`. Else none.

    Raises:
        TypeError: not one real number.
        ValueError: not positive, not finite, or beyond float32.
    """
    found = value
    if isinstance(value, (tf.Tensor, tf.Variable)):
        check_rate(name, value)
        if not tf.executing_eagerly():
            value = tf.convert_to_tensor(value)
            right = (value > 0) & tf.math.is_finite(value)
            what = f"{name} must be positive and finite, got"
            return [_assert_later(right, [what, value])]
        found = float(value)
    if not 0 < _real(name, found, "a number") <= float(np.finfo(np.float32).max):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return []


def _real(name: str, value: Any, what: str) -> float:
    """Return a real number of Python or NumPy as a float; raises TypeError."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if is_truth(value) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {what}, got {value!r}")
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf


def check_device(name: str, device: Any) -> str:
    """Return `device` as '/device:KIND:I' if TensorFlow has it.

    Args:
        name: the argument's name, for the message.
        device: any way TensorFlow writes a device: 'GPU:0', '/gpu:0', a full name.

    Raises:
        TypeError: not a string.
        ValueError: no such device.
    """
    if not isinstance(device, str):
        raise TypeError(
            f"{name} must be a device name such as '/device:CPU:0', got "
            f"{type(device).__name__}: for a LogicalDevice pass its .name"
        )
    short = short_device_name(device)
    known = [short_device_name(d.name) for d in tf.config.list_logical_devices()]
    if short not in known:
        usable = [d for d in known if ":CPU:" in d or ":GPU:" in d]
        raise ValueError(f"{name} {device!r} does not exist here: choose from {usable}")
    return short


@functools.lru_cache(maxsize=1024)
def short_device_name(device: str) -> str:
    """'/job:localhost/.../device:GPU:0', 'gpu:0' -> '/device:GPU:0'; else as it is."""
    try:
        path = device if device.startswith("/") else f"/{device}"
        spec = tf.DeviceSpec.from_string(path)
    except ValueError:
        return device
    if spec.device_type is None:
        return device
    return f"/device:{spec.device_type.upper()}:{spec.device_index or 0}"


def check_whole_numbers(name: str, y: Any) -> None:
    """Refuse labels that are not an array of whole numbers; raises TypeError."""
    if not _check_array(name, y).is_integer:
        raise TypeError(
            f"{name} must hold whole numbers, the labels, got {y.dtype}: cast it to "
            f"tf.int32"
        )


def check_gradients(params: Any, grads: Any, name: str = "grads") -> None:
    """Refuse gradients that are not one for each parameter, of its shape.

    `name`: the argument's name, for the message.

    Raises:
        TypeError: a gradient that is no tensor, or not of floating point.
        ValueError: another number of them, or a shape that is not its parameter's.
    """
    check_not_empty("params", params)
    check_not_empty(name, grads)
    if len(grads) != len(params):
        raise ValueError(
            f"{name} must hold {len(params)} gradients, one a parameter, got "
            f"{len(grads)}"
        )
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        if not isinstance(g, (tf.Tensor, tf.Variable)):
            raise TypeError(f"{name}[{i}] must be a tensor, got {type(g).__name__}")
        check_floating(f"{name}[{i}]", g.dtype)
        if not g.shape.is_compatible_with(p.shape):
            raise ValueError(
                f"{name}[{i}] must have the shape of params[{i}], {tuple(p.shape)}, "
                f"got {g.shape}"
            )


def check_sums(replicas: Any, sums: Any) -> None:
    """Refuse sums that are not a gradient for each variable of each replica.

    A replica may be an empty list: a stage of layers without parameters.

    Raises:
        TypeError: `sums` is no list, or holds what is no tensor of floating point.
        ValueError: another number of lists, or of gradients, or another shape.
    """
    check_not_empty("sums", sums)
    if len(sums) != len(replicas):
        raise ValueError(f"sums has {len(sums)} lists for {len(replicas)} replicas")
    for k, (own, total) in enumerate(zip(replicas, sums, strict=True)):
        if own:
            check_gradients(own, total, f"sums[{k}]")


def check_same_form(grads: Any, name: str = "grads") -> None:
    """Refuse gradients of several devices unless each lists the same parameters.

    Summed as they are, one parameter's gradient would be added to another's.

    Args:
        grads: grads[k][i] is device k's gradient of parameter i.
        name: the argument's name, for the message.

    Raises:
        TypeError: not a list of lists of tensors.
        ValueError: nothing in it, or a device whose list has another length, shape
            or dtype than the first device's.
    """
    check_not_empty(name, grads)
    advice = "list the same parameters, in one order, on every device"
    for k, own in enumerate(grads):
        check_not_empty(f"{name}[{k}]", own)
        if len(own) != len(grads[0]):
            raise ValueError(
                f"{name}[{k}] holds {len(own)} gradients, {name}[0] {len(grads[0])}: "
                f"{advice}"
            )
        for i, g in enumerate(own):
            if not isinstance(g, (tf.Tensor, tf.Variable)):
                raise TypeError(
                    f"{name}[{k}][{i}] must be a tensor, got {type(g).__name__}"
                )
            first = grads[0][i]
            if g.dtype != first.dtype or not g.shape.is_compatible_with(first.shape):
                raise ValueError(
                    f"{name}[{k}][{i}] is {g.dtype.name} of shape {g.shape}, but "
                    f"{name}[0][{i}] {first.dtype.name} of {first.shape}: {advice}"
                )


def check_fits(grads: Any, like: Sequence, devices: int) -> None:
    """Refuse gradients of other devices, shapes or dtypes than a state was made for.

    Args:
        grads: grads[k][i] is device k's gradient of parameter i.
        like: what one device's have the shapes and dtypes of.
        devices: how many the state was made for.
    """
    check_same_form(grads)
    if len(grads) != devices:
        raise ValueError(
            f"grads has {len(grads)} devices, but what is kept is of {devices}: "
            f"make a new one for other devices"
        )
    check_gradients(list(like), grads[0])
    for i, (kept, g) in enumerate(zip(like, grads[0], strict=True)):
        if g.dtype != kept.dtype:
            raise TypeError(
                f"grads[0][{i}] is {g.dtype.name}, what is kept {kept.dtype.name}: "
                f"cast one"
            )


def check_samples(name: str, X: Any, sample: Sequence[int | None]) -> None:
    """Refuse a batch whose samples don't have the shape `sample`; None: any length.

    Kernels are no check: given images without a channel axis, some of oneDNN's
    convolutions end the process.
    """
    _check_array(name, X)
    found = tf.TensorShape(X.shape)
    if found.rank == 0 or not found[1:].is_compatible_with(tf.TensorShape(sample)):
        wanted = ", ".join(map(str, ("samples", *sample)))
        missing = found.rank == len(sample) and list(sample)[-1:] == [1]
        advice = f": add the missing axis with {name}[..., tf.newaxis]"
        raise ValueError(
            f"{name} must have shape ({wanted}), got {found}{advice if missing else ''}"
        )


def check_times(least: float | None = None, **times: Any) -> None:
    """Refuse times, numbers or arrays, that are not finite and above 0.

    Args:
        least: they may be as small as this; None: they must be above 0.
        times: by the arguments' names.

    Raises:
        TypeError: no real numbers (True is none).
        ValueError: one is too small, infinite, or NaN.
    """
    for name, value in times.items():
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            raise TypeError(f"{name} must be real numbers, got {value!r}")
        enough = array > 0 if least is None else array >= least
        if not np.all(enough & np.isfinite(array)):
            limit = "above 0" if least is None else f"at least {least:g}"
            raise ValueError(f"{name} must be {limit} and finite, got {value!r}")


def check_arrays(name: str, arrays: Mapping[str, Any]) -> None:
    """Refuse what a file of NumPy's would not give back equal; raises TypeError.

    Types that a library adds, bfloat16 say, come back as bare bytes, and masked
    arrays without their mask.
    """
    for key, array in arrays.items():
        if not isinstance(key, str):
            raise TypeError(f"{name} must have texts as names, got {key!r}")
        if type(array) is not np.ndarray:
            raise TypeError(
                f"{name}[{key!r}] must be a plain array of NumPy, got "
                f"{type(array).__name__}: make it one with np.array"
            )
        if array.dtype.kind not in "biufc" or array.dtype.isbuiltin > 1:
            raise TypeError(
                f"{name}[{key!r}] must hold numbers of NumPy's own kinds, got "
                f"{array.dtype}: cast them, bfloat16 to float32 say"
            )


def check_share(name: str, value: Any, below_1: bool = False) -> float:
    """Return `value` if it is a number from 0 to 1; else TypeError or ValueError."""
    share = _real(name, value, "a number from 0 to 1")
    if below_1 and share == 1:
        raise ValueError(f"{name} must be below 1, got {value!r}")
    if not 0 <= share <= 1:
        raise ValueError(f"{name} must be from 0 to 1, got {value!r}")
    return share


def check_truth(name: str, value: Any) -> None:
    """Refuse what is not one truth value, of Python, NumPy or TensorFlow."""
    known = is_truth(value)
    if not known and isinstance(value, (tf.Tensor, tf.Variable)):
        known = value.dtype == tf.bool and value.shape.rank in (0, None)
    if not known:
        raise TypeError(f"{name} must be one truth value, got {value!r}")


def check_not_negative(name: str, value: Any) -> float:
    """Return `value` if it is a number from 0; else TypeError or ValueError."""
    number = _real(name, value, "a number")
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} must be finite and not negative, got {value!r}")
    return number


def number_as(value: Any, dtype: tf.DType) -> tf.Tensor:
    """Return a number of Python, NumPy or TensorFlow in `dtype`.

    tf.cast would make a Python float a float32 on the way to float64.
    """
    if isinstance(value, (tf.Tensor, tf.Variable)):
        return tf.cast(value, dtype)
    return tf.constant(float(value), dtype)


def at_least_float32(tensor: tf.Tensor) -> tf.Tensor:
    """Return a tensor in float32, or in its dtype if that is wider.

    For sums: float16 ends at 65,504, which a count alone may pass.
    """
    return tf.cast(tensor, tf.float32) if tensor.dtype.size < 4 else tensor


# AutoGraph would rewrite each of these, for more than a second, when a step is traced;
# in none of them does a branch hang on a tensor's value. do_not_convert sets this, too.
for _check in [one for one in globals().values() if isinstance(one, FunctionType)]:
    _check.autograph_info__ = None
