"""Profiles: what is read back from a recording, and what is refused."""

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
    assert op.seconds == pytest.approx(30e-6)
    assert [op.name for op in second.ops] == ["late"]


def test_the_lines_own_time_counts(recording):
    later = recording.line("/host:CPU", "tf_Compute/9", 9, at_ns=120_000)
    recording.event(later, "add:AddV2", 10, 5)
    assert recording.steps()[1].ops[0].start == pytest.approx(130e-6)


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("x:_MklMatMul", ["MatMul"]),  # without its library
        ("x:_FusedMatMul", ["FusedMatMul"]),
        ("x:_Send", ["Send"]),
        ("x:Sum", ["Sum"]),
        ("EagerLocalExecute: Conv2D", []),  # what is no operation of a graph
        ("ExecutorState::ProcessAsync::Start", []),
        ("MemoryAllocation", []),
        ("_Send input 0 from /job:localhost/device:CPU:0 to /device:CPU:1", []),
        ("", []),
    ],
)
def test_operations_of_graphs_are_told_by_their_types(recording, name, types):
    recording.event(recording.worker, name, 20, 30)
    assert [op.type for op in recording.steps()[0].ops] == types


def test_threads_are_numbered_in_order_of_their_first_operation(recording):
    other = recording.line("/host:CPU", "tf_Compute/3", 3)
    recording.event(recording.worker, "b:AddN", 30, 5)
    recording.event(other, "a:AddN", 20, 5)
    recording.event(other, "c:AddN", 40, 5)
    ops = recording.steps()[0].ops
    rows = ["thread 1", "thread 2", "thread 1"]
    assert [(op.name, op.device) for op in ops] == list(zip("abc", rows, strict=True))


BIG = 2**63 + 5  # the profiler writes one context signed here, unsigned there


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        (  # where its thread was
            [(10, 20, BIG), (12, 2, "a"), (40, 20, 11), (45, 2, "b")]
            + [(70, 9, BIG - 2**64), (71, 2, "c"), (90, 2, "d")]
            + [(92, 5, None), (93, 2, "e")],  # a context is not told
            {"a": 0, "b": 1, "c": 0, "d": None, "e": None},
        ),
        (  # of parts within each other the inner one counts, until it is over
            [(10, 60, 11), (20, 20, 12), (25, 5, "in"), (50, 5, "out")],
            {"in": 1, "out": 0},
        ),
        (  # what begins or ends with it; what begins is noted first
            [(10, 5, "begins"), (10, 20, 11), (18, 12, "ends")],
            {"begins": 0, "ends": 0},
        ),
    ],
)
def test_an_operation_belongs_to_the_part_that_its_thread_was_in(
    recording, events, wanted
):
    """Parts have contexts, operations names."""
    for start, length, what in events:
        if isinstance(what, str):
            recording.event(recording.worker, f"{what}:AddN", start, length)
        else:
            context = {} if what is None else {"_c": what}
            recording.event(recording.worker, profile.PART, start, length, **context)
    other = recording.line("/host:CPU", "tf_Compute/3", 3)
    recording.event(other, "else:AddN", 12, 2)
    found = {op.name: op.part for op in recording.steps()[0].ops}
    assert found == wanted | {"else": None}


def test_operations_and_calls_are_the_steps_in_which_they_begin():
    """A GPU works on after Python is done: between the steps, and after the last."""
    made = Recording()
    python = made.line("/host:CPU", "python", 7)
    for i in range(2):
        made.event(python, "step", 100 * i, 50, step_num=i, _r=1)
    for start in (0, 20, 70, 100, 300):
        made.event(python, "a:AddN", start, 5)
    for start in (0, 10, 49, 50, 100):  # no call is a step's at its end and later
        made.event(python, profile.DISPATCH, start, 1, is_func=1)
    assert [len(s.ops) for s in made.steps()] == [3, 2]
    assert [s.dispatched for s in made.steps()] == [3, 1]


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


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], "holds 0: stop the"),
        (["a", "b"], "holds 2"),
        (["host"], "host.xplane.pb is not a profiler's"),
        (["empty"], "holds no step: wrap each in"),
    ],
)
def test_a_folder_without_its_one_recording_is_refused(tmp_path, files, said):
    for name in files:
        content = b"" if name == "empty" else b"\xff no protocol buffer"
        (tmp_path / f"{name}.xplane.pb").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        profile.read(tmp_path)


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
        parts = [op.part for op in step.ops if "MatMul" in op.type]
        assert None not in parts
        assert len(parts) == len(set(parts)) == len(DEVICES)  # each has its own
        assert any(op.name.startswith("all_reduce/") for op in step.ops)
        assert step.dispatched >= 1
        assert all(step.start <= op.start <= op.end for op in step.ops)
