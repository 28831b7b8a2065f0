"""Checkpoints: no damage gets in, no crash halves them, and a training resumes equal.

The page kills real processes before each call to the system, and in the midst of a
training; `make faults` hundreds of them.
"""

import errno
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from manygpu.processes import deaths
from manygpu.processes.deaths import noted
from manygpu.processes.launch import ClusterError
from manygpu.scratch.beyond import worker_dies
from manygpu.scratch.beyond.many_workers import Ring
from manygpu.scratch.beyond.worker_dies import (
    HEADER,
    MAGIC,
    PREEMPTED,
    Checkpoint,
    DamagedError,
    TrainingRun,
    digest_of,
    goodput,
    launch_again,
    momentum_step,
    newest_checkpoint,
    pack,
    restore,
    ring_sums,
    save_checkpoint,
    state_of,
    train_ring,
    train_until,
    unpack,
    write_atomically,
    young_daly,
)
from manygpu.scratch.start.one_device import gradients
from tests.unit.helpers import batch, numbers

X, y = (t.numpy() for t in batch(12))


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(step, {"w": np.arange(9) + step / 3, "place": np.array([step])})


def same_state(one: dict, other: dict) -> bool:
    return list(one) == list(other) and all(
        one[n].dtype == other[n].dtype and one[n].tobytes() == other[n].tobytes()
        for n in one
    )


def filled(folder: Path, *steps: int, keep: int = 9) -> Path:
    for step in steps:
        save_checkpoint(folder, checkpoint(step), keep)
    return folder


def ckpt(step: int) -> str:
    return f"step-{step:08d}.ckpt"


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def whole(*steps: int) -> dict[str, bytes]:
    """What `files` finds where these were saved."""
    return {ckpt(step): pack(checkpoint(step)) for step in steps}


# What a file holds.


NAMES = ["w", "file", "w.npy", "w\0", "a/b", "a\\b", "ü", "", "\ud800"]
KINDS = [np.float64, np.float32, np.int64, np.uint8, np.bool_]
ARRAYS = st.sampled_from(KINDS).flatmap(
    lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0))
)


@given(
    st.integers(0, 2**63), st.dictionaries(st.sampled_from(NAMES), ARRAYS, max_size=3)
)
@settings(deadline=None, max_examples=25)
def test_a_checkpoint_comes_back_equal_in_every_bit(step, state):
    data = pack(Checkpoint(step, state))
    back = unpack(data)
    assert back.step == step and same_state(back.state, state)
    assert [a.shape for a in back.state.values()] == [a.shape for a in state.values()]
    assert pack(back) == data


@st.composite
def damages(draw, data: bytes) -> bytes:
    """Bytes that are not these: one changed, some gone, some twice, some in front."""
    a = draw(st.integers(0, len(data) - 1))
    b = draw(st.integers(a + 1, len(data)))
    changed = data[:a] + bytes([data[a] ^ draw(st.integers(1, 255))]) + data[a + 1 :]
    gone, twice = data[:a] + data[b:], data[:b] + data[a:]
    more = draw(st.binary(min_size=1, max_size=99))
    ways = [changed, gone, data[:a], twice, data + more, more + data, more]
    return draw(st.sampled_from(ways).filter(lambda other: other != data))


@given(data=st.data())
@settings(deadline=None, max_examples=5 * int(os.environ.get("FAULTS", 30)))
def test_damage_anywhere_is_refused_by_name_and_the_one_before_is_taken(
    tmp_path_factory, data
):
    folder = filled(tmp_path_factory.mktemp("two"), 4)
    (folder / ckpt(8)).write_bytes(data.draw(damages(pack(checkpoint(8)))))
    said = []
    found = newest_checkpoint(folder, said.append)
    assert found.step == 4 and same_state(found.state, checkpoint(4).state)
    assert said[0].startswith("step-00000008.ckpt is refused: it")
    assert said[1:] == ["step-00000004.ckpt is taken in its place"]


def sealed(save: Callable[..., None], *content) -> bytes:
    """A file with a header that is right, whatever it holds."""
    file = io.BytesIO()
    save(file, *content)
    content = file.getvalue()
    return HEADER.pack(MAGIC, 3, len(content), digest_of(3, content)) + content


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs there")
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path):
    filled(tmp_path, 1)
    os.mkfifo(tmp_path / ckpt(3))
    (tmp_path / ckpt(2)).mkdir()
    said, found = [], []
    look = partial(newest_checkpoint, tmp_path, said.append)
    reader = threading.Thread(target=lambda: found.append(look().step), daemon=True)
    reader.start()
    reader.join(30)
    assert found == [1]
    assert [line.split(": ")[1] for line in said[:2]] == ["it is no file"] * 2


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links are followed there")
def test_a_link_under_the_temporary_name_harms_nobody(tmp_path):
    victim = tmp_path / "mine"
    victim.write_bytes(b"words")
    (tmp_path / "step-00000008.tmp").symlink_to(victim)
    with pytest.raises(OSError, match=r"step-00000008\.tmp"):
        save_checkpoint(tmp_path, checkpoint(8))
    assert victim.read_bytes() == b"words"
    assert save_checkpoint(tmp_path, checkpoint(8)).is_file()  # the link is gone
    assert newest_checkpoint(tmp_path).step == 8 and victim.read_bytes() == b"words"


WHOLE = pack(checkpoint(3))


@pytest.mark.parametrize(
    "damaged, why",
    [
        (WHOLE[:5], f"it has 5 bytes, a header has {HEADER.size}"),
        (b"M" + WHOLE[1:], "it begins with b'Manygpu2'"),
        (WHOLE[:-3], f"its header promises {len(WHOLE) - HEADER.size} bytes, "),
        (WHOLE[:-1] + b"?", "its SHA-256 is not the one in its header"),
        (WHOLE[:15] + b"\4" + WHOLE[16:], "its SHA-256 is not"),  # another step
        (sealed(io.BytesIO.write, b"garbage"), "its content can't be read: "),
        (sealed(io.BytesIO.write, b""), "its content can't be read: "),
        (sealed(np.save, np.ones(2)), "its content can't be read: "),
        (sealed(np.savez, np.ones(2)), "its content can't be read: "),
        (pack(checkpoint(2)), "it holds step 2"),
        (pack(checkpoint(4)), "it holds step 4"),
    ],
)
def test_each_reason_is_said(tmp_path, damaged, why):
    filled(tmp_path, 1)
    (tmp_path / ckpt(3)).write_bytes(damaged)
    said = []
    assert newest_checkpoint(tmp_path, said.append).step == 1
    assert re.match(rf"step-00000003\.ckpt is refused: {why}", said[0])


def test_a_file_that_cannot_be_read_is_damaged_too(tmp_path, monkeypatch):
    filled(tmp_path, 1, 2)
    read = Path.read_bytes

    def refuse(path):
        if path.name == ckpt(2):
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    said = []
    assert newest_checkpoint(tmp_path, said.append).step == 1
    assert "step-00000002.ckpt is refused" in said[0] and "Input/output" in said[0]


def test_if_none_is_whole_it_stops_and_names_all(tmp_path):
    filled(tmp_path, 1, 2)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    with pytest.raises(DamagedError, match=r"(?s)no checkpoint in.*0002\.ckpt.*0001\."):
        newest_checkpoint(tmp_path, lambda _: None)


def test_in_a_folder_without_checkpoints_there_is_none(tmp_path):
    for name in ("steps", "step-1.ckpt", "step-00000001.tmp", "step-00000001.ckpt.old"):
        (tmp_path / name).write_bytes(b"?")
    assert newest_checkpoint(tmp_path) is None


def test_steps_are_numbers_however_long_their_names_and_all_is_quiet(tmp_path, capsys):
    filled(tmp_path, 99_999_999, 100_000_000)
    assert newest_checkpoint(tmp_path).step == 100_000_000
    filled(tmp_path, 100_000_000, keep=1)
    assert list(files(tmp_path)) == ["step-100000000.ckpt"]
    assert capsys.readouterr().out == ""


# What is kept.


@pytest.mark.parametrize("keep", [1, 2, 9])
def test_the_newest_few_are_kept(tmp_path, keep):
    filled(tmp_path, *range(5), keep=keep)
    assert files(tmp_path) == whole(*range(max(0, 5 - keep), 5))


def test_one_that_is_newer_and_other_files_are_left_alone(tmp_path):
    """After going back past a damaged one, what was just saved must not go."""
    filled(tmp_path, 5, 10, 15)
    (tmp_path / "steps").touch()
    (tmp_path / "mine.tmp").touch()
    filled(tmp_path, 7, keep=1)
    assert sorted(files(tmp_path)) == ["mine.tmp", *map(ckpt, (7, 10, 15)), "steps"]


# A write is whole or not at all.


def test_the_order_of_calls_is_the_one_that_is_safe(tmp_path):
    filled(tmp_path, 2, 4, 6)
    made = []
    with deaths.before_each(made.append):
        save_checkpoint(tmp_path, checkpoint(8))
    assert made[:6] == ["open", "write", "fsync", "replace", "open", "fsync"]
    assert set(made[6:]) == {"unlink"}


@pytest.mark.parametrize("fatal", range(1, 7))
def test_if_the_system_refuses_any_call_all_that_was_there_is_there(tmp_path, fatal):
    filled(tmp_path, 2, 4, 6)
    refused = pytest.raises(OSError, match="No space left")
    with refused, deaths.at_call(fatal, deaths.refuse):
        save_checkpoint(tmp_path, checkpoint(8))
    assert files(tmp_path) == whole(2, 4, 6, *[8] * (fatal > 4))


def test_if_the_disk_is_full_at_the_close_all_that_was_there_is_there(
    tmp_path, monkeypatch
):
    class Full(io.FileIO):
        def close(self):
            if not self.closed:
                super().close()
                raise OSError(errno.ENOSPC, "No space left on device")

    filled(tmp_path, 2, 4, 6)
    monkeypatch.setattr(os, "fdopen", lambda file, *_: Full(file, "wb"))
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(tmp_path, checkpoint(8))
    monkeypatch.undo()
    assert files(tmp_path) == whole(2, 4, 6)


def test_on_a_mac_the_drive_is_asked_too(tmp_path, monkeypatch):
    asked = []
    fcntl = SimpleNamespace(F_FULLFSYNC=51, fcntl=lambda *call: asked.append(call[1]))
    monkeypatch.setattr(worker_dies.sys, "platform", "darwin")
    monkeypatch.setitem(sys.modules, "fcntl", fcntl)
    write_atomically(tmp_path / "file", b"words")
    assert asked == [51, 51]  # of the file, of the folder


# A training and its state.


def test_an_epoch_shows_each_sample_once_and_the_next_has_another_order():
    training = TrainingRun(X, np.arange(12), size=5)  # two are left out of each
    shown = [training.next_batch()[1] for _ in range(4)]
    assert [len(labels) for labels in shown] == [5] * 4
    first, second = np.concatenate(shown[:2]), np.concatenate(shown[2:])
    assert len({*first}) == len({*second}) == 10
    assert list(first) != list(second) and (training.epoch, training.used) == (1, 10)
    four = TrainingRun(X, np.arange(12), size=4)
    assert len({n for _ in range(3) for n in four.next_batch()[1]}) == 12


def test_a_step_is_that_of_momentum():
    training = TrainingRun(X, y, size=4)
    training.SEEN = 1.1  # all pixels
    shown = TrainingRun(X, y, size=4)
    speeds = [np.zeros(p.shape) for p in shown.params]
    for _ in range(2):
        loss = momentum_step(training)
        X_t, y_t = shown.next_batch()
        before, grads = gradients(X_t, y_t, shown.params)
        assert loss == pytest.approx(float(before) / 4, rel=1e-12)
        for i, (p, g) in enumerate(zip(shown.params, grads, strict=True)):
            speeds[i] = 0.9 * speeds[i] + g.numpy() / 4
            p.assign_sub(training.RATE * speeds[i])
    assert training.step == 2
    assert np.allclose(numbers(training.params), numbers(shown.params), 1e-12, 1e-15)


def test_some_pixels_are_missing_and_others_in_the_next_step():
    training, seen = TrainingRun(X + 1, y, size=4), []

    def look(batch_, labels, params):
        seen.append(batch_.numpy() != 0)
        return gradients(batch_, labels, params)

    for _ in range(2):
        momentum_step(training, look)
    assert 0.85 < np.mean(seen) < 0.95
    assert (seen[0] != seen[1]).any()


@pytest.mark.parametrize(
    "change",
    [
        {"noise": None},  # missing
        {"param8": np.zeros(3)},
        {"speed7": np.zeros((10, 1))},
        {"speed7": np.zeros(10, np.float32)},
    ],
)
def test_the_state_of_another_model_is_refused_and_nothing_is_loaded(change):
    training = TrainingRun(X, y)
    before = state_of(training)
    state = {name: array + 1 for name, array in before.items()} | change
    state = {name: array for name, array in state.items() if array is not None}
    [name] = change
    with pytest.raises(ValueError, match=rf"differences in \['{name}'\]: restore"):
        restore(training, 7, state)
    assert same_state(state_of(training), before) and training.step == 0


def undisturbed(steps: int) -> dict:
    training = TrainingRun(X, y)
    for _ in range(steps):
        momentum_step(training)
    return state_of(training)


@pytest.mark.parametrize("when, saved", [("before", 1), ("in step 2", 2)])
def test_a_notice_between_any_two_lines_loses_no_step_and_its_status_means_again(
    tmp_path, monkeypatch, when, saved
):
    notice, note = [signal.SIGTERM] if when == "before" else [], worker_dies.deaths.note

    def interrupted(path, step):
        notice.append(signal.SIGTERM)
        note(path, step)

    monkeypatch.setattr(worker_dies.deaths, "note", interrupted)
    with pytest.raises(SystemExit) as end:
        train_until(TrainingRun(X, y), tmp_path, 5, 4, notice=notice)
    assert end.value.code == PREEMPTED
    assert newest_checkpoint(tmp_path).step == noted(tmp_path / "steps")[-1] == saved


def test_a_ring_trains_the_same_and_only_its_chief_saves(tmp_path):
    alone, training = Ring(0, 1, [], 5), TrainingRun(X, y)
    train_until(training, tmp_path, 1, 1, partial(ring_sums, alone), chief=False)
    assert newest_checkpoint(tmp_path) is None and training.step == 1
    state = train_ring(alone, X, y, tmp_path, 3, 2)
    assert same_state(state, undisturbed(3))
    assert newest_checkpoint(tmp_path).step == 3


# Started again.


def lives(*ends: tuple[int, int]) -> tuple[Callable[[], None], Callable[[], int], list]:
    """A cluster that ends with these statuses, one a start, and is then so far.

    For `launch_again`: how it is started, and its progress; and what is yet to come.
    """
    far, to_come = [0], list(ends)

    def start() -> None:
        status, far[0] = to_come.pop(0)
        if status:
            raise ClusterError(f"ended with {status}", status)

    return start, lambda: far[0], to_come


@pytest.mark.parametrize(
    "ends",
    [
        [(0, 9)],
        [*((PREEMPTED, i) for i in range(1, 6)), (0, 9)],
        [(PREEMPTED, 0), (PREEMPTED, 0), (0, 9)],  # before a save
        [(1, 3), (137, 4), (PREEMPTED, 4), (0, 9)],
        [(1, 0), (9, 0), (0, 9)],  # died before the first save
        # Progress brings the patience back, and so does a notice.
        [(1, 0), (1, 0), (1, 5), (1, 5), (1, 5), (0, 9)],
        [(1, 0), (1, 0), (PREEMPTED, 0), (1, 0), (1, 0), (0, 9)],
    ],
)
def test_a_cluster_is_started_again_while_there_is_patience(ends):
    start, progress, to_come = lives(*ends)
    assert launch_again(start, progress) == [status for status, _ in ends]
    assert to_come == []


@pytest.mark.parametrize(
    "patience, ends, said",
    [
        ({"patience": 1}, [(PREEMPTED, 3), (134, 3)], "failed 1 times in a row.* 134"),
        (
            {"patience": 2},
            [(PREEMPTED, 3), (1, 3), (5, 3)],
            "failed 2 times in a row.* with 5",
        ),
        (
            {"patience": 4},
            [(1, 3), *((134 + i, 3) for i in range(4))],
            "failed 4 .* ended with 137",
        ),
        ({}, [(1, 0)] * 3, "failed 3 times"),
        # Notices that leave nothing saved do not start it forever.
        ({}, [(PREEMPTED, 0)] * 3, "ended 3 times .* let it save"),
        ({}, [(PREEMPTED, 0), (1, 0), *[(PREEMPTED, 0)] * 2], "ended 3 times"),
    ],
)
def test_one_that_ends_again_and_again_at_the_same_place_is_given_up(
    patience, ends, said
):
    start, progress, to_come = lives(*ends, (0, 9))
    with pytest.raises(ClusterError, match=said) as failed:
        launch_again(start, progress, **patience)
    assert failed.value.status == ends[-1][0]
    assert to_come == [(0, 9)]


def test_another_error_is_not_for_it():
    def start():
        raise FileNotFoundError("no such script")

    with pytest.raises(FileNotFoundError):
        launch_again(start, lambda: 0)


def test_youngs_interval_loses_little_even_if_a_save_takes_half_a_life():
    young = young_daly(0.5, 1)
    tried = np.geomspace(0.1, 10, 4001) * young
    found = goodput(tried, 0.5, 0, 1)
    best = tried[found.argmax()]
    assert (round(young, 1), round(float(best), 1)) == (1.0, 0.7)
    goodputs = goodput(young, 0.5, 0, 1), float(found.max())
    assert [round(float(g), 3) for g in goodputs] == [0.287, 0.302]
