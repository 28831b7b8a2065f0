"""Profiles: what is read back from a recording, and what is refused."""

from __future__ import annotations

import time

import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import manygpu
from manygpu.trace import profile
from manygpu.trace.profile import Op

DEVICES = manygpu.devices(2, quiet=True)
US = 10**6  # picoseconds


class Recording:
    """Writes an XSpace by hand: planes, lines, events with their stats."""

    def __init__(self) -> None:
        self.space = xplane_pb2.XSpace()

    def line(self, plane: str, title: str, number: int, at_ns: int = 0):
        """A line of a plane; the plane is made when it is first named."""
        planes = [p for p in self.space.planes if p.name == plane]
        made = planes[0] if planes else self.space.planes.add(name=plane)
        return made, made.lines.add(id=number, name=title, timestamp_ns=at_ns)

    def event(self, place, name: str, start: int, length: int, **stats) -> None:
        """An event from `start` for `length` microseconds."""
        plane, line = place
        event = line.events.add(
            metadata_id=_key(plane.event_metadata, name),
            offset_ps=start * US,
            duration_ps=length * US,
        )
        for key, value in stats.items():
            stat = event.stats.add(metadata_id=_key(plane.stat_metadata, key))
            if isinstance(value, int):
                field = "int64_value" if -(2**63) <= value < 2**63 else "uint64_value"
                setattr(stat, field, value)
            else:  # as the profiler does: a reference to the names' table
                stat.ref_value = _key(plane.stat_metadata, value)

    def steps(self) -> list[profile.Step]:
        return profile.steps_of(self.space)


def _key(table, name: str) -> int:
    for number, entry in table.items():
        if entry.name == name:
            return number
    number = len(table) + 1
    table[number].id = number
    table[number].name = name
    return number


@pytest.fixture
def recording() -> Recording:
    """Two steps of 100 microseconds, on the thread that asks for them."""
    made = Recording()
    made.python = made.line("/host:CPU", "python", 7)
    for i in range(2):
        made.event(made.python, "step", 100 * i, 100, step_num=i, _r=1)
    made.worker = made.line("/host:CPU", "tf_Compute/-5", -5)
    return made


# A recording written by hand


def test_steps_come_in_order_with_their_times(recording):
    steps = recording.steps()
    assert [s.number for s in steps] == [0, 1]
    assert [s.start for s in steps] == pytest.approx([0, 100e-6])
    assert [s.seconds for s in steps] == pytest.approx([100e-6, 100e-6])
    assert [s.ops for s in steps] == [(), ()]


def test_an_operation_lies_in_the_step_in_which_it_began(recording):
    recording.event(recording.worker, "a/Relu_1:_MklNativeFusedConv2D", 20, 30)
    recording.event(recording.worker, "late:AddN", 190, 30)  # a GPU works on after it
    first, second = recording.steps()
    [op] = first.ops
    assert op == Op("thread 1", "a/Relu_1", op.start, op.end, type="FusedConv2D")
    assert (op.start, op.end) == pytest.approx((20e-6, 50e-6))
    assert [op.name for op in second.ops] == ["late"]
    assert first.ops[0].seconds == pytest.approx(30e-6)


def test_the_lines_own_time_counts(recording):
    later = recording.line("/host:CPU", "tf_Compute/9", 9, at_ns=120_000)
    recording.event(later, "add:AddV2", 10, 5)
    assert recording.steps()[1].ops[0].start == pytest.approx(130e-6)


@pytest.mark.parametrize(
    "name",
    [
        "EagerLocalExecute: Conv2D",
        "ExecutorState::ProcessAsync::Start",
        "MemoryAllocation",
        "_Send input 0 from /job:localhost/device:CPU:0 to /job:localhost/device:CPU:1",
        "",
    ],
)
def test_what_is_no_operation_of_a_graph_is_left_out(recording, name):
    recording.event(recording.worker, name, 20, 30)
    assert [s.ops for s in recording.steps()] == [(), ()]


@pytest.mark.parametrize(
    ("recorded", "told"),
    [
        ("_MklMatMul", "MatMul"),
        ("_MklNativeFusedConv2D", "FusedConv2D"),
        ("_FusedMatMul", "FusedMatMul"),
        ("_Send", "Send"),
        ("Sum", "Sum"),
    ],
)
def test_a_type_is_told_without_its_library(recording, recorded, told):
    recording.event(recording.worker, f"x:{recorded}", 20, 30)
    assert recording.steps()[0].ops[0].type == told


def test_threads_are_numbered_in_order_of_their_first_operation(recording):
    other = recording.line("/host:CPU", "tf_Compute/3", 3)
    recording.event(recording.worker, "b:AddN", 30, 5)
    recording.event(other, "a:AddN", 20, 5)
    recording.event(other, "c:AddN", 40, 5)
    ops = recording.steps()[0].ops
    rows = ["thread 1", "thread 2", "thread 1"]
    assert [(op.name, op.device) for op in ops] == list(zip("abc", rows, strict=True))


def test_an_operation_belongs_to_the_part_that_its_thread_was_in(recording):
    big = 2**63 + 5  # the profiler writes one context signed here, unsigned there
    recording.event(recording.worker, profile.PART, 10, 20, _c=big)
    recording.event(recording.worker, "a:AddN", 12, 2)
    recording.event(recording.worker, profile.PART, 40, 20, _c=11)
    recording.event(recording.worker, "b:AddN", 45, 2)
    recording.event(recording.worker, profile.PART, 70, 9, _c=big - 2**64)
    recording.event(recording.worker, "c:AddN", 71, 2)
    recording.event(recording.worker, "d:AddN", 90, 2)
    recording.event(recording.worker, profile.PART, 92, 5)  # a context is not told
    recording.event(recording.worker, "e:AddN", 93, 2)
    parts = {op.name: op.part for op in recording.steps()[0].ops}
    assert parts == {"a": 0, "b": 1, "c": 0, "d": None, "e": None}


def test_another_threads_part_is_not_taken(recording):
    other = recording.line("/host:CPU", "tf_Compute/3", 3)
    recording.event(recording.worker, profile.PART, 10, 50, _c=11)
    recording.event(other, "a:AddN", 12, 2)
    assert recording.steps()[0].ops[0].part is None


def test_of_parts_within_each_other_the_inner_one_counts(recording):
    recording.event(recording.worker, profile.PART, 10, 60, _c=11)
    recording.event(recording.worker, profile.PART, 20, 20, _c=12)
    recording.event(recording.worker, "in:AddN", 25, 5)
    recording.event(recording.worker, "out:AddN", 50, 5)  # the inner one is over
    parts = {op.name: op.part for op in recording.steps()[0].ops}
    assert parts == {"in": 1, "out": 0}


def test_a_part_that_begins_with_its_operation_holds_it(recording):
    """The operation is noted first: only the order of lengths tells who is inside."""
    recording.event(recording.worker, "a:AddN", 10, 5)
    recording.event(recording.worker, profile.PART, 10, 20, _c=11)
    assert recording.steps()[0].ops[0].part == 0


def test_an_operation_that_ends_with_its_part_lies_in_it(recording):
    recording.event(recording.worker, profile.PART, 10, 20, _c=11)
    recording.event(recording.worker, "a:AddN", 12, 18)
    assert recording.steps()[0].ops[0].part == 0


def test_what_begins_with_a_step_is_the_steps(recording):
    for start in (0, 100):
        recording.event(recording.worker, "a:AddN", start, 5)
        recording.event(recording.python, profile.DISPATCH, start, 2)
    recording.event(recording.python, profile.DISPATCH, 200, 2)  # after both
    steps = recording.steps()
    assert [len(s.ops) for s in steps] == [1, 1]
    assert [s.dispatched for s in steps] == [1, 1]


def test_what_runs_after_a_step_is_the_steps_until_the_next_begins():
    """A GPU works on after Python is done: between the steps, and after the last."""
    made = Recording()
    python = made.line("/host:CPU", "python", 7)
    for i in range(2):
        made.event(python, "step", 100 * i, 50, step_num=i, _r=1)
    for start in (20, 70, 120, 300):
        made.event(python, "a:AddN", start, 5)
    assert [len(s.ops) for s in made.steps()] == [2, 2]


def test_calls_from_python_are_counted_by_step(recording):
    for start in (5, 10, 15, 120):
        recording.event(recording.python, profile.DISPATCH, start, 2, is_func=1)
    assert [s.dispatched for s in recording.steps()] == [3, 1]


def test_a_call_at_a_steps_end_is_no_more_in_it():
    made = Recording()
    python = made.line("/host:CPU", "python", 7)
    made.event(python, "step", 10, 50, step_num=0, _r=1)
    for start in (10, 59, 60):
        made.event(python, profile.DISPATCH, start, 1)
    assert made.steps()[0].dispatched == 2


def test_kernels_of_gpus_are_taken_where_there_are_any(recording):
    recording.event(recording.worker, profile.PART, 10, 20, _c=11)
    recording.event(recording.worker, "a:MatMul", 12, 2)  # only the launch
    for gpu, number in ((0, 13), (0, 14), (1, 13)):
        stream = recording.line(f"/device:GPU:{gpu}", f"Stream #{number}", number)
        recording.event(stream, "gemm_kernel", 40 + gpu, 30, tf_op="a:MatMul")
        recording.event(stream, "no name", 80, 5)
    derived = recording.line("/device:GPU:0", "XLA Ops", 99)
    recording.event(derived, "x", 40, 30, tf_op="a:MatMul")
    ops = recording.steps()[0].ops
    rows = ["GPU:0 stream 1", "GPU:0 stream 2", "GPU:1 stream 1"]
    assert [op.device for op in ops] == rows
    assert {(op.name, op.type, op.part) for op in ops} == {("a", "MatMul", 0)}
    assert all(op.seconds == pytest.approx(30e-6) for op in ops)


def test_a_recording_without_steps_is_refused():
    with pytest.raises(ValueError, match="holds no step: wrap each in"):
        Recording().steps()


# Files


@pytest.mark.parametrize("files, said", [("", "holds 0: stop the"), ("ab", "holds 2")])
def test_a_folder_without_its_one_recording_is_refused(tmp_path, files, said):
    for name in files:
        (tmp_path / f"{name}.xplane.pb").write_bytes(b"")
    with pytest.raises(ValueError, match=said):
        profile.read(tmp_path)


def test_a_file_that_is_no_recording_is_refused_by_name(tmp_path):
    (tmp_path / "host.xplane.pb").write_bytes(b"\xff no protocol buffer")
    with pytest.raises(ValueError, match="host.xplane.pb is not a profiler's"):
        profile.read(tmp_path)


# A real one


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> list[profile.Step]:
    """Three steps that multiply on two devices and add up on the first."""

    @tf.function
    def step(a):
        products = []
        for device in DEVICES:
            with tf.device(device):
                products.append(tf.matmul(a, a + len(products), name="product"))
        with tf.device(DEVICES[0]), tf.name_scope("all_reduce"):
            return tf.add_n(products)

    a = tf.random.stateless_normal((64, 64), (1, 2))
    step(a)
    folder = tmp_path_factory.mktemp("profile")
    with tf.profiler.experimental.Profile(str(folder)):
        for i in range(3):
            with tf.profiler.experimental.Trace("step", step_num=i, _r=1):
                step(a).numpy()
        time.sleep(0.1)  # see the module: the last notes come late
    return profile.read(folder)


def test_the_profiler_writes_what_the_module_reads(real):
    assert [s.number for s in real] == [0, 1, 2]
    for step in real:
        products = [op for op in step.ops if "MatMul" in op.type]
        assert len(products) == len(DEVICES)
        assert any(op.name.startswith("all_reduce/") for op in step.ops)
        assert step.dispatched >= 1
        assert all(step.start <= op.start <= op.end for op in step.ops)


def test_each_device_has_a_part_of_its_own(real):
    for step in real:
        parts = [op.part for op in step.ops if "MatMul" in op.type]
        assert None not in parts
        assert len(set(parts)) == len(DEVICES)
