"""The flight recorder: what it notes, who may speak, and the verdicts on thousands of
jobs that go wrong. Real processes are in tests/unit/bench/test_rehearsal.py."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.beyond import step_hangs
from manygpu.scratch.beyond.step_hangs import (
    CURES,
    DISAGREED,
    DONE,
    END_OF_DATA,
    EVERY,
    KINDS,
    MOST_TOLD,
    Call,
    Collector,
    FlightLog,
    FlightRecorder,
    Reporter,
    Seen,
    Verdict,
    as_log,
    ask,
    diagnose,
    fingerprint,
    hear,
    in_what_they_differ,
    listen,
    log_of,
    named,
    odd_ones,
    tell,
    watch,
)

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
RINGS = ["order", "shape", "transposed", "dies", "slow", "NaN", "shard", "short"]

# Jobs in one process: a rank is a generator that stops in each collective, and goes on
# when all have come. What a collective can't see, it lets pass, as a socket does: only
# the number of bytes counts.


def program(job: dict, recorder: FlightRecorder) -> Iterator[str]:
    """What a rank does, with the mishap of the job if it is this rank's."""
    kind = job["kind"] if recorder.rank == job["rank"] else ""
    reads = (recorder.rank + (kind == "shard")) % job["size"]
    steps = job["step"] if kind == "short" else job["steps"]
    shards = [[1000 * step + reads] for step in range(steps)]
    for _ in recorder.steps(shards):
        step = recorder.seen[-1].step
        now = kind if step == job["step"] else ""
        if now in ("dies", "slow"):
            yield now
        recorder.note(finite=now != "NaN")
        if now == "NaN":
            continue
        calls = list(enumerate(job["shapes"]))
        for i, shape in calls[::-1] if now == "order" else calls:
            shape = (*shape, 2) if kind == "shape" and i == 0 else shape
            shape = shape[::-1] if kind == "transposed" else shape
            with recorder.call(f"gradient {i}", np.empty(shape)):
                yield "waits"
        if step % EVERY == EVERY - 1:
            with recorder.call("fingerprints", np.empty(99)):
                yield "compares"
    with recorder.call("last", np.empty(())):
        yield "waits"
    recorder.ended = DONE


def row(recorder: FlightRecorder) -> list[int]:
    recent = recorder.seen[-EVERY:]
    finite = all(s.finite for s in recent)
    return [recorder.digest, 1, finite, *(s.shard for s in recent)]


def meet(recorders: dict[int, FlightRecorder], state: dict[int, str]) -> bool:
    """All have come: whether they go on."""
    sizes = {int(np.prod(r.calls[-1].shape)) for r in recorders.values()}
    if len(sizes) > 1:
        return False
    if set(state.values()) != {"compares"}:
        return True
    rows = [row(r) for r in recorders.values()]
    if len({len(r) for r in rows}) == 1 and not in_what_they_differ(np.array(rows)):
        return True
    for recorder in recorders.values():
        done = recorder.calls[-1]._replace(left=1.0)
        recorder.calls, recorder.ended = (*recorder.calls[:-1], done), DISAGREED
    return False


def logs_after(job: dict, moves: int = 10**6) -> list[FlightLog]:
    """The logs of all ranks when nobody can move any more, or after so many moves."""
    draw, size = random.Random(job["seed"]), job["size"]
    there = [r for r in range(size) if (job["kind"], job["rank"]) != ("never", r)]
    recorders = {rank: FlightRecorder(rank) for rank in there}
    running = {rank: program(job, recorders[rank]) for rank in there}
    state = dict.fromkeys(there, "free")
    for _ in range(moves):
        free = [rank for rank in there if state[rank] == "free"]
        if free:
            rank = draw.choice(free)
            state[rank] = next(running[rank], "ended")
        elif set(state.values()) <= {"waits", "compares"} and len(there) == size:
            if not meet(recorders, state):
                break
            state = dict.fromkeys(there, "free")
        else:
            break
    gone = {"dies": "gone", "ended": "gone"}
    logs = [FlightLog(rank, "absent") for rank in range(size)]
    for rank in there:
        logs[rank] = log_of(recorders[rank])
        if state[rank] == "dies":
            logs[rank] = FlightLog(rank)  # nobody could ask it
        logs[rank] = logs[rank]._replace(status=gone.get(state[rank], "answers"))
    draw.shuffle(logs)
    return logs


SHAPES = st.lists(
    st.tuples(st.integers(2, 4), st.integers(5, 7)), min_size=2, max_size=3
)


@st.composite
def jobs(draw, kinds=(*RINGS, "never")) -> dict:
    size, steps = draw(st.integers(2, 6)), draw(st.integers(EVERY, 8))
    rank, step = draw(st.integers(0, size - 1)), draw(st.integers(0, steps - 1))
    return {
        "kind": draw(st.sampled_from(kinds)),
        "size": size,
        "steps": steps // EVERY * EVERY,  # what is silent shows at the last comparison
        "rank": rank,
        "step": min(step, steps // EVERY * EVERY - 1),
        "shapes": draw(SHAPES),
        "seed": draw(st.integers(0, 2**32)),
    }


@given(jobs())
@settings(deadline=None, max_examples=500)
def test_each_mishap_is_named_whenever_whoever_wherever(job):
    verdict = diagnose(logs_after(job))
    named_as = {**KINDS, "never": "missing rank", "short": "data ended early"}
    assert verdict.cause == named_as[job["kind"]], verdict
    guilty = {job["rank"]}
    if job["kind"] == "shard":
        guilty.add((job["rank"] + 1) % job["size"])
    elif job["size"] == 2 and verdict.cause in ("another order", "another shape"):
        guilty = {0, 1}  # one says this, one says that
    assert set(verdict.ranks) == guilty
    assert verdict.sentence.endswith(".")
    assert verdict.cure == CURES[verdict.cause]


@given(jobs(kinds=("",)), st.integers(0, 300))
@settings(deadline=None, max_examples=100)
def test_a_healthy_job_is_at_most_waited_for_at_any_moment(job, moves):
    verdict = diagnose(logs_after(job, moves))
    assert verdict is None or verdict.cause in ("straggler", "link")
    assert diagnose(logs_after(job)) is None


# Verdicts that need no simulation.


def waits(number: int = 3, error: str = "", step: int = 1) -> dict:
    return {"calls": (Call(number, step, "W", (2,), "float32", error=error),)}


def logs_of(*facts: dict) -> list[FlightLog]:
    return [FlightLog(rank, **own) for rank, own in enumerate(facts)]


@pytest.mark.parametrize(
    "others, cause, ranks",
    [
        ([{"status": "gone"}], "missing rank", (1,)),
        ([{"status": "silent"}], "missing rank", (1,)),
        ([{"status": "gone"}, {"status": "absent"}], "missing rank", (1, 2)),
        ([{"ended": "KeyError: 'x'", "status": "gone"}], "missing rank", (1,)),
        ([{"ended": "KeyError: 'x'"}], "missing rank", (1,)),
        ([waits(error="hung up") | {"status": "gone"}], "link", (0, 1)),
        ([waits(error="no") | {"ended": "no", "status": "gone"}], "link", (0, 1)),
        ([{"ended": DONE, "status": "gone"}], None, ()),
        ([waits(2) | {"status": "gone"}], "missing rank", (1,)),
        ([waits(2)], None, ()),  # it is in a collective of its own
        ([{}], "straggler", (1,)),
        ([{"ended": END_OF_DATA, "seen": (Seen(0),)}], "data ended early", (1,)),
        ([{"ended": END_OF_DATA, "seen": (Seen(1),)}], None, ()),
    ],
)
def test_what_another_rank_is_when_rank_0_waits(others, cause, ranks):
    verdict = diagnose(logs_of(waits(), *others))
    assert (verdict and verdict.cause, verdict.ranks if verdict else ()) == (
        cause,
        ranks,
    )


@pytest.mark.parametrize("bad", range(3))
def test_a_copy_that_differs_is_named(bad):
    logs = logs_of(*({"seen": (Seen(4, params=7 + (r == bad)),)} for r in range(3)))
    assert diagnose(logs)[:2] == ("copies differ", (bad,))
    assert "After step 4" in diagnose(logs).sentence


def test_a_nan_that_all_see_is_no_mishap_of_one():
    assert diagnose(logs_of(*[{"seen": (Seen(0, finite=False),)}] * 3)) is None


def test_the_first_nan_is_named_not_those_that_follow():
    seen = [Seen(2, finite=True), Seen(3, finite=False)]
    first = [Seen(2, finite=False), Seen(3, finite=False)]
    logs = logs_of({"seen": tuple(seen)}, {"seen": tuple(first)})
    assert diagnose(logs)[:2] == ("NaN on one rank", (1,))


def test_a_nan_that_all_got_over_is_none():
    after = Seen(3, finite=True)
    seen = [(Seen(2, finite=fine), after) for fine in (True, False, True)]
    assert diagnose(logs_of(*({"seen": own} for own in seen))) is None
    apart = [waits(step=rank) | {"seen": own} for rank, own in enumerate(seen)]
    assert diagnose(logs_of(*apart))[:2] == ("NaN on one rank", (1,))
    alone = [{"seen": own[: 1 + (r == 1)]} for r, own in enumerate(seen)]
    assert diagnose(logs_of(*alone))[:2] == ("NaN on one rank", (1,))


def test_a_sentence_says_who_waits_where_and_what_a_straggler_does():
    busy = {"doing": "read < load"}
    told = diagnose(logs_of(waits(), busy, waits())).sentence
    assert told == (
        "Rank 1 is at work (read < load); ranks 0 and 2 wait in #3 (W, step 1)."
    )


@pytest.mark.parametrize(
    "ranks, words",
    [([4], "rank 4 waits"), ([2, 0], "ranks 0 and 2 wait"), ([1, 2, 3], "1, 2 and 3")],
)
def test_ranks_in_words(ranks, words):
    assert words in named(ranks, "wait")


@pytest.mark.parametrize(
    "found, odd",
    [
        ("aab", (2,)),
        ("ab", (0, 1)),
        ("aabb", (0, 1, 2, 3)),
        ("a", ()),
        ("abca", (1, 2)),
    ],
)
def test_the_odd_ones(found, odd):
    assert odd_ones(dict(enumerate(found))) == odd


@pytest.mark.parametrize("ranks", [[], [1], [0, 0], [0, 2]])
def test_a_diagnosis_needs_the_log_of_each_rank(ranks):
    with pytest.raises(ValueError, match=r"one log of each rank from 0, got \["):
        diagnose([FlightLog(rank) for rank in ranks])


def test_each_cause_has_a_cure():
    assert set(KINDS.values()) < set(CURES)
    assert Verdict("link", (0,), "").cure == CURES["link"]


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
        with recorder.call("sum", np.ones(3, "f4")):
            assert log_of(recorder).waits.number == recorder.count - 1
    log = log_of(recorder)
    assert [c.number for c in log.calls] == [3, 4] == [s.step for s in log.seen]
    assert (log.calls[0].shape, log.calls[0].dtype) == ((3,), "float32")
    assert (log.waits, log.comes_to, log.ended) == (None, 5, END_OF_DATA)


def test_a_failed_collective_is_noted_told_and_raised():
    recorder, told = FlightRecorder(0), []
    recorder.alarm = lambda: told.append(log_of(recorder).waits.error)
    with pytest.raises(KeyboardInterrupt), recorder.call("sum"):
        raise KeyboardInterrupt("stop")
    assert told == ["stop"]


@pytest.mark.parametrize("keep, error", [(0, ValueError), (1.5, TypeError)])
def test_a_recorder_keeps_at_least_one(keep, error):
    with pytest.raises(error, match="keep must be"):
        FlightRecorder(0, keep)


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
        return log_of(recorder)

    recorder = FlightRecorder(0)
    assert "busy_function < test_a_log_says" in busy_function().doing


@pytest.mark.parametrize(
    "place, value, said",
    [
        ((1, 0), 9, "the calls"),
        ((1, 1), 9, "the parameters"),
        ((1, 2), 0, "a finite loss"),
        ((1, 4), 8, "a shard of one's own"),
    ],
)
def test_a_table_of_fingerprints_is_read(place, value, said):
    rows = np.array([[1, 2, 1, 5, 8], [1, 2, 1, 6, 9], [1, 2, 1, 7, 10]])
    assert in_what_they_differ(rows) == []
    rows[place] = value
    assert in_what_they_differ(rows) == [said]


# Speaking with the collector.


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_a_log_arrives_as_it_was_sent():
    recorder = FlightRecorder(3)
    for _ in recorder.steps([[1], [2]]):
        recorder.note(finite=True, params=2**61)
        with recorder.call("sum", np.ones((2, 3))):
            log = log_of(recorder)
    assert as_log(*json.loads(json.dumps(log))) == log
    with pair() as (one, other):
        tell(one, ["alarm", log], KEY)
        word, written = hear(other, KEY)
    assert (word, as_log(*written)) == ("alarm", log)


def test_a_false_seal_is_refused_and_so_is_a_long_message():
    with pair() as (one, other):
        tell(one, "hello", OTHER_KEY)
        with pytest.raises(ValueError, match="seal"):
            hear(other, KEY)
        one.sendall((MOST_TOLD + 1).to_bytes(4, "big"))
        with pytest.raises(ValueError, match=f"at most {MOST_TOLD} bytes, got"):
            hear(other, KEY)


def until(collector: Collector, word: str) -> None:
    """Listen until somebody says this."""
    end = time.monotonic() + 60
    while word not in [said for _, said in listen(collector, 1)]:
        assert time.monotonic() < end, f"nobody said {word}"


def test_the_patience_of_a_rank_in_a_collective_ends_in_a_call_for_help():
    recorder = FlightRecorder(0)
    with Collector(2, KEY) as collector:
        reporter = Reporter(recorder, collector.address, KEY, patience_s=0.1)
        with recorder.call("sum", np.ones(2)):
            until(collector, "alarm")
            logs = ask(collector)
        assert [log.status for log in logs] == ["answers", "absent"]
        assert logs[0].waits.name == "sum"
        assert recorder.asked.wait(60)
        reporter.close()
        verdict, logs = watch(collector)[-1]
        assert [log.status for log in logs] == ["gone", "absent"]
        assert verdict[:2] == ("missing rank", (0, 1))


def test_who_does_not_answer_is_silent_and_who_hangs_up_is_gone(monkeypatch):
    monkeypatch.setattr(step_hangs, "TALK_S", 0.3)
    with Collector(2, KEY) as collector:
        line = socket.create_connection(collector.address)
        tell(line, ["here", FlightLog(1, calls=waits()["calls"])], KEY)
        listen(collector, 60)
        assert [log.status for log in ask(collector)] == ["absent", "silent"]
        line.close()
        until(collector, "gone")
        assert collector.logs[1].status == "gone"
        assert collector.logs[1].waits.number == 3  # what it said last stays


def test_a_stranger_is_nobody():
    with Collector(1, KEY) as collector:
        stranger = socket.create_connection(collector.address)
        tell(stranger, ["here", FlightLog(0)], OTHER_KEY)
        listen(collector, 60)
        assert collector.logs[0].status == "absent"
        assert collector.lines == {}
        stranger.close()


def test_without_a_collector_training_goes_on():
    recorder = FlightRecorder(0)
    with Collector(1, KEY) as collector:
        reporter = Reporter(recorder, collector.address, KEY, 60.0)
    for _ in range(3):
        reporter.report("alarm")
    reporter.close()
