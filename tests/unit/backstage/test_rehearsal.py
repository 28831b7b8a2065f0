"""Real processes with one mishap each: named, and nothing of them is left.

MANYGPU_TRIALS says how often each mishap is tried, on a rank and in a step drawn anew.
"""

import os
import random
from collections.abc import Iterator

import pytest

from manygpu.backstage import rehearsal
from manygpu.backstage.rehearsal import Rehearsal, Rehearsed, come, go
from manygpu.scratch.beyond import step_hangs
from manygpu.scratch.beyond.step_hangs import DONE, KINDS, STEPS, FlightLog, Verdict

PATIENCE = {"slow": {"patience_s": 1.0}}
PATIENCE["never comes"] = {"patience_s": 1.0, "timeout_s": 2.0}


@pytest.fixture(scope="module")
def stage() -> Iterator[Rehearsal]:
    with Rehearsal(3) as stage:
        yield stage
        workers = list(stage._workers.values())
    assert not any(worker.process.is_alive() for worker in workers)


@pytest.mark.parametrize("trial", range(int(os.environ.get("MANYGPU_TRIALS", "1"))))
@pytest.mark.parametrize("kind", KINDS)
def test_each_mishap_is_named_on_real_processes(stage, kind, trial):
    draw = random.Random(f"{kind} {trial}")
    rank, step = draw.randrange(3), draw.randrange(6)
    run = stage.run(kind, rank, step, **PATIENCE.get(kind, {}))
    named = [v.ranks for v, _ in run.found if v and v.cause == KINDS[kind]]
    assert any(rank in ranks for ranks in named), run
    assert (set(run.said.values()) == {DONE}) == (kind == "slow")
    if kind != "slow":  # where, on a busy machine, others may be late, too
        assert run.verdict.cause == KINDS[kind]
        assert set(run.verdict.ranks) - {rank} <= {(rank + 1) % 3}
    else:
        assert any("slow_disk" in v.sentence for v, _ in run.found if v)


def test_without_a_mishap_all_end_with_one_model(stage):
    found = stage.run()
    assert found.verdict is None
    assert found.said == dict.fromkeys(range(3), DONE)
    assert len({step_hangs.fingerprint(*own) for own in found.params.values()}) == 1


@pytest.mark.parametrize("step", [0, STEPS - 1])
def test_a_nan_is_cured_by_deciding_together_in_whatever_step(stage, step):
    found = stage.run("NaN", step=step, cured=True)
    assert found.verdict is None
    assert found.said == dict.fromkeys(range(3), DONE)
    seen = [log.seen for log in found.found[-1][1]]
    assert [own[step].finite for own in seen] == [True, False, True]
    assert [[s.step for s in own if s.skipped] for own in seen] == [[step]] * 3


def held_up(cause: str, seconds: float) -> tuple[Verdict, list[FlightLog]]:
    """A verdict, and the log of a rank that had waited so long when it was drawn."""
    log = FlightLog(0, calls=(step_hangs.Call(0, 0, "W"),), at=seconds)
    return Verdict(cause, (1,), ""), [log]


def test_the_link_is_blamed_only_if_nothing_else_was_found():
    link, early, late = held_up("link", 3), held_up("straggler", 1), held_up("dead", 2)
    assert Rehearsed([link, early, late, (None, [])], {}, {}).verdict == late[0]
    assert Rehearsed([link, (None, [])], {}, {}).verdict == link[0]
    assert Rehearsed([early, link], {}, {}).verdict == link[0]  # how it ended


@pytest.mark.parametrize("inside", [False, True])
def test_an_error_of_a_ranks_own_is_its_last_word(monkeypatch, inside):
    def out_of_memory(ring, recorder, mishap):
        if not inside:
            raise MemoryError
        with recorder.call("sum"):
            raise MemoryError

    monkeypatch.setattr(rehearsal, "train_watched", out_of_memory)
    with step_hangs.Collector(1, b"k" * 32) as collector:
        door, *rest = come(0, 1, b"k" * 32, collector.address, 60.0)
        with pytest.raises(MemoryError):
            go(door, *rest, [door.address], None, 60.0)
        *_, (verdict, [log]) = collector.watch()
    assert (log.ended, bool(log.open_call)) == ("MemoryError()", inside)
    assert verdict[:2] == ("missing rank", (0,))
    assert "MemoryError()" in verdict.sentence


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"kind": "x"}, "kind must be one of"),
        ({"kind": "slow", "rank": 3}, "rank must be 0 to 2, got 3"),
        ({"kind": "slow", "step": 6}, "step must be 0 to 5, got 6"),
    ],
)
def test_a_rehearsal_refuses_what_it_cannot_do(stage, wrong, said):
    with pytest.raises(ValueError, match=said):
        stage.run(**wrong)
