"""Read back what TensorFlow's profiler recorded, without TensorBoard.

`tf.profiler.experimental.stop` leaves one file a host, `*.xplane.pb`: a message of
type XSpace (in TensorFlow's source: tsl/profiler/protobuf/xplane.proto). TensorBoard's
plugin draws it; here it becomes plain Python objects, so that a chapter can add up and
draw what it recorded itself::

    with tf.profiler.experimental.Profile(folder):
        for i, (X, y) in enumerate(batches):
            with tf.profiler.experimental.Trace("step", step_num=i, _r=1):
                step(X, y)
        time.sleep(0.02)
    for step in profile.read(folder):
        print(step.number, step.seconds, len(step.ops))

The pause at the end matters: a thread notes a piece of work when it has left it, which
may be after the step's result is there. Stop at once, and the last step may lack some.

What the trace tells apart, and what not: on CPU devices each operation is an event of
the host thread that ran it, and threads serve all devices. But TensorFlow cuts a graph
into one part a device, and each event lies in one of its part; so `Op.part` tells the
devices apart, without their names. On GPUs there is also an event for each kernel,
on a stream of its GPU; those are taken where there are any.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from manygpu.trace.spans import Span

# How the profiler names things: xplane_schema.h and the runtime's own annotations.
GPU_PLANE = "/device:GPU:"
STREAM = "Stream"  # a GPU plane's lines of kernels; its other lines are derived
OPERATION = re.compile(r"([^:\s]+):(\w+)")  # 'gradient_tape/add_1/Sum:Sum'
PART = "ExecutorState::Process"  # a thread works on one part of the graph
DISPATCH = "EagerExecute"  # Python hands over an operation or a whole function
LIBRARY = re.compile(r"^_(Mkl)?(Native)?")  # '_MklNativeFusedConv2D': who computes it


@dataclass(frozen=True)
class Op(Span):
    """One run of one operation of a graph; times in seconds of the recording.

    Attributes:
        device: who ran it: `'thread 2'`, or `'GPU:0 stream 1'`.
        name: in the graph, such as 'gradient_tape/matmul/MatMul_1'.
        start, end: seconds since the recording began.
        type: what it does, such as 'MatMul', without the library that did it.
        part: which part of the graph it lies in, from 0 in order of appearance,
            one a device and a call; None where the trace doesn't say.
    """

    type: str = ""
    part: int | None = None


@dataclass(frozen=True)
class Step:
    """What was recorded of one `tf.profiler.experimental.Trace`.

    Attributes:
        number: its `step_num`.
        start, end: seconds since the recording began.
        ops: operations of graphs that began in it, in order of their start. Eager
            operations are not among them: they are only counted.
        dispatched: how many operations and functions Python handed over.
    """

    number: int
    start: float
    end: float
    ops: tuple[Op, ...]
    dispatched: int

    @property
    def seconds(self) -> float:
        """How long it took, as the thread saw it that asked for it."""
        return self.end - self.start


class _Event(NamedTuple):
    plane: str
    line: int
    title: str
    name: str
    start: float
    end: float
    stats: dict[str, Any]


def trace_file(folder: str | Path) -> Path:
    """Return the one `*.xplane.pb` below the folder that was given to the profiler.

    Raises:
        ValueError: there is none, or more than one.
    """
    found = sorted(Path(folder).rglob("*.xplane.pb"))
    if len(found) != 1:
        raise ValueError(
            f"folder must hold one *.xplane.pb, {folder} holds {len(found)}: stop the "
            f"profiler first, and give each recording a folder of its own"
        )
    return found[0]


def read(folder: str | Path) -> list[Step]:
    """Return the steps that were recorded into `folder`, in order of time.

    Args:
        folder: what `tf.profiler.experimental.start` or `Profile` was given.

    Raises:
        ValueError: no recording there, more than one, one that is not an XSpace, or
            one without steps.
    """
    # In TensorFlow's wheel since 2.13, though not in its documented API.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    path = trace_file(folder)
    space = xplane_pb2.XSpace()
    try:
        space.ParseFromString(path.read_bytes())
    except DecodeError as broken:
        raise ValueError(f"{path} is not a profiler's recording: {broken}") from broken
    return steps_of(space)


def steps_of(space: Any) -> list[Step]:
    """Return the steps of an XSpace message; `read` reads one from a file.

    Raises:
        ValueError: it holds no step.
    """
    events = sorted(_events(space), key=lambda e: (e.start, -e.end))
    marks = [e for e in events if "step_num" in e.stats]
    if not marks:
        raise ValueError(
            "the recording holds no step: wrap each in "
            'tf.profiler.experimental.Trace("step", step_num=i, _r=1)'
        )
    ops = _host_ops(events)
    ops = _gpu_ops(events, {op.name: op.part for op in ops}) or ops
    calls = [e.start for e in events if e.name == DISPATCH]
    begins = [op.start for op in ops]
    steps = []
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        # A GPU may work on after Python is done: its kernels belong to the last step.
        until = after.start if after else float("inf")
        first = bisect.bisect_left(begins, mark.start)
        own = ops[first : bisect.bisect_left(begins, until)]
        dispatched = sum(mark.start <= t < mark.end for t in calls)
        number = int(mark.stats["step_num"])
        steps.append(Step(number, mark.start, mark.end, tuple(own), dispatched))
    return steps


def _events(space: Any) -> Iterator[_Event]:
    """Every event of every line of every plane, with its names looked up."""
    for plane in space.planes:
        names = {i: m.name for i, m in plane.event_metadata.items()}
        keys = {i: m.name for i, m in plane.stat_metadata.items()}
        for line in plane.lines:
            for e in line.events:
                # Picoseconds in whole numbers, so that nothing is rounded twice.
                start = 1000 * line.timestamp_ns + e.offset_ps
                stats = {keys.get(s.metadata_id, ""): _value(s, keys) for s in e.stats}
                yield _Event(
                    plane.name,
                    line.id,
                    line.name,
                    names.get(e.metadata_id, ""),
                    start * 1e-12,
                    (start + e.duration_ps) * 1e-12,
                    stats,
                )


def _value(stat: Any, keys: dict[int, str]) -> Any:
    """A stat's value; a reference is looked up."""
    which = stat.WhichOneof("value")
    if which is None:
        return None
    value = getattr(stat, which)
    return keys.get(value, "") if which == "ref_value" else value


def _host_ops(events: Sequence[_Event]) -> list[Op]:
    """The operations that host threads ran. `events` are in order of start."""
    ops: list[Op] = []
    threads: dict[int, str] = {}
    parts: dict[int, int] = {}
    inside: dict[int, list[tuple[float, int | None]]] = {}  # a line's parts under way
    for e in events:
        if e.plane.startswith(GPU_PLANE):
            continue
        under_way = inside.setdefault(e.line, [])
        while under_way and under_way[-1][0] < e.end:
            under_way.pop()
        if e.name == PART:
            # One context a part and call; signed or not, it is 64 bits.
            context = e.stats.get("_c")
            if context is not None:
                context = parts.setdefault(context % 2**64, len(parts))
            under_way.append((e.end, context))
            continue
        found = OPERATION.fullmatch(e.name)
        if found:
            row = threads.setdefault(e.line, f"thread {len(threads) + 1}")
            part = under_way[-1][1] if under_way else None
            ops.append(_op(found, row, part, e))
    return ops


def _gpu_ops(events: Sequence[_Event], parts: dict[str, int | None]) -> list[Op]:
    """The kernels that GPUs ran, under the names of their operations."""
    ops: list[Op] = []
    streams: dict[tuple[str, int], str] = {}
    for e in events:
        if not (e.plane.startswith(GPU_PLANE) and e.title.startswith(STREAM)):
            continue
        found = OPERATION.fullmatch(str(e.stats.get("tf_op", "")))
        if found:
            gpu = e.plane.removeprefix("/device:")
            count = sum(plane == e.plane for plane, _ in streams)
            row = streams.setdefault((e.plane, e.line), f"{gpu} stream {count + 1}")
            ops.append(_op(found, row, parts.get(found[1]), e))
    return ops


def _op(found: re.Match[str], row: str, part: int | None, e: _Event) -> Op:
    kind = LIBRARY.sub("", found[2])
    return Op(row, found[1], e.start, e.end, type=kind, part=part)
