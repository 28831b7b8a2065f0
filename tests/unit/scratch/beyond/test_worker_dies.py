"""Checkpoints: no damage gets in, no crash halves them, and a training resumes equal.

A process that dies makes no more calls: where a real one would cost too much, each call
to the system from the fatal one on raises instead.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from manygpu.processes.deaths import CALLS, Ticks, limited, mortal, noted
from manygpu.processes.launch import ClusterError
from manygpu.processes.workers import Worker
from manygpu.scratch.beyond import worker_dies
from manygpu.scratch.beyond.many_workers import Ring
from manygpu.scratch.beyond.worker_dies import (
    HEADER,
    MAGIC,
    PREEMPTED,
    Checkpoint,
    DamagedError,
    Training,
    digest_of,
    goodput,
    launch_again,
    live,
    momentum_step,
    newest_checkpoint,
    pack,
    restore,
    ring_sums,
    save_checkpoint,
    state_of,
    train_ring,
    train_until,
    trainer,
    unpack,
    write_atomically,
    write_over,
    young_daly,
)
from manygpu.scratch.start.one_device import gradients
from tests.unit.helpers import batch, numbers

NAN, INF = float("nan"), float("inf")
X, y = (t.numpy() for t in batch(12))
KINDS = [np.float64, np.float32, np.int64, np.uint8, np.bool_]


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


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


# What a file holds.


@given(
    st.integers(0, 2**63),
    st.dictionaries(
        st.sampled_from(
            ["w", "file", "w.npy", "w\0", "a/b", "a\\b", "ü", "", "\ud800"]
        ),
        st.sampled_from(KINDS).flatmap(
            lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0))
        ),
        max_size=3,
    ),
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


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> tuple[Path, bytes]:
    """A folder with two checkpoints, and what the newer one holds."""
    folder = filled(tmp_path_factory.mktemp("two"), 4, 8)
    return folder, (folder / "step-00000008.ckpt").read_bytes()


@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_damage_anywhere_is_refused_by_name_and_the_one_before_is_taken(two, data):
    folder, whole = two
    (folder / "step-00000008.ckpt").write_bytes(data.draw(damages(whole)))
    said = []
    found = newest_checkpoint(folder, said.append)
    assert found.step == 4 and same_state(found.state, checkpoint(4).state)
    assert said[0].startswith("step-00000008.ckpt is refused: it")
    assert said[1:] == ["step-00000004.ckpt is taken in its place"]


def sealed(step: int, content: bytes) -> bytes:
    """A file with a header that is right, whatever it holds."""
    digest = digest_of(step, content)
    return HEADER.pack(MAGIC, step, len(content), digest) + content


def npy_of(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz_of(*arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, *arrays)
    return file.getvalue()


def test_a_right_header_over_garbage_is_damage_and_the_one_before_is_taken(tmp_path):
    filled(tmp_path, 1)
    (tmp_path / "step-00000002.ckpt").write_bytes(sealed(2, b"garbage"))
    assert newest_checkpoint(tmp_path, lambda _: None).step == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs there")
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path):
    filled(tmp_path, 1)
    os.mkfifo(tmp_path / "step-00000003.ckpt")
    (tmp_path / "step-00000002.ckpt").mkdir()
    said, found = [], []
    reader = threading.Thread(
        target=lambda: found.append(newest_checkpoint(tmp_path, said.append)),
        daemon=True,
    )
    reader.start()
    reader.join(30)
    assert [one.step for one in found] == [1]
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


def test_each_reason_is_said():
    data = pack(checkpoint(3))
    for damaged, why in {
        data[:5]: f"it has 5 bytes, a header has {HEADER.size}",
        b"M" + data[1:]: "it begins with b'Manygpu2'",
        data[:-3]: f"promises {len(data) - HEADER.size} bytes, .* follow",
        data[:-1] + b"?": "its SHA-256 is not the one in its header",
        data[:15] + b"\4" + data[16:]: "its SHA-256 is not",  # another step
        sealed(3, b"garbage"): "its content can't be read: ",
        sealed(3, b""): "its content can't be read: ",
        sealed(3, npy_of(np.ones(2))): "its content can't be read: ",
        sealed(3, npz_of(np.ones(2))): "its content can't be read: ",
    }.items():
        with pytest.raises(DamagedError, match=why):
            unpack(damaged)


@pytest.mark.parametrize(("step", "name"), [(2, 3), (3, 2)])
def test_another_step_under_a_newer_or_older_name_is_refused(tmp_path, step, name):
    filled(tmp_path, 1, step)
    renamed = tmp_path / f"step-0000000{name}.ckpt"
    (tmp_path / f"step-0000000{step}.ckpt").rename(renamed)
    said = []
    assert newest_checkpoint(tmp_path, said.append).step == 1
    assert said[0] == f"{renamed.name} is refused: it holds step {step}"


def test_a_file_that_cannot_be_read_is_damaged_too(tmp_path, monkeypatch):
    filled(tmp_path, 1, 2)
    read = Path.read_bytes

    def refuse(path):
        if path.name.startswith("step-00000002"):
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


def test_nothing_is_said_when_all_is_well(tmp_path, capsys):
    assert (
        newest_checkpoint(filled(tmp_path, 99_999_999, 100_000_000)).step == 100_000_000
    )
    assert capsys.readouterr().out == ""


# What is kept.


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
def test_the_newest_few_are_kept(tmp_path, keep):
    filled(tmp_path, *range(5), keep=keep)
    kept = [f"step-{step:08d}.ckpt" for step in range(max(0, 5 - keep), 5)]
    assert sorted(files(tmp_path)) == kept


def test_one_that_is_newer_and_other_files_are_left_alone(tmp_path):
    """After going back past a damaged one, what was just saved must not go."""
    filled(tmp_path, 5, 10, 15)
    (tmp_path / "steps").touch()
    (tmp_path / "mine.tmp").touch()
    filled(tmp_path, 7, keep=1)
    kept = ["mine.tmp", *(f"step-000000{n}.ckpt" for n in ("07", "10", "15")), "steps"]
    assert sorted(files(tmp_path)) == kept


def test_steps_are_numbers_however_long_their_names(tmp_path):
    filled(tmp_path, 99_999_999, 100_000_000, keep=1)
    assert list(files(tmp_path)) == ["step-100000000.ckpt"]


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        save_checkpoint(tmp_path / "nowhere", checkpoint(1))


# A write is whole or not at all.


class Killed(BaseException):
    """From now on, this process makes no more calls."""


def calls_of(monkeypatch, fatal=None, error=None, piece=None):
    """Note each call to the system; from the fatal one on, raise, or fail that one."""
    own, made = {name: getattr(os, name) for name in CALLS}, []

    def call(name, *arguments, **named):
        made.append(name)
        if len(made) == fatal and error:
            raise error
        if fatal and len(made) >= fatal and not error:
            raise Killed
        if name == "write" and piece:
            arguments = arguments[0], arguments[1][:piece]
        return own[name](*arguments, **named)

    for name in CALLS:
        monkeypatch.setattr(os, name, partial(call, name))
    return made


def saved_after(tmp_path, monkeypatch, **how) -> list[str]:
    """Save step 8 after 2, 4 and 6; which calls that took until its end or death."""
    filled(tmp_path, 2, 4, 6)
    with monkeypatch.context() as patched:
        made = calls_of(patched, **how)
        try:
            save_checkpoint(tmp_path, checkpoint(8))
        except (Killed, OSError) as end:
            assert how.get("fatal"), end
    return made


def test_the_order_of_calls_is_the_one_that_is_safe(tmp_path, monkeypatch):
    made = saved_after(tmp_path, monkeypatch)
    assert made[:6] == ["open", "write", "fsync", "replace", "open", "fsync"]
    assert set(made[6:]) == {"unlink"}


@pytest.mark.parametrize("piece", [None, 200])
def test_killed_before_any_call_there_is_the_old_or_the_new(
    tmp_path, monkeypatch, piece
):
    found, fatal = [], 0
    while True:
        fatal += 1
        folder = tmp_path / str(fatal)
        folder.mkdir()
        made = saved_after(folder, monkeypatch, fatal=fatal, piece=piece)
        left = newest_checkpoint(folder)
        assert same_state(left.state, checkpoint(left.step).state)
        found.append(left.step)
        filled(folder, 8, keep=3)  # the next life gets there too, and tidies up
        assert sorted(files(folder)) == [f"step-0000000{n}.ckpt" for n in (4, 6, 8)]
        if len(made) < fatal:
            break
    assert found == sorted(found) and set(found) == {6, 8}
    assert fatal >= (7 if piece is None else 9)


def test_if_the_system_refuses_any_call_all_that_was_there_is_there(
    tmp_path, monkeypatch
):
    full = OSError(errno.ENOSPC, "No space left on device")
    for fatal in range(1, 7):
        folder = tmp_path / str(fatal)
        folder.mkdir()
        filled(folder, 2, 4, 6)
        before = files(folder)
        with monkeypatch.context() as patched:
            calls_of(patched, fatal=fatal, error=full)
            with pytest.raises(OSError, match="No space left"):
                save_checkpoint(folder, checkpoint(8))
        after = files(folder)
        assert before.items() <= after.items()
        assert set(after) - set(before) <= {"step-00000008.ckpt"}
        assert newest_checkpoint(folder).step == (8 if fatal > 4 else 6)


def test_if_the_disk_is_full_at_the_close_all_that_was_there_is_there(
    tmp_path, monkeypatch
):
    before, closed = files(filled(tmp_path, 2, 4, 6)), []

    class Full(io.FileIO):
        def close(self):
            if not self.closed:
                super().close()
                closed.append(self)
                raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdopen", lambda file, *_: Full(file, "wb"))
        with pytest.raises(OSError, match="No space left"):
            save_checkpoint(tmp_path, checkpoint(8))
    assert len(closed) == 1 and files(tmp_path) == before


def test_a_write_over_the_only_copy_can_lose_it(tmp_path, monkeypatch):
    path = filled(tmp_path, 2) / "step-00000002.ckpt"
    with monkeypatch.context() as patched:
        calls_of(patched, fatal=2)
        with pytest.raises(Killed):
            write_over(path, pack(checkpoint(2)))
    with pytest.raises(DamagedError, match="it has 0 bytes"):
        newest_checkpoint(tmp_path, lambda _: None)


def test_on_a_mac_the_drive_is_asked_too(tmp_path, monkeypatch):
    asked = []
    fcntl = SimpleNamespace(F_FULLFSYNC=51, fcntl=lambda *call: asked.append(call[1]))
    monkeypatch.setattr(worker_dies.sys, "platform", "darwin")
    monkeypatch.setitem(sys.modules, "fcntl", fcntl)
    write_atomically(tmp_path / "file", b"words")
    assert asked == [51, 51]  # of the file, of the folder


def test_a_system_that_takes_few_bytes_at_once_gets_all_of_them(tmp_path, monkeypatch):
    data = os.urandom(1000)
    made = calls_of(monkeypatch, piece=7)
    write_atomically(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == data and made.count("write") == 143


def test_a_real_process_killed_before_a_call_leaves_the_old_or_the_new(tmp_path):
    filled(tmp_path, 2, 4, 6)
    with Worker(mortal, name="the saver") as worker:
        assert not worker.ask(
            (3, save_checkpoint, tmp_path, checkpoint(8))
        )  # before fsync
        assert "step-00000008.tmp" in files(tmp_path)
        assert newest_checkpoint(tmp_path).step == 6
        assert worker.ask((99, save_checkpoint, tmp_path, checkpoint(8)))
    assert sorted(files(tmp_path)) == [f"step-0000000{n}.ckpt" for n in (4, 6, 8)]


@pytest.mark.skipif(os.name != "posix", reason="no limit for files there")
def test_a_file_that_may_not_grow_leaves_no_half(tmp_path):
    filled(tmp_path, 2)
    before = files(tmp_path)
    with Worker(limited, 100, name="the disk") as worker:
        said = worker.ask((save_checkpoint, tmp_path, checkpoint(4)))
    assert said.startswith("OSError: File too")
    assert files(tmp_path) == before


# A training and its state.


def test_an_epoch_shows_each_sample_once_and_the_next_has_another_order():
    training, shown = Training(X, np.arange(12), size=4), []
    for _ in range(6):
        shown.append(training.next_batch()[1])
    first, second = np.concatenate(shown[:3]), np.concatenate(shown[3:])
    assert sorted(first) == sorted(second) == list(range(12))
    assert list(first) != list(second) and (training.epoch, training.used) == (1, 12)


def test_what_fills_no_batch_is_left_out():
    training = Training(X, np.arange(12), size=5)
    sizes = [len(training.next_batch()[1]) for _ in range(4)]
    assert sizes == [5] * 4 and training.epoch == 1


def test_a_step_is_that_of_momentum():
    training = Training(X, y, size=4)
    training.SEEN = 1.1  # all pixels
    begin = [p.numpy() for p in training.params]
    shown, speeds = Training(X, y, size=4), [np.zeros_like(p) for p in begin]
    for _ in range(2):
        loss = momentum_step(training)
        X_t, y_t = shown.next_batch()
        before, grads = gradients(X_t, y_t, shown.params)
        assert loss == pytest.approx(float(before) / 4, rel=1e-12)
        for p, i in zip(shown.params, range(8), strict=True):
            speeds[i] = 0.9 * speeds[i] + grads[i].numpy() / 4
            p.assign_sub(training.RATE * speeds[i])
    assert training.step == 2
    assert np.allclose(numbers(training.params), numbers(shown.params), 1e-12, 1e-15)


def test_some_pixels_are_missing_and_others_in_the_next_step():
    training, seen = Training(X + 1, y, size=4), []

    def look(batch_, labels, params):
        seen.append(batch_.numpy() != 0)
        return gradients(batch_, labels, params)

    for _ in range(2):
        momentum_step(training, look)
    assert 0.85 < np.mean(seen) < 0.95
    assert (seen[0] != seen[1]).any()


def test_restored_it_goes_on_equal_in_every_bit():
    one, other = Training(X, y, size=5), Training(X, y, size=5)
    for _ in range(3):
        momentum_step(one)
    restore(other, one.step, unpack(pack(Checkpoint(3, state_of(one)))).state)
    assert [momentum_step(one) for _ in range(2)] == [
        momentum_step(other) for _ in range(2)
    ]
    assert same_state(state_of(one), state_of(other)) and one.step == other.step == 5


def spoiled(state: dict, kind: str) -> dict:
    """The state of a training that is not this one."""
    if kind == "missing":
        return {n: a for n, a in state.items() if n != "noise"}
    if kind == "more":
        return {**state, "param8": np.zeros(3)}
    other = {"shape": np.zeros((10, 1)), "dtype": state["speed7"].astype(np.float32)}
    return {**state, "speed7": other[kind]}


@pytest.mark.parametrize("kind", ["missing", "more", "shape", "dtype"])
def test_the_state_of_another_model_is_refused_and_nothing_is_loaded(kind):
    training = Training(X, y)
    state = {n: a + 1 for n, a in state_of(training).items()}
    before = state_of(training)
    with pytest.raises(ValueError, match="another model's: it differs in .'(n|p|s)"):
        restore(training, 7, spoiled(state, kind))
    assert same_state(state_of(training), before) and training.step == 0


def undisturbed(steps: int) -> dict:
    training = Training(X, y)
    for _ in range(steps):
        momentum_step(training)
    return state_of(training)


@pytest.mark.parametrize("fatal", [1, 3, 5])
def test_a_training_that_dies_in_any_step_resumes_equal(tmp_path, monkeypatch, fatal):
    def dying(training, sums):
        if training.step == fatal - 1:
            raise Killed
        return momentum_step(training, sums)

    with monkeypatch.context() as patched:
        patched.setattr(worker_dies, "momentum_step", dying)
        with pytest.raises(Killed):
            train_until(Training(X, y), tmp_path, 5, 2)
    kept = (fatal - 1) // 2 * 2
    training = Training(X, y)
    train_until(training, tmp_path, 5, 2)
    assert same_state(state_of(training), undisturbed(5))
    assert noted(tmp_path / "steps") == [*range(1, fatal), *range(kept + 1, 6)]
    assert sorted(noted(tmp_path / "saves")) == [2, 4, 5]


def test_on_notice_it_saves_and_ends_with_the_status_that_means_again(tmp_path):
    with pytest.raises(SystemExit) as end:
        train_until(Training(X, y), tmp_path, 5, 4, notice=[signal.SIGTERM])
    assert end.value.code == PREEMPTED
    assert newest_checkpoint(tmp_path).step == 1 and noted(tmp_path / "steps") == [1]


def test_a_notice_between_any_two_lines_loses_no_step(tmp_path, monkeypatch):
    notice, note = [], worker_dies.deaths.note

    def interrupted(path, step):
        notice.append(signal.SIGTERM)
        note(path, step)

    monkeypatch.setattr(worker_dies.deaths, "note", interrupted)
    with pytest.raises(SystemExit):
        train_until(Training(X, y), tmp_path, 5, 4, notice=notice)
    assert newest_checkpoint(tmp_path).step == noted(tmp_path / "steps")[-1] == 2


def test_a_process_that_is_asked_to_end_does_so_after_its_step(tmp_path):
    with Worker(trainer, X, y, tmp_path, 100, name="it") as worker:
        worker.send(10_000)
        while not noted(tmp_path / "steps"):
            assert worker.process.is_alive()
            time.sleep(0.01)
        worker.process.terminate()
        with pytest.raises(RuntimeError, match=rf"died \(exit code {PREEMPTED}\)"):
            worker.receive()
    taken = noted(tmp_path / "steps")
    assert newest_checkpoint(tmp_path).step == taken[-1] == len(taken)


def test_a_ring_trains_the_same_and_only_its_chief_saves(tmp_path):
    alone = Ring(0, 1, [], 5)
    state = train_ring(alone, X, y, tmp_path, 3, 2)
    assert same_state(state, undisturbed(3))
    assert newest_checkpoint(tmp_path).step == 3
    (tmp_path / "other").mkdir()
    training = Training(X, y)
    train_until(training, tmp_path / "other", 1, 1, partial(ring_sums, alone), False)
    assert newest_checkpoint(tmp_path / "other") is None and training.step == 1


# How often to save.


@pytest.mark.parametrize("save_time", [1.0, 5.0])
@pytest.mark.parametrize("mean_life", [500.0, 5000.0])
def test_youngs_interval_is_the_best_nearly(save_time, mean_life):
    works = np.geomspace(1, mean_life, 2000)
    shares = goodput(works, save_time, 3.0, mean_life)
    best = young_daly(save_time, mean_life)
    assert best == pytest.approx((2 * save_time * mean_life) ** 0.5)
    assert shares.max() - goodput(best, save_time, 3.0, mean_life) < 1e-3
    assert works[shares.argmax()] == pytest.approx(best, rel=0.1)


def test_goodput_is_that_of_drawn_lives():
    rng = np.random.default_rng(1)
    lives = rng.exponential(100, 200_000)
    kept = 12 * np.floor(np.maximum(lives - 7, 0) / (12 + 3))
    share = kept.sum() / lives.sum()
    assert goodput(12, 3, 7, 100) == pytest.approx(share, abs=0.005)
    assert goodput(12, 0, 0, 1e9) == pytest.approx(1)


def test_a_life_keeps_exactly_the_rounds_it_has_room_for(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "fork", raising=False)  # an exception ends it
    for dies in (5, 20, 35, 36):  # a restart of 5, then rounds of 10 + 5
        with pytest.raises(KeyboardInterrupt):
            live(tmp_path, 10, 5, 5, Ticks(dies))
    assert newest_checkpoint(tmp_path).step == 10 * (0 + 0 + 1 + 2)


# Started again.


class Cluster:
    """Ends with these statuses, one a start, and is then so far."""

    def __init__(self, *ends: tuple[int, int]) -> None:
        self.ends, self.far = list(ends), 0

    def start(self) -> None:
        status, self.far = self.ends.pop(0)
        if status:
            raise ClusterError(f"ended with {status}", status)


@pytest.mark.parametrize(
    ("ends", "statuses"),
    [
        ([(0, 9)], [0]),
        ([(PREEMPTED, i) for i in range(1, 6)] + [(0, 9)], [PREEMPTED] * 5 + [0]),
        ([(PREEMPTED, 0)] * 2 + [(0, 9)], [PREEMPTED] * 2 + [0]),  # before a save
        ([(1, 3), (137, 4), (PREEMPTED, 4), (0, 9)], [1, 137, PREEMPTED, 0]),
        ([(1, 0), (9, 0), (0, 9)], [1, 9, 0]),  # died before the first save
        (
            [(1, 0), (1, 0), (1, 5), (1, 5), (1, 5), (0, 9)],
            [1] * 5 + [0],
        ),  # progress brings the patience back
        (
            [(1, 0), (1, 0), (PREEMPTED, 0), (1, 0), (1, 0), (0, 9)],
            [1, 1, PREEMPTED, 1, 1, 0],
        ),  # and so does a notice
    ],
)
def test_a_cluster_is_started_again_while_there_is_patience(ends, statuses):
    cluster = Cluster(*ends)
    assert launch_again(cluster.start, lambda: cluster.far) == statuses
    assert cluster.ends == []


@pytest.mark.parametrize("before", [[], [(1, 3)], [(PREEMPTED, 3)]])
@pytest.mark.parametrize("patience", [1, 2, 4])
def test_one_that_fails_again_and_again_at_the_same_place_is_given_up(before, patience):
    far = before[-1][1] if before else 0
    fails = [(134 + i, far) for i in range(patience)]
    cluster = Cluster(*before, *fails, (0, 9))
    said = f"failed {patience} times in a row.* ended with {fails[-1][0]}"
    with pytest.raises(ClusterError, match=said) as failed:
        launch_again(cluster.start, lambda: cluster.far, patience)
    assert failed.value.status == fails[-1][0]
    assert len(cluster.ends) == 1


@pytest.mark.parametrize("between", [[], [(1, 0)]])
def test_notices_that_leave_nothing_saved_do_not_start_it_for_ever(between):
    cluster = Cluster((PREEMPTED, 0), *between, *[(PREEMPTED, 0)] * 2, (0, 9))
    with pytest.raises(ClusterError, match="ended 3 times .* let it save") as asked:
        launch_again(cluster.start, lambda: cluster.far)
    assert asked.value.status == PREEMPTED and cluster.ends == [(0, 9)]


def test_without_another_word_three_failures_in_a_row_are_enough():
    cluster = Cluster(*[(1, 0)] * 3, (0, 9))
    with pytest.raises(ClusterError):
        launch_again(cluster.start, lambda: cluster.far)
    assert len(cluster.ends) == 1


def test_another_error_is_not_for_it():
    def start():
        raise FileNotFoundError("no such script")

    with pytest.raises(FileNotFoundError):
        launch_again(start, lambda: 0)
