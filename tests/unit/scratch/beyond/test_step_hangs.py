"""The flight recorder: what it notes, who may speak, and the verdicts on thousands of
jobs that go wrong. Real processes are in tests/unit/backstage/test_rehearsal.py."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.scratch.beyond import many_workers, step_hangs
from manygpu.scratch.beyond.many_workers import (
    Deadline,
    Door,
    PeerError,
    join_ring,
    knock,
)
from manygpu.scratch.beyond.step_hangs import (
    CURES,
    DISAGREED,
    DONE,
    END_OF_DATA,
    EVERY,
    KINDS,
    MOMENT_S,
    MOST_TOLD,
    STEPS,
    Call,
    Collector,
    DisagreementError,
    FlightLog,
    FlightRecorder,
    Mishap,
    Reporter,
    Seen,
    Verdict,
    as_log,
    compare_fingerprints,
    diagnose,
    fingerprint,
    hang_up,
    hear,
    in_what_they_differ,
    link,
    named,
    odd_ones,
    straggler,
    tell,
    train_watched,
)

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
CAUSES = KINDS | {  # of what else a rank of the jobs below may do
    "short": "data ended early",
    "never": "missing rank",
    "breaks": "missing rank",
    "mute": "silent rank",
    "stuck": "link",
    "extra": "another order",
}
MISHAPS = sorted(CAUSES.keys() - {"short data", "never comes"})

# Jobs in one process: a rank is a generator that stops in each collective, and goes on
# when all have come. What a collective can't see, it lets pass, as a socket does: only
# the number of bytes counts.


def program(job: dict, recorder: FlightRecorder) -> Iterator[str]:
    """What a rank does, with the mishap of the job if it is this rank's."""
    kind = job["kind"] if recorder.rank == job["rank"] else ""
    reads = (recorder.rank + (kind == "shard")) % job["size"]
    steps = job["step"] if kind == "short" else job["steps"]
    shards = [[1000 * step + reads] for step in range(steps)]
    for step, _ in enumerate(recorder.steps(shards)):
        now = kind if step == job["step"] else ""
        if now in ("dies", "slow", "mute"):
            yield now
        sees_nan = now == "NaN" or (step, recorder.rank) == job["cured"]
        recorder.note(finite=not sees_nan)
        skip = sees_nan
        if job["cured"]:
            with recorder.call("flag", np.empty(1)):
                yield "waits"
            skip = step == job["cured"][0]  # on all of them
            recorder.note(skipped=skip)
        yield from () if skip else gradients(job, recorder, kind, now)
        if step % EVERY == EVERY - 1:
            recorder.note(params=7 + (kind == "writes" and step >= job["step"]))
            with recorder.call("fingerprints", np.empty(99)):
                yield "compares"
    with recorder.call("last", np.empty(())):
        yield "waits"
    if kind == "extra":
        with recorder.call("once more", np.empty(())):
            yield "waits"
    recorder.ended = DONE


def gradients(job: dict, recorder: FlightRecorder, kind: str, now: str) -> Iterator:
    """A step's collectives."""
    calls = list(enumerate(job["shapes"]))
    for i, shape in calls[::-1] if now == "order" else calls:
        shape = (*shape, 2) if kind == "shape" and i == 0 else shape
        shape = shape[::-1] if kind == "transposed" else shape
        with recorder.call(f"gradient {i}", np.empty(shape)):
            if now == "breaks" and i == 0:
                raise MemoryError
            yield "waits"
            if now == "stuck" and i == 0:
                yield "stuck"  # all have come, and some have left


def row(recorder: FlightRecorder) -> list[int]:
    recent = recorder.seen[-EVERY:]
    finite = all(s.finite or s.skipped for s in recent)
    return [recorder.digest, recent[-1].params, finite, *(s.shard for s in recent)]


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


def play(job: dict, moves: int) -> tuple[dict, dict, dict]:
    """Let the ranks go on, in an order drawn, until nobody can, or so many moves."""
    draw, size = random.Random(job["seed"]), job["size"]
    there = [r for r in range(size) if (job["kind"], job["rank"]) != ("never", r)]
    recorders = {rank: FlightRecorder(rank) for rank in there}
    running = {rank: program(job, recorders[rank]) for rank in there}
    state = dict.fromkeys(there, "free")
    for _ in range(moves):
        free = [rank for rank in there if state[rank] == "free"]
        if free:
            rank = draw.choice(free)
            try:
                state[rank] = next(running[rank], "ended")
            except MemoryError as wrong:
                state[rank], recorders[rank].ended = "ended", repr(wrong)
        elif set(state.values()) <= {"waits", "compares"} and len(there) == size:
            if not meet(recorders, state):
                break
            state = dict.fromkeys(there, "free")
        else:
            break
    return recorders, running, state


def logs_after(job: dict, moves: int = 10**6) -> list[FlightLog]:
    """The logs of all ranks then, or after what happens to those that wait.

    job["then"]: "hangs", nothing; "fails", a neighbour fails them; "killed", their
    launcher ends them, after they have answered.
    """
    recorders, running, state = play(job, moves)
    logs = [FlightLog(rank, "absent") for rank in range(job["size"])]
    gone = {"dies": "gone", "ended": "gone", "mute": "silent"}
    for rank, recorder in recorders.items():
        if job["then"] == "fails" and state[rank] in ("waits", "compares", "stuck"):
            with suppress(PeerError, StopIteration):
                if recorder.calls[-1].left is None:
                    running[rank].throw(PeerError("it hung up"))
            recorder.ended = recorder.ended or "PeerError"
            state[rank] = "ended"
        logs[rank] = recorder.log()
        if state[rank] == "dies":
            logs[rank] = FlightLog(rank)  # nobody could ask it
        status = gone.get(state[rank], "answers")
        if job["then"] == "killed" and status == "answers":
            status = "answered"
        later = logs[rank].at + job.get("later", 60.0)  # they have waited for a while
        logs[rank] = logs[rank]._replace(status=status, at=later)
    random.Random(job["seed"]).shuffle(logs)
    return logs


SHAPES = st.lists(
    st.tuples(st.integers(2, 4), st.integers(5, 7)), min_size=2, max_size=3
)


@st.composite
def jobs(draw, kinds=MISHAPS) -> dict:
    size, steps = draw(st.integers(2, 8)), draw(st.integers(EVERY, 8))
    steps = steps // EVERY * EVERY  # what is silent shows at the last comparison
    job = {
        "kind": draw(st.sampled_from(kinds)),
        "size": size,
        "steps": steps,
        "rank": draw(st.integers(0, size - 1)),
        "step": draw(st.integers(0, steps - 1)),
        "shapes": draw(SHAPES),
        "seed": draw(st.integers(0, 2**32)),
        "then": draw(st.sampled_from(["hangs", "fails", "killed"])),
        "cured": None,
    }
    if job["kind"] != "NaN" and draw(st.booleans()):  # some rank's NaN, dealt with
        step, rank = draw(st.integers(0, steps - 1)), draw(st.integers(0, size - 1))
        if step != job["step"]:
            job["cured"] = step, rank
    return job


@given(jobs())
@settings(deadline=None, max_examples=300)
def test_each_mishap_is_named_whenever_whoever_wherever(job):
    verdict = diagnose(logs_after(job))
    assert verdict.cause == CAUSES[job["kind"]], verdict
    guilty = {job["rank"]}
    if job["kind"] == "shard":
        guilty.add((job["rank"] + 1) % job["size"])
    elif job["size"] == 2 and verdict.cause[:7] in ("another", "copies "):
        guilty = {0, 1}  # one says this, one says that
    assert set(verdict.ranks) == guilty
    assert verdict.sentence.endswith(".")
    assert verdict.cure == CURES[verdict.cause]


@given(jobs(kinds=("",)), st.integers(0, 300))
@settings(deadline=None, max_examples=100)
def test_a_healthy_job_is_at_most_waited_for_at_any_moment(job, moves):
    job = job | {"then": "hangs", "later": 0.0}
    verdict = diagnose(logs_after(job, moves))
    assert verdict is None or verdict.cause == "straggler"
    assert diagnose(logs_after(job)) is None


@given(jobs(), st.integers(0, 300))
@settings(deadline=None, max_examples=100)
def test_before_all_have_come_to_wait_a_verdict_may_be_premature_but_not_absurd(
    job, moves
):
    verdict = diagnose(logs_after(job | {"then": "hangs"}, moves))
    early = (None, "straggler", "link", CAUSES[job["kind"]])
    assert (verdict and verdict.cause) in early


# Verdicts that need no simulation.


def waits(number: int = 3, error: str = "", step: int = 1, victim: bool = True) -> dict:
    call = Call(number, step, "W", (2,), "float32", error=error)
    return {"calls": (call._replace(victim=victim and bool(error)),)}


def left(number: int) -> dict:
    return {"calls": (waits(number)["calls"][0]._replace(left=1.0),)}


def logs_of(*facts: dict) -> list[FlightLog]:
    return [FlightLog(rank, **{"at": 60.0} | own) for rank, own in enumerate(facts)]


@pytest.mark.parametrize(
    "others, cause, ranks",
    [
        ([{"status": "gone"}], "missing rank", (1,)),
        ([{"status": "silent"}], "silent rank", (1,)),
        ([{"status": "silent"}, {"status": "gone"}], "missing rank", (2,)),
        ([{"status": "gone"}, {"status": "absent"}], "missing rank", (1, 2)),
        ([{"ended": "KeyError: 'x'", "status": "gone"}], "missing rank", (1,)),
        ([{"ended": "KeyError: 'x'"}], "missing rank", (1,)),
        ([waits(error="no memory", victim=False)], "missing rank", (1,)),
        ([waits(error="hung up") | {"status": "gone"}], "link", (0, 1)),
        ([waits(error="no") | {"ended": "no", "status": "gone"}], "link", (0, 1)),
        ([waits() | {"status": "gone"}], "missing rank", (1,)),
        ([waits() | {"status": "answered"}], "link", (0, 1)),  # killed with the rest
        ([waits(2) | {"status": "gone"}], "missing rank", (1,)),
        ([waits(2)], "link", (1,)),  # rank 0 is one ahead
        ([{}], "straggler", (1,)),
        ([{"status": "answered"}], "straggler", (1,)),
        ([{"ended": END_OF_DATA, "seen": (Seen(0),)}], "data ended early", (1,)),
        ([{"ended": DONE, "seen": (Seen(0),)}], "data ended early", (1,)),
        ([{"ended": END_OF_DATA, "seen": (Seen(1),)}], "straggler", (1,)),
        ([{"ended": DONE, "seen": (Seen(1),)}], "another order", (0, 1)),
        (
            [{"ended": END_OF_DATA, "seen": (Seen(1),), "status": "gone"}],
            "another order",
            (0, 1),
        ),
        ([left(3) | {"ended": DONE, "seen": (Seen(1),)}], "link", (0,)),
    ],
)
def test_what_another_rank_is_when_rank_0_waits(others, cause, ranks):
    assert diagnose(logs_of(waits(), *others))[:2] == (cause, ranks)


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


def nan_on_rank_1(*, skipped: bool, later: tuple[Seen, ...] = ()) -> list[dict]:
    seen = (Seen(2, finite=rank != 1, skipped=skipped) for rank in range(3))
    return [{"seen": (own, *later)} for own in seen]


def test_a_nan_that_all_skipped_is_never_the_cause():
    seen = nan_on_rank_1(skipped=True, later=(Seen(3, finite=True),))
    slow = [own | call for own, call in zip(seen, (waits(), waits(), {}), strict=True)]
    assert diagnose(logs_of(*slow))[:2] == ("straggler", (2,))
    parted = [own | waits(step=n) for own, n in zip(seen, (3, 3, 4), strict=True)]
    assert diagnose(logs_of(*parted))[:2] == ("another order", (2,))
    last = [own | {"ended": DONE} for own in nan_on_rank_1(skipped=True)]
    assert diagnose(logs_of(*last)) is None


@pytest.mark.parametrize("victim", [False, True])
def test_a_nan_about_which_all_are_still_deciding_is_not_the_cause(victim):
    in_flag = waits(error="too late" if victim else "")
    ended = {"ended": "too late"} if victim else {}
    seen = nan_on_rank_1(skipped=False)
    logs = [own | in_flag | ended for own in seen[:2]] + [seen[2]]
    assert diagnose(logs_of(*logs))[:2] == ("straggler", (2,))


def test_a_nan_that_went_into_the_sums_is_named_when_the_comparison_finds_it():
    seen = nan_on_rank_1(skipped=False)
    logs = logs_of(*(own | {"ended": DISAGREED} for own in seen))
    assert diagnose(logs)[:2] == ("NaN on one rank", (1,))


def test_what_a_job_waits_for_comes_before_what_is_merely_wrong():
    same = {"seen": (Seen(1, 5),)}
    hangs = logs_of(waits() | same, waits() | same, waits())
    assert diagnose(hangs).cause == "link"
    late = logs_of(waits() | same, same, waits())
    assert diagnose(late)[:2] == ("straggler", (1,))
    one_ahead = logs_of(waits(4), waits(3), left(3))  # the third may yet come
    assert diagnose(one_ahead)[:2] == ("straggler", (2,))
    assert diagnose(logs_of(same, same, {})).cause == "wrong shard"
    agreed_to_stop = left(3) | same | {"ended": DISAGREED}
    assert diagnose(logs_of(waits() | same, agreed_to_stop)).cause == "wrong shard"


def test_each_test_holds_on_its_own_too():
    assert link(logs_of(waits(), left(2))) is None  # one has not come
    assert link(logs_of(waits(), waits(step=2))) is None
    over = {"ended": END_OF_DATA, "status": "gone"}
    assert straggler(logs_of(waits(), over)) is None


@pytest.mark.parametrize(
    "late, cause",
    [(0.0, None), (0.9 * MOMENT_S, None), (1.1 * MOMENT_S, "link")],
)
def test_a_link_is_suspected_only_a_moment_after_the_last_has_come(late, cause):
    """By each rank's own clock: the waits of the others say nothing of it."""
    call = waits()["calls"][0]
    others = [{"calls": (call._replace(entered=5.0),), "at": at} for at in (65.0, 99.0)]
    last = {"calls": (call._replace(entered=900.0),), "at": 900.0 + late}
    for logs in (logs_of(*others, last), logs_of(last, *others)):
        found = diagnose(logs)
        assert (found and found.cause) == cause
    through = {"calls": (call._replace(entered=899.0, left=900.0),), "at": 900.5}
    found = diagnose(logs_of(others[0], through, last))
    assert (found and found.cause) == cause


def test_whoever_fails_where_all_have_come_needs_no_moment():
    just = {"at": 0.0}
    hung_up = waits(error="hung up") | just
    assert diagnose(logs_of(hung_up, waits() | just)).cause == "link"


def test_of_two_whose_data_ended_the_earlier_is_named():
    end = {"ended": END_OF_DATA}
    early = waits(step=1) | end | {"seen": (Seen(1),)}
    verdict = diagnose(logs_of(waits(step=2) | end | {"seen": (Seen(2),)}, early))
    assert verdict[:2] == ("data ended early", (1,))


def test_the_ranks_of_a_verdict_on_a_finished_one():
    end = left(3) | {"ended": DONE, "seen": (Seen(1),)}
    verdict = diagnose(logs_of(waits(4), end, end))
    assert verdict[:2] == ("another order", (0,))
    assert "rank 0 brings the W of step 1; ranks 1 and 2 bring nothing more" in (
        verdict.sentence
    )


def test_a_sentence_says_who_waits_where_and_what_a_straggler_does():
    busy = {"doing": "read < load"}
    told = diagnose(logs_of(waits(), busy, waits())).sentence
    assert told == (
        "Rank 1 is at work (read < load); ranks 0 and 2 wait in #3 (W, step 1)."
    )


def test_a_sentence_says_who_failed_where_and_of_a_call_before_the_first_step():
    call = {"calls": (Call(0, -1, "join", error="late", victim=True),)}
    told = diagnose(logs_of(call, {"status": "absent"}, call)).sentence
    assert told == "Rank 1 never came; ranks 0 and 2 failed in #0 (join)."


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
            assert recorder.log().open_call.number == recorder.count - 1
    log = recorder.log()
    assert [c.number for c in log.calls] == [3, 4] == [s.step for s in log.seen]
    assert (log.calls[0].shape, log.calls[0].dtype) == ((3,), "float32")
    assert (log.open_call, log.comes_to, log.ended) == (None, 5, END_OF_DATA)


@pytest.mark.parametrize(
    "wrong, victim",
    [
        (KeyboardInterrupt("stop"), True),
        (MemoryError(), False),
        (PeerError("rank 1 hung up"), True),
        (TimeoutError("late"), True),
    ],
)
def test_a_failed_collective_is_noted_told_and_raised(wrong, victim):
    recorder, told = FlightRecorder(0), []
    recorder.alarm = lambda: told.append(recorder.log().open_call)
    with pytest.raises(type(wrong)), recorder.call("sum"):
        raise wrong
    assert [(call.error, call.victim) for call in told] == [(repr(wrong), victim)]


def test_empty_shards_are_not_the_same_shard():
    recorders = [FlightRecorder(rank) for rank in range(2)]
    for recorder in recorders:
        for _ in recorder.steps([[]]):
            recorder.note(finite=True)
    assert diagnose([recorder.log() for recorder in recorders]) is None
    assert in_what_they_differ(np.array([[1, 2, 1, 0], [1, 2, 1, 0]])) == []


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


# Training in threads: what a loop does about a NaN.


def in_threads(size: int, work: Callable) -> list:
    """What `work(ring, recorder)` returns, or raises, in a thread for each rank."""
    doors = [Door(rank, size, KEY) for rank in range(size)]
    addresses, found = [door.address for door in doors], [None] * size

    def live(rank: int) -> None:
        ring = join_ring(doors[rank], addresses, 60.0)
        try:
            found[rank] = work(ring, FlightRecorder(rank))
        except Exception as wrong:
            found[rank] = wrong
        finally:
            ring.close()

    threads = [threading.Thread(target=live, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("step", range(STEPS))
def test_a_cured_nan_passes_the_comparison_in_whatever_step_it_is(step):
    def train(ring, recorder):
        kind = "NaN" if ring.rank == 1 else ""
        params = train_watched(ring, recorder, Mishap(kind, 1, step, cured=True))
        return fingerprint(*params), [s.step for s in recorder.seen if s.skipped]

    assert len({str(found) for found in in_threads(2, train)}) == 1
    assert in_threads(2, train)[0][1] == [step]


@pytest.mark.parametrize(
    "facts, said",
    [({"finite": False}, "a finite loss"), ({"finite": False, "skipped": True}, "")],
)
def test_a_comparison_knows_a_nan_that_was_skipped_from_one_that_was_not(facts, said):
    def compare(ring, recorder):
        for _ in recorder.steps([[ring.rank], [10 + ring.rank]]):
            recorder.note(finite=True, skipped=facts.get("skipped", False))
            if ring.rank == 1 and recorder.seen[-1].step == 0:
                recorder.note(**facts)
        compare_fingerprints(recorder, ring, [tf.ones(3)], 2)

    found = in_threads(2, compare)
    assert [isinstance(x, DisagreementError) for x in found] == [bool(said)] * 2
    assert all(said in str(x) for x in found)


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
            log = recorder.log()
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


def until(collector: Collector, reached: Callable[[], bool]) -> None:
    """Listen until this holds."""
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end, "it never did"
        collector.listen(1)


def test_the_patience_of_a_rank_in_a_collective_ends_in_a_call_for_help():
    recorder = FlightRecorder(0)
    with Collector(2, KEY) as collector:
        reporter = Reporter(recorder, 2, collector.address, KEY, patience_s=0.1)
        with recorder.call("sum", np.ones(2)):
            verdict, logs = next(collector.watch())  # while it still hangs
        assert [log.status for log in logs] == ["answers", "absent"]
        assert logs[0].open_call.name == "sum"
        assert verdict[:2] == ("missing rank", (1,))
        assert recorder.asked.wait(60)
        reporter.close()
        verdict, logs = list(collector.watch(0.1))[-1]
        assert [log.status for log in logs] == ["answered", "absent"]
        assert verdict[:2] == ("missing rank", (1,))


def test_a_rank_calls_for_help_whenever_its_patience_is_over_once_more(monkeypatch):
    """By a clock that stands still until it is set; each look at it is counted."""
    now, looks, calls = [0.0], [], []

    def clock() -> float:
        looks.append(now[0])
        return now[0]

    def looked(times: int) -> None:
        before = len(looks)
        while len(looks) < before + times:
            time.sleep(0.001)

    recorder = FlightRecorder(0)
    with Collector(1, KEY) as collector:
        reporter = Reporter(recorder, 1, collector.address, KEY, patience_s=0.02)
        monkeypatch.setattr(reporter, "report", lambda *words: calls.append(words))
        with monkeypatch.context() as patched:
            patched.setattr(step_hangs, "time", SimpleNamespace(monotonic=clock))
            with recorder.call("sum"):
                for moment, expected in ((0.019, 0), (0.03, 1), (0.039, 1), (0.05, 2)):
                    now[0] = moment
                    looked(9)
                    assert len(calls) == expected, moment
        hang_up(reporter.sock)


class Line:
    """The connection of a rank that is spoken for by hand."""

    def __init__(self, collector: Collector, rank: int, word: str = "here") -> None:
        size = len(collector.logs)
        self.sock, self.key = knock(collector.address, rank, size, KEY, Deadline(60))
        self.tell(word, 0, FlightLog(rank, calls=waits()["calls"]))

    def tell(self, *message) -> None:
        tell(self.sock, message, self.key)

    def hear(self):
        return hear(self.sock, self.key)

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def line_of(collector: Collector, rank: int, word: str = "here") -> Line:
    """The line of a rank that says one word, which has arrived, and no more."""
    line = Line(collector, rank, word)
    until(collector, lambda: collector.logs[rank].status != "absent")
    return line


def test_who_does_not_answer_is_silent_and_who_hangs_up_is_gone(monkeypatch):
    monkeypatch.setattr(step_hangs, "TALK_S", 0.3)
    with Collector(2, KEY) as collector:
        line = line_of(collector, 1)
        assert [log.status for log in collector.ask()] == ["absent", "silent"]
        line.close()
        until(collector, lambda: not collector.lines)
        assert collector.logs[1].status == "gone"
        assert collector.logs[1].open_call.number == 3  # what it said last stays


def test_a_late_answer_to_an_old_question_is_not_one_to_the_new(monkeypatch):
    monkeypatch.setattr(step_hangs, "TALK_S", 0.3)
    with Collector(1, KEY) as collector, line_of(collector, 0) as line:
        collector.ask()
        assert line.hear() == 1
        late = "answer", 1, FlightLog(0, ended="late")
        slow = threading.Timer(0.1, line.tell, late)
        slow.start()
        [log] = collector.ask()
        slow.join()
        assert (log.status, log.ended, line.hear()) == ("silent", "late", 2)


def test_who_ends_after_its_answer_is_no_cause_until_somebody_asks_again():
    with Collector(1, KEY) as collector:
        with line_of(collector, 0) as line:
            answer = threading.Timer(0.1, line.tell, ("answer", 1, FlightLog(0)))
            answer.start()
            assert [log.status for log in collector.ask()] == ["answers"]
            answer.join()
        until(collector, lambda: not collector.lines)
        assert collector.logs[0].status == "answered"
        assert [log.status for log in collector.ask()] == ["gone"]


def test_a_call_for_help_while_others_are_asked_is_not_lost(monkeypatch):
    monkeypatch.setattr(step_hangs, "TALK_S", 0.3)
    with Collector(2, KEY) as collector, Line(collector, 0, "alarm"):
        verdicts = collector.watch()
        late = threading.Timer(0.1, lambda: lines.append(Line(collector, 1, "alarm")))
        lines: list[Line] = []
        late.start()
        assert next(verdicts)[0] is not None
        late.join()
        verdict, logs = next(verdicts)
        assert [log.status for log in logs] == ["silent", "silent"]
        lines[0].close()


def test_watching_ends_when_all_came_and_went_not_when_the_first_has():
    with Collector(2, KEY) as collector:
        line_of(collector, 0).close()
        late = threading.Timer(0.3, lambda: Line(collector, 1).close())
        late.start()
        [(_, logs)] = collector.watch()
        late.join()
        assert [log.status for log in logs] == ["gone", "gone"]


def test_watching_ends_some_time_after_a_call_for_help_and_can_go_on():
    with Collector(1, KEY) as collector, line_of(collector, 0, "alarm") as line:
        answer = threading.Timer(0.1, line.tell, ("answer", 1, FlightLog(0)))
        answer.start()
        assert len(list(collector.watch(0.5))) == 2
        answer.join()
        hang_up(line.sock)
        [(_, logs)] = collector.watch()
        assert logs[0].status == "answered"


# Who else comes, and what else is said.


def answering(line: Line, times: int = 1) -> threading.Thread:
    """Answers so many questions, in a thread."""

    def answer() -> None:
        for _ in range(times):
            line.tell("answer", line.hear(), FlightLog(0))

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def test_strangers_are_nobody_and_hold_nobody_up():
    """More than the door takes at a time: one byte each, and then nothing."""
    with Collector(1, KEY) as collector, line_of(collector, 0) as line:
        count = many_workers.GUESTS + 4
        strangers = [socket.create_connection(collector.address) for _ in range(count)]
        for stranger in strangers:
            with suppress(OSError):  # it was hung up on
                stranger.sendall(b"x")
        begin, thread = time.monotonic(), answering(line, 3)
        for _ in range(3):
            assert [log.status for log in collector.ask()] == ["answers"]
        assert time.monotonic() - begin < many_workers.HANDSHAKE_S * 3
        thread.join()
        assert set(collector.lines) == {0}
        close_all(strangers)


def close_all(socks: list[socket.socket]) -> None:
    for sock in socks:
        sock.close()


@pytest.mark.parametrize(
    "rank, secret, said",
    [(0, OTHER_KEY, "secret"), (5, KEY, "it is rank 5 of 2, expected rank 0 or 1")],
)
def test_who_does_not_know_the_secret_or_is_no_rank_is_turned_away(rank, secret, said):
    with Collector(2, KEY) as collector:
        with pytest.raises((OSError, EOFError)):
            knock(collector.address, rank, 2, secret, Deadline(0.5))
        assert said in collector.door.turned_away[0]
        assert collector.logs[0] == FlightLog(0, "absent") and not collector.lines


def test_more_files_than_select_can_count_are_no_trouble():
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1400:
        pytest.skip("this system has no more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1400), hard))
    held = [os.dup(1) for _ in range(1100)]
    try:
        recorder = FlightRecorder(0)
        with Collector(1, KEY) as collector:
            reporter = Reporter(recorder, 1, collector.address, KEY, 60.0)
            assert reporter.sock.fileno() > 1023
            until(collector, lambda: collector.logs[0].status != "absent")
            assert [log.status for log in collector.ask()] == ["answers"]
            reporter.close()
    finally:
        for file in held:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_one_that_stops_in_mid_message_holds_nobody_up():
    with (
        Collector(2, KEY) as collector,
        line_of(collector, 1) as stopped,
        line_of(collector, 0) as line,
    ):
        stopped.sock.sendall(b"\0\0")
        line.tell("alarm", 0, FlightLog(0))
        until(collector, lambda: collector.alarm)
        assert set(collector.lines) == {0, 1}  # it has not been waited for


def test_a_message_that_was_recorded_is_worthless_on_another_line(monkeypatch):
    with Collector(1, KEY) as collector:
        old, new = line_of(collector, 0), line_of(collector, 0)
        new.key = old.key  # as whoever plays back what was sealed with it
        before = collector.logs[0]
        new.tell("here", 0, FlightLog(0, ended="an old one"))
        until(collector, lambda: collector.logs[0].status == "gone")
        assert collector.logs[0].calls == before.calls
        assert "seal is wrong" in collector.logs[0].ended
        close_all([old, new])


def test_of_two_lines_of_a_rank_the_newer_counts():
    with Collector(1, KEY) as collector:
        old = line_of(collector, 0)
        with Line(collector, 0, "alarm"):
            until(collector, lambda: collector.alarm)
            old.tell("here", 0, FlightLog(0, ended="of the old one"))
            old.close()
            collector.listen(1), collector.listen(1)
            assert (collector.logs[0].status, collector.logs[0].ended) == (
                "answers",
                "",
            )


@pytest.mark.parametrize(
    "message",
    [
        None,
        1,
        "text",
        [],
        ["here", 0],
        ["here", 0, None],
        ["here", 0, [0]],
        ["here", "x", FlightLog(0)],
        {"a": 1},
        ["here", 0, [*FlightLog(0), 1]],
        ["here", 0, FlightLog(0, calls=[[1, 2, 3]])],
        ["here", 0, FlightLog(1)],
        ["here", 0, FlightLog("0")],
    ],
)
def test_what_another_version_says_ends_its_line_and_is_no_death_without_a_word(
    message,
):
    with Collector(1, KEY) as collector, line_of(collector, 0) as line:
        tell(line.sock, message, line.key)
        [(verdict, [log])] = collector.watch()
        assert log.status == "gone"
        assert "its log can't be read: " in verdict.sentence


def test_without_a_collector_training_goes_on():
    recorder = FlightRecorder(0)
    with Collector(1, KEY) as collector:
        reporter = Reporter(recorder, 1, collector.address, KEY, 60.0)
    for _ in recorder.steps([[0]] * 3):
        reporter.report("alarm")
    reporter.close()
    assert [seen.step for seen in recorder.seen] == [0, 1, 2]
    assert recorder.ended == END_OF_DATA


@pytest.mark.parametrize(
    "fact",
    [np.isfinite(1.0), tf.math.is_finite(1.0), tf.Variable(True), np.array([True])],
)
def test_a_note_is_a_plain_value_that_can_be_sent(fact):
    recorder = FlightRecorder(np.int64(0))
    for _ in recorder.steps([[0]]):
        recorder.note(finite=fact)
    assert recorder.seen[-1].finite is True
    log = recorder.log()
    assert as_log(*json.loads(json.dumps(log))) == log


def test_an_error_of_any_length_can_be_told():
    recorder, long = FlightRecorder(0), "x" * 2 * MOST_TOLD
    with pytest.raises(MemoryError), recorder.call("sum"):
        raise MemoryError(long)
    recorder.ended = long
    with pair() as (one, other):
        tell(one, recorder.log(), KEY)
        log = as_log(*hear(other, KEY))
    assert log.open_call.error.startswith("MemoryError('xxx") and log.ended[:3] == "xxx"
