"""Answers that somebody could give to each puzzle, and what each one breaks."""

from manygpu.exercises.puzzles.memory import EACH_GRADIENT, FIRST
from manygpu.exercises.puzzles.memory import ONCE as NAMED_ONCE
from manygpu.exercises.puzzles.messages import ALL, HAS, ONCE, PORT
from manygpu.exercises.puzzles.passes import COMES, EACH
from manygpu.exercises.puzzles.placements import (
    APART,
    EACH_EXPERT,
    EACH_LAYER,
    EACH_PLACE,
)
from manygpu.exercises.puzzles.plans import FITS
from manygpu.exercises.puzzles.schedules import IN_TIME
from manygpu.exercises.puzzles.scoring import FORM

FORWARD = [("F", m) for m in range(8)]
BACKWARD = [("B", m) for m in range(8)]
LATE = [("F", 0), ("B", 0)]
W = [("W", m) for m in range(8)]
BOTH = [(k, m, s) for k in "FB" for s in (0, 4) for m in range(8)]


def looped(one: list) -> list:
    """The same order on each device, with the device's own stages."""
    return [[(k, m, s + d) for k, m, s in one] for d in range(4)]


def ring(n: int, steps: int, turn: int = -1) -> list:
    """A ring's rounds; with another turn, the wrong chunks."""
    return [
        [(d, (d + 1) % n, (d + turn * step) % n) for d in range(n)]
        for step in range(steps)
    ]


WRONG = {
    "broadcast": [
        ([[(0, d) for d in range(1, 13)]], PORT),  # all at once
        ([[(d, d + 1)] for d in range(11)], ALL),  # one too few
        ([[(1, 2)], [(0, 1)]], HAS),
        ([[(0, 13)]], FORM),  # counted from 1
    ],
    "relay": [
        ([[(0, d, c)] for c in range(4) for d in range(1, 7)], ALL),
        ([[(0, 1, 0), (1, 2, 0)]], HAS),  # passed on in the same round
        ([[(0, 1, 0), (0, 2, 1)]], PORT),
    ],
    "all-gather": [
        ([[(d, (d + 1) % 6, [d]) for d in range(6)]], ALL),
        ([[(d, 0, [d]) for d in range(1, 6)]], PORT),
        ([[(d, (d + 1) % 6, [0]) for d in range(6)]], HAS),
        ([[(0, 1, 0)]], FORM),
        ([[(0, 1, [0, 0])]], FORM),
        ([[(0, 1, [])]], FORM),
    ],
    "ring": [
        (ring(4, 3), ALL),  # reduced and scattered, not gathered
        (ring(4, 6, 1), ONCE),  # chunks the other way
        ([[(0, 1, 0)], [(0, 1, 0)]], ONCE),
        ([[(d, 0, 0) for d in range(1, 4)]], PORT),
    ],
    "two-machines": [
        (ring(8, 7), ALL),
        (ring(8, 14, 1), ONCE),
        ([[(0, 8, 0)]], FORM),
    ],
    "bubble": [
        ([FORWARD] * 4, EACH),  # no backward passes
        ([BACKWARD + FORWARD] * 4, COMES),
        ([[("F", m) for m in range(1, 9)]] * 4, FORM),
        ([FORWARD + BACKWARD] * 3, FORM),
        ([FORWARD + FORWARD + BACKWARD] * 4, EACH),
    ],
    "in-flight": [
        ([[p for m in range(8) for p in (("F", m), ("B", m))]] * 4, IN_TIME),
        ([FORWARD[:4] + BACKWARD[:4] + FORWARD[4:] + BACKWARD[4:]] * 4, IN_TIME),
        ([FORWARD + BACKWARD[:-1]] * 4, EACH),
    ],
    "split-backward": [
        ([FORWARD + BACKWARD + W] * 4, FITS),
        ([FORWARD + BACKWARD] * 4, EACH),
        ([FORWARD + W + BACKWARD] * 4, COMES),
    ],
    "interleaved": [
        (looped(BOTH), COMES),  # the first stage's backward before the second's
        (looped(BOTH[:16] + BOTH[24:] + BOTH[16:24]), FITS),
        (looped(BOTH[:16]), EACH),
        ([BOTH] * 4, EACH),  # another device's stages
    ],
    "stages": [
        ([3, 3, 3, 2], EACH_LAYER),
        ([2, 4, 3, 3], FITS),  # the fastest cut, without a look at memory
        ([6, 6], FORM),
    ],
    "experts": [
        ([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10], []], EACH_EXPERT),
        ([[*range(6)], [*range(6, 12)], [], []], FITS),
        ([[0, 0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]], APART),
    ],
    "mesh": [
        ([(g % 4, g // 4 % 4, 0) for g in range(32)], EACH_PLACE),
        ([(g % 4, g // 8, g % 2) for g in range(32)], EACH_PLACE),
        ([(g // 8, g % 8, 0) for g in range(32)], FORM),
    ],
    "recompute": [
        ([7, 14, 21], FIRST),
        ([0, 0, 7], NAMED_ONCE),
        ([0, 28], FORM),
    ],
    "sharded": [
        ([*range(9)], FITS),
        ([0, 1, 2, 3], FITS),  # without the layer that is gathered, they fit
        ([0, 0], NAMED_ONCE),
    ],
    "buckets": [
        ([12], FITS),
        ([1, 2, 3], EACH_GRADIENT),
        ([0, 12], FORM),
    ],
}
