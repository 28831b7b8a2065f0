"""The flight recorder: what it notes, who may speak, and the verdicts on logs.

The page has each failure on real processes, and how a NaN is cured.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.backstage import failing_job
from manygpu.processes.door import Deadline, knock
from manygpu.processes.waits import within
from manygpu.scratch.beyond import step_hangs
from manygpu.scratch.beyond.many_workers import PeerError, join_ring
from manygpu.scratch.beyond.step_hangs import (
    CURES,
    DISAGREED,
    DONE,
    END_OF_DATA,
    MOMENT_S,
    MOST_TOLD,
    Call,
    Collector,
    FlightLog,
    FlightRecorder,
    Reporter,
    Seen,
    as_log,
    diagnose,
    differences,
    fingerprint,
    hang_up,
    hear,
    link,
    straggler,
    tell,
)
from tests.threads import LONG, SECRET, pair

# Verdicts.


def waits(number=3, error="", step=1, victim=True, shape=(2,)) -> dict:
    call = Call(number, step, "W", shape, "float32", error=error)
    return {"calls": (call._replace(victim=victim and bool(error)),)}


def left(number: int) -> dict:
    return {"calls": (waits(number)["calls"][0]._replace(left=1.0),)}


def saw(*finite: bool, step: int = 2, skipped: bool = False) -> dict:
    """Whether the loss was finite, from this step on; the first was skipped, or not."""
    seen = [Seen(step + i, finite=fine) for i, fine in enumerate(finite)]
    return {"seen": (seen[0]._replace(skipped=skipped), *seen[1:])}


def read(step: int, shard: int = 0, params: int = 0) -> dict:
    return {"seen": (Seen(step, shard, params=params),)}


def logs_of(*facts: dict) -> list[FlightLog]:
    return [FlightLog(rank, **{"at": 60.0} | own) for rank, own in enumerate(facts)]


def verdict_on(*facts: dict) -> tuple:
    verdict = diagnose(logs_of(*facts))
    return verdict[:2] if verdict else (None, ())


GONE, SILENT, ANSWERED = ({"status": s} for s in ("gone", "silent", "answered"))
OUT, OVER, PARTED = ({"ended": end} for end in (END_OF_DATA, DONE, DISAGREED))
LATE, KEY_ERROR = {"ended": "too late"}, {"ended": "KeyError: 'x'"}


@pytest.mark.parametrize(
    "others, cause, ranks",
    [
        ([GONE], "missing rank", (1,)),
        ([SILENT], "silent rank", (1,)),
        ([SILENT, GONE], "missing rank", (2,)),
        ([GONE, {"status": "absent"}], "missing rank", (1, 2)),
        ([KEY_ERROR | GONE], "missing rank", (1,)),
        ([KEY_ERROR], "missing rank", (1,)),
        ([waits(error="no memory", victim=False)], "missing rank", (1,)),
        ([waits(error="hung up") | GONE], "link", (0, 1)),
        ([waits(error="no") | {"ended": "no"} | GONE], "link", (0, 1)),
        ([waits(error="hung up") | {"at": 0.0}], "link", (0, 1)),  # needs no moment
        ([waits() | GONE], "missing rank", (1,)),
        ([waits() | ANSWERED], "link", (0, 1)),  # killed with the rest
        ([waits(2) | GONE], "missing rank", (1,)),
        ([waits(2)], "link", (1,)),  # rank 0 is one ahead
        ([{}], "straggler", (1,)),
        ([waits(shape=(3,))], "different shape", (0, 1)),
        ([waits(shape=(3,)), waits()], "different shape", (1,)),
        ([ANSWERED], "straggler", (1,)),
        ([waits(2), left(2)], "straggler", (2,)),  # the third may yet come
        ([OUT | read(0)], "data ended early", (1,)),
        ([OVER | read(0)], "data ended early", (1,)),
        ([OUT | read(1)], "straggler", (1,)),
        ([OVER | read(1)], "different order", (0, 1)),
        ([OUT | read(1) | GONE], "different order", (0, 1)),
        ([left(3) | OVER | read(1)], "link", (0,)),
        ([waits(step=2) | OUT | read(1), waits(step=2)], "data ended early", (1,)),
    ],
)
def test_what_another_rank_is_when_rank_0_waits(others, cause, ranks):
    assert verdict_on(waits(), *others) == (cause, ranks)


ALONE = ("NaN on one rank", (1,))
SKIPPED = [saw(rank != 1, True, skipped=True) for rank in range(3)]


@pytest.mark.parametrize(
    "facts, verdict",
    [
        ([saw(False)] * 3, (None, ())),  # no failure of one
        ([saw(True, False), saw(False, False)], ALONE),  # the first counts
        ([saw(True, True), saw(False, True), saw(True, True)], (None, ())),  # got over
        (
            [waits(step=n) | saw(n != 1, True) for n in range(3)],
            ALONE,
        ),  # it parted them
        ([saw(True), saw(False, True), saw(True)], ALONE),  # one alone got over it
        ([saw(n != 1) | PARTED for n in range(3)], ALONE),  # it went into the sums
        ([saw(n != 1, skipped=True) | OVER for n in range(3)], (None, ())),
        # Who is missing comes first: the others' losses may be of its making.
        (
            [waits() | saw(True, True), waits(step=2) | saw(False, True), GONE],
            ("missing rank", (2,)),
        ),
        # All skipped it, and then one is slow, or parts from the others.
        (
            [SKIPPED[0] | waits(), SKIPPED[1] | waits(), SKIPPED[2]],
            ("straggler", (2,)),
        ),
        (
            [SKIPPED[n] | waits(step=3 + n // 2) for n in range(3)],
            ("different order", (2,)),
        ),
        # All are still deciding about it.
        ([saw(True) | waits(), saw(False) | waits(), saw(True)], ("straggler", (2,))),
        (
            [saw(n != 1) | waits(error="late") | LATE for n in range(2)] + [saw(True)],
            ("straggler", (2,)),
        ),
    ],
)
def test_a_nan_is_the_cause_if_it_parted_them(facts, verdict):
    assert verdict_on(*facts) == verdict


@pytest.mark.parametrize(
    "facts, cause, ranks",
    [
        ([waits() | read(1, 5), waits() | read(1, 5), waits()], "link", (0, 1, 2)),
        ([waits() | read(1, 5), read(1, 5), waits()], "straggler", (1,)),
        ([read(1, 5), read(1, 5), {}], "wrong shard", (0, 1)),
        ([read(1, 5, params=7), read(1, 6, params=7)], None, ()),  # as it should be
        ([waits() | read(1, 5), left(3) | read(1, 5) | PARTED], "wrong shard", (0, 1)),
        (
            [read(4, params=7), read(4, params=8), read(4, params=7)],
            "copies differ",
            (1,),
        ),
    ],
)
def test_what_a_job_waits_for_comes_before_what_is_merely_wrong(facts, cause, ranks):
    assert verdict_on(*facts) == (cause, ranks)


def test_each_test_holds_on_its_own_too():
    assert link(logs_of(waits(), left(2))) is None  # one has not come
    assert link(logs_of(waits(), waits(step=2))) is None
    assert straggler(logs_of(waits(), OUT | GONE)) is None
    assert straggler(logs_of(waits(0), {})).ranks == (1,)


WHERE = [{}, waits(), waits(2), waits(error="late"), waits(shape=(3,)), left(3)]
WHERE += [one | saw(n != 1, step=n) for one in (waits(), left(3)) for n in range(3)]
HOW = [{}, GONE, SILENT, ANSWERED, OUT, OVER, PARTED, LATE, KEY_ERROR]
FACTS = st.builds(dict.__or__, st.sampled_from(WHERE), st.sampled_from(HOW))


@given(st.lists(FACTS, min_size=1, max_size=6).map(lambda facts: logs_of(*facts)))
@settings(deadline=None, max_examples=300)
def test_of_any_logs_in_any_order_a_verdict_names_some_of_their_ranks(logs):
    verdict = diagnose(logs)
    assert diagnose(logs[::-1]) == verdict
    if verdict:
        assert verdict.cure == CURES[verdict.cause]
        assert {log.rank for log in logs} >= {*verdict.ranks} != set()


@pytest.mark.parametrize(
    "late, cause", [(0.0, None), (0.9 * MOMENT_S, None), (1.1 * MOMENT_S, "link")]
)
def test_a_link_is_suspected_only_a_moment_after_the_last_has_come(late, cause):
    """By each rank's own clock: the waits of the others say nothing of it."""
    call = waits()["calls"][0]
    others = [{"calls": (call._replace(entered=5.0),), "at": at} for at in (65.0, 99.0)]
    last = {"calls": (call._replace(entered=900.0),), "at": 900.0 + late}
    assert verdict_on(*others, last)[0] == verdict_on(last, *others)[0] == cause
    through = {"calls": (call._replace(entered=899.0, left=900.0),), "at": 900.5}
    assert verdict_on(others[0], through, last)[0] == cause


JOINING = {"calls": (Call(0, -1, "join", error="late", victim=True),)}


@pytest.mark.parametrize(
    "facts, told",
    [
        (
            [waits(), {"doing": "read < load"}, waits(), waits()],
            "Rank 1 had not arrived (read < load). "
            "Waiting in #3 (W, step 1): ranks 0, 2 and 3.",
        ),
        (
            [JOINING, {"status": "absent"}, JOINING],
            "Rank 1 never came. Failed in #0 (join): ranks 0 and 2.",
        ),
        (
            [waits(4), *[left(3) | OVER | read(1)] * 2],
            "Disagreement at #4: rank 0 brought W of step 1 as float32 (2,); "
            "ranks 1 and 2 brought no call. Waiting in #4 (W, step 1): rank 0.",
        ),
        (
            [waits(), waits(step=2), waits()],
            "Deadlock at #3: ranks 0 and 2 brought W of step 1 as float32 (2,); "
            "rank 1 brought W of step 2 as float32 (2,). Waiting in #3 (W, step 1): "
            "ranks 0 and 2. Waiting in #3 (W, step 2): rank 1.",
        ),
        ([read(4, params=n) for n in (7, 7, 8)], "Rank 2 had different parameters"),
    ],
)
def test_a_sentence_says_who_waits_where_and_what_the_others_do(facts, told):
    assert diagnose(logs_of(*facts)).sentence.startswith(told)


# What a rank writes down.


@pytest.mark.parametrize(
    "other", [np.ones((3, 2)), np.ones((2, 3), "f4"), np.ones(6), -np.ones((2, 3))]
)
def test_a_fingerprint_tells_shape_dtype_and_bits(other):
    one = np.ones((2, 3))
    assert fingerprint(one) == fingerprint(one.copy()) < 2**62
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one, other) != fingerprint(other, one)


def test_a_recorder_keeps_the_last_and_counts_all():
    recorder = FlightRecorder(0, keep=2)
    for _ in recorder.steps([[i] for i in range(5)]):
        recorder.note(params=7)
        with recorder.call("sum", np.ones(3, "f4")):
            assert recorder.log().open_call.number == recorder.count - 1
    log = recorder.log()
    assert [c.number for c in log.calls] == [3, 4] == [s.step for s in log.seen]
    assert [s.params for s in log.seen] == [7, 7]
    assert (log.calls[0].shape, log.calls[0].dtype) == ((3,), "float32")
    assert (log.open_call, log.comes_to, log.ended) == (None, 5, END_OF_DATA)


VICTIMS = [KeyboardInterrupt("stop"), PeerError("rank 1 hung up"), TimeoutError("late")]


@pytest.mark.parametrize("wrong", [*VICTIMS, MemoryError()])
def test_a_failed_collective_is_noted_told_and_raised(wrong):
    recorder, told = FlightRecorder(0), []
    recorder.alarm = lambda: told.append(recorder.log().open_call)
    with pytest.raises(type(wrong)), recorder.call("sum"):
        raise wrong
    [call] = told
    assert (call.error, call.victim) == (repr(wrong), wrong in VICTIMS)


def test_empty_shards_are_not_the_same_shard():
    recorder = FlightRecorder(0)
    next(recorder.steps([[]]))
    assert recorder.seen[0] == (0, 0, None, False, 0)
    assert verdict_on(read(1), read(1)) == (None, ())


def test_histories_of_calls_have_one_digest_only_if_they_are_one():
    digests = set()
    for shapes in ([(2, 3), (4,)], [(3, 2), (4,)], [(4,), (2, 3)], [(2, 3)]):
        recorder = FlightRecorder(0)
        for shape in shapes:
            with recorder.call("sum", np.ones(shape)):
                pass
        digests.add(recorder.digest)
    assert len(digests) == 4


def test_a_log_says_where_the_program_is():
    def busy_function() -> FlightLog:
        return recorder.log()

    recorder = FlightRecorder(0)
    assert "busy_function < test_a_log_says" in busy_function().doing


def test_a_table_of_fingerprints_is_read():
    fine = np.array([[1, 2, 1, 5, 0], [1, 2, 1, 6, 0], [1, 2, 1, 7, 8]])
    assert differences(fine) == []  # two read nothing in the second step
    names = "the calls", "the parameters", "a finite loss", "a shard for each"
    for column, value in enumerate([9, 9, 0, 5]):
        rows = fine.copy()
        rows[1, column] = value
        assert differences(rows) == [names[column]]


# Speaking with the collector.


@pytest.mark.parametrize(
    "fact",
    [np.isfinite(1.0), tf.math.is_finite(1.0), tf.Variable(True), np.array([True])],
)
def test_a_log_arrives_as_it_was_sent_with_facts_as_plain_values(fact):
    recorder = FlightRecorder(np.int64(3))
    for _ in recorder.steps([[1], [2]]):
        recorder.note(finite=fact, params=2**61)
        with recorder.call("sum", np.ones((2, 3))):
            log = recorder.log()
    assert log.seen[-1].finite is True
    assert as_log(*json.loads(json.dumps(log))) == log


def test_an_error_of_any_length_can_be_told():
    recorder, long = FlightRecorder(0), "x" * 2 * MOST_TOLD
    with pytest.raises(MemoryError), recorder.call("sum"):
        raise MemoryError(long)
    recorder.ended = long
    with pair() as (one, other):
        tell(one, ["alarm", recorder.log()], SECRET)
        word, written = hear(other, SECRET)
    log = as_log(*written)
    assert log.open_call.error.startswith("MemoryError('xxx")
    assert (word, log.ended[:3]) == ("alarm", "xxx")


def test_a_false_seal_is_refused_and_so_is_a_long_message():
    with pair() as (one, other):
        tell(one, "hello", bytes(32))
        with pytest.raises(ValueError, match="seal"):
            hear(other, SECRET)
        one.sendall((MOST_TOLD + 1).to_bytes(4, "big"))
        with pytest.raises(ValueError, match=f"at most {MOST_TOLD} bytes, got"):
            hear(other, SECRET)


def until(collector: Collector, reached: Callable[[], bool]) -> None:
    """Listen until this holds."""
    end = time.monotonic() + LONG
    while not reached():
        assert time.monotonic() < end, "it never did"
        collector.listen(1)


def test_the_patience_of_a_rank_in_a_collective_ends_in_a_call_for_help():
    recorder = FlightRecorder(0)
    with Collector(2, SECRET) as collector:
        reporter = Reporter(recorder, 2, collector.address, SECRET, patience_s=0.1)
        with recorder.call("sum", np.ones(2)):
            verdict, logs = next(collector.watch())  # while it still hangs
        assert [log.status for log in logs] == ["answers", "absent"]
        assert logs[0].open_call.name == "sum"
        assert verdict[:2] == ("missing rank", (1,))
        assert recorder.asked.wait(LONG)
        reporter.close()
        verdict, logs = list(collector.watch(0.1))[-1]
        assert [log.status for log in logs] == ["answered", "absent"]
        assert verdict[:2] == ("missing rank", (1,))


def test_a_rank_calls_for_help_whenever_its_patience_is_over_once_more(monkeypatch):
    """By a clock that goes on only while it waits for a question."""
    recorder, now, calls = FlightRecorder(0), [0.0], []
    moments = iter((0.019, 0.03, 0.039, 0.05))

    def nobody_asks(*_: object) -> bool:
        now[0] = next(moments, None)
        if now[0] is None:
            raise EOFError
        return False

    monkeypatch.setattr(step_hangs, "wait", nobody_asks)
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(step_hangs, "time", clock)
    rank = SimpleNamespace(recorder=recorder, sock=nullcontext(), patience_s=0.02)
    rank.report = lambda word: calls.append((word, now[0]))
    with recorder.call("sum"):
        Reporter.keep_answering(rank)
    assert calls == [("alarm", 0.03), ("alarm", 0.05)]


class Line:
    """The connection of a rank that is spoken for by hand."""

    def __init__(self, collector: Collector, rank: int, word: str = "here") -> None:
        size = len(collector.logs)
        me = rank, size, SECRET, Deadline(LONG)
        self.sock, self.key = knock(collector.address, *me)
        self.close = self.sock.close
        self.tell(word, 0, FlightLog(rank, calls=waits()["calls"]))

    def tell(self, *message) -> None:
        tell(self.sock, message, self.key)

    def hear(self):
        return hear(self.sock, self.key)


def line_of(collector: Collector, rank: int, word: str = "here") -> Line:
    """The line of a rank that says one word, which has arrived, and no more."""
    line = Line(collector, rank, word)
    until(collector, lambda: collector.logs[rank].status != "absent")
    return line


@contextmanager
def soon(work: Callable, *arguments: object, after_s: float = 0.1) -> Iterator[None]:
    """Something happens in a thread while the block is under way, or after it."""
    thread = threading.Timer(after_s, work, arguments)
    thread.start()
    yield
    thread.join()


@pytest.fixture
def briefly(monkeypatch):
    """Who says nothing for a moment is silent."""
    monkeypatch.setattr(step_hangs, "TALK_S", 0.3)


def statuses(logs: list[FlightLog]) -> list[str]:
    return [log.status for log in logs]


def test_who_does_not_answer_is_silent_and_who_hangs_up_is_gone(briefly):
    with Collector(2, SECRET) as collector:
        line = line_of(collector, 1)
        assert statuses(collector.ask()) == ["absent", "silent"]
        line.close()
        until(collector, lambda: not collector.lines)
        assert collector.logs[1].status == "gone"
        assert collector.logs[1].open_call.number == 3  # what it said last stays


def test_a_late_answer_to_an_old_question_is_not_one_to_the_new(briefly):
    with Collector(1, SECRET) as collector, closing(line_of(collector, 0)) as line:
        collector.ask()
        assert line.hear() == 1
        with soon(line.tell, "answer", 1, FlightLog(0, ended="late")):
            [log] = collector.ask()
        assert (log.status, log.ended, line.hear()) == ("silent", "late", 2)


def test_who_ends_after_its_answer_is_no_cause_until_somebody_asks_again():
    with Collector(1, SECRET) as collector:
        line = line_of(collector, 0)
        with soon(line.tell, "answer", 1, FlightLog(0)):
            assert statuses(collector.ask()) == ["answers"]
        line.close()
        until(collector, lambda: not collector.lines)
        assert collector.logs[0].status == "answered"
        assert statuses(collector.ask()) == ["gone"]


def test_a_call_for_help_while_others_are_asked_is_not_lost(briefly):
    with Collector(2, SECRET) as collector, closing(Line(collector, 0, "alarm")):
        verdicts, lines = collector.watch(), []
        with soon(lambda: lines.append(Line(collector, 1, "alarm"))):
            assert next(verdicts)[0] is not None
        assert statuses(next(verdicts)[1]) == ["silent", "silent"]
        lines[0].close()


def test_watching_ends_when_all_came_and_went_not_when_the_first_has():
    with Collector(2, SECRET) as collector:
        line_of(collector, 0).close()
        with soon(lambda: Line(collector, 1).close(), after_s=0.3):
            [(_, logs)] = collector.watch()
        assert statuses(logs) == ["gone", "gone"]


def test_watching_ends_some_time_after_a_call_for_help_and_can_go_on():
    with Collector(1, SECRET) as collector:
        with closing(line_of(collector, 0, "alarm")) as line:
            with soon(line.tell, "answer", 1, FlightLog(0)):
                assert len(list(collector.watch(0.5))) == 2
            hang_up(line.sock)
            [(_, logs)] = collector.watch()
        assert statuses(logs) == ["answered"]


def test_watching_ends_when_nobody_calls_and_nobody_gets_further():
    """Such as where all are in code of their own that never ends."""
    recorder = FlightRecorder(0)
    with Collector(1, SECRET) as collector:
        me = recorder, 1, collector.address, SECRET, LONG
        with closing(Reporter(*me)) as reporter:
            hangs_up = threading.Timer(20, reporter.close)  # else the test has no end
            hangs_up.start()
            [(_, [log])] = collector.watch(0.2)
            hangs_up.cancel()
    assert log.status == "answers"  # it has not hung up


def test_watching_goes_on_while_a_rank_gets_further():
    recorder, limit_s, enough = FlightRecorder(0), 0.2, threading.Event()

    def work(reporter: Reporter) -> None:
        for _ in range(20):  # five times as long as what would end it
            with recorder.call("sum"):
                time.sleep(limit_s / 4)
        enough.set()
        reporter.close()

    with Collector(1, SECRET) as collector:
        reporter = Reporter(recorder, 1, collector.address, SECRET, LONG)
        with soon(work, reporter, after_s=0):
            *_, (_, [log]) = collector.watch(limit_s)
            assert enough.is_set()
    assert log.comes_to == 20 and log.status in ("answered", "gone")


def test_a_call_for_help_that_comes_while_nobody_needs_help_still_counts(briefly):
    with Collector(1, SECRET) as collector, closing(Line(collector, 0, "alarm")) as one:
        until(collector, lambda: collector.alarm)
        with soon(one.tell, "answer", 1, FlightLog(0)):
            collector.ask(routine=True)
        assert collector.alarm and not collector.stands_still()
        with soon(one.tell, "answer", 3, FlightLog(0)):
            collector.ask()
        assert not collector.alarm


PAGE = Path(__file__).parents[4] / "book" / "beyond" / "step-hangs.ipynb"


def test_the_pages_threads_end_though_one_is_not_let_in():
    """Before, it never hung up, and the collector waited for it without end."""

    def let_in(door, addresses):
        if door.rank == 1:
            raise PeerError("rank 2, the right neighbour: not within 60 s")
        return join_ring(door, addresses, 1.0)

    cells = json.loads(PAGE.read_text(encoding="utf-8"))["cells"]
    sources = map("".join, (cell["source"] for cell in cells))
    [cell] = [source for source in sources if "def by_threads(" in source]
    names = vars(failing_job) | vars(step_hangs)
    names |= {"join_ring": let_in, "closing": closing}
    exec(cell, names := names | {"ThreadPoolExecutor": ThreadPoolExecutor})
    found, done = within(LONG, names["by_threads"], failing_job.Failure())
    assert found[-1] is not None and done == [False] * 3


# Who else comes, and what else is said.


def test_who_is_no_rank_is_turned_away():
    with Collector(2, SECRET) as collector:
        with pytest.raises((OSError, EOFError)):
            knock(collector.address, 5, 2, SECRET, Deadline(0.5))
        said = collector.door.turned_away[0]
        assert "it is rank 5 of 2, expected rank 0 or 1" in said
        assert not collector.lines


def test_more_files_than_select_can_count_are_no_trouble(monkeypatch):
    resource, fcntl = map(pytest.importorskip, ("resource", "fcntl"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("this system has no more")

    def knock_from_above(*who) -> tuple:
        sock, key = knock(*who)
        with sock:
            number = fcntl.fcntl(sock, fcntl.F_DUPFD, 1100)
        return socket.socket(fileno=number), key

    monkeypatch.setattr(step_hangs, "knock", knock_from_above)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    try:
        with Collector(1, SECRET) as collector:
            me = FlightRecorder(0), 1, collector.address, SECRET, LONG
            with closing(Reporter(*me)):
                until(collector, lambda: collector.logs[0].status != "absent")
                assert statuses(collector.ask()) == ["answers"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_one_that_stops_in_mid_message_holds_nobody_up():
    with (
        Collector(2, SECRET) as collector,
        closing(line_of(collector, 1)) as stopped,
        closing(line_of(collector, 0)) as line,
    ):
        stopped.sock.sendall(b"\0\0")
        line.tell("alarm", 0, FlightLog(0))
        until(collector, lambda: collector.alarm)
        assert set(collector.lines) == {0, 1}  # it has not been waited for


def test_of_two_lines_of_a_rank_the_newer_counts():
    with Collector(1, SECRET) as collector:
        old = line_of(collector, 0)
        with closing(Line(collector, 0, "alarm")):
            until(collector, lambda: collector.alarm)
            old.tell("here", 0, FlightLog(0, ended="of the old one"))
            old.close()
            assert collector.listen(1) and collector.listen(1)
            assert (collector.logs[0].status, collector.logs[0].ended) == (
                "answers",
                "",
            )


FALSE_CALLS, OF_ANOTHER = FlightLog(0, calls=[[1, 2, 3]]), FlightLog(1)


@pytest.mark.parametrize(
    "message",
    [None, ["here", 0], *(["here", 0, log] for log in ([0], FALSE_CALLS, OF_ANOTHER))],
)
def test_what_another_version_says_ends_its_line_and_is_no_death_without_a_word(
    message,
):
    with Collector(1, SECRET) as collector, closing(line_of(collector, 0)) as line:
        tell(line.sock, message, line.key)
        [(verdict, logs)] = collector.watch()
        assert statuses(logs) == ["gone"]
        assert "its log can't be read: " in verdict.sentence


def test_without_a_collector_training_goes_on():
    recorder = FlightRecorder(0)
    with Collector(1, SECRET) as collector:
        reporter = Reporter(recorder, 1, collector.address, SECRET, LONG)
    for _ in recorder.steps([[0]] * 3):
        reporter.report("alarm")
    reporter.close()
    assert [seen.step for seen in recorder.seen] == [0, 1, 2]
    assert recorder.ended == END_OF_DATA
