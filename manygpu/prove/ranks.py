"""The ranks of a mesh: whose gradient was counted how often, and along which axis.

The first witness sees whole copies of the weights, and counts samples. On a mesh, a
rank holds a part of a copy, and its gradient is a sum of what the ranks along some axes
found. So here each rank's part is compared with one device's. Where it differs, the
judge solves for how often each rank's summand is in it, or each place's samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from manygpu.prove.subject import Arrays
from manygpu.prove.verdict import told
from manygpu.trainings.contract import Ranks

Key = tuple[int, ...]
Said = tuple[str, Sequence[str]]  # a sentence, and the axes that it names
Counted = list[tuple[Sequence[int], float, bool]]  # ranks, how often, whether it's due
NEAR = 1e-6  # what rounding may leave in float64, of a count and of a gradient


class RankGradients:
    """What ranks were moved by, beside one device's gradients.

    Args:
        ranks: what they hold and did.
        whole: one device's gradient for each parameter, summed over the batch.
        near: how far a count may be off, and a number of a parameter's gradient as a
            part of the largest one.
    """

    def __init__(self, ranks: Ranks, whole: Arrays, near: float = NEAR) -> None:
        self.ranks, self.whole, self.near = ranks, whole, near
        shape, count = tuple(ranks.sizes.values()), len(ranks.moved)
        places = zip(*np.unravel_index(np.arange(count), shape), strict=True)
        self.at = [dict(zip(ranks.sizes, map(int, p), strict=True)) for p in places]

    def letter(self, key: Key, axis: str) -> str:
        return self.ranks.letters[key].get(axis, "R")

    def part(self, key: Key, whole: Arrays, rank: int) -> np.ndarray:
        return np.asarray(self.ranks.part(key, whole, rank))

    def moved(self, rank: int, key: Key) -> np.ndarray:
        return np.asarray(self.ranks.moved[rank][key])

    def is_part_of(self, other: int, rank: int, key: Key) -> bool:
        """Whether a rank was moved by another one's part of one device's gradient."""
        moved, due = self.moved(rank, key), self.part(key, self.whole, other)
        largest = max(np.abs(self.whole[n]).max(initial=0) for n in key) or 1.0
        if moved.shape != due.shape:
            return False
        return bool(np.abs(moved - due).max(initial=0) <= self.near * largest)

    def wrong(self) -> list[tuple[int, Key]]:
        """The ranks and keys that weren't moved by their part."""
        every = [(r, key) for r, held in enumerate(self.ranks.moved) for key in held]
        return [(r, key) for r, key in every if not self.is_part_of(r, r, key)]

    def between(self, a: int, b: int) -> list[str]:
        """The axes along which two ranks differ."""
        return [x for x in self.ranks.sizes if self.at[a][x] != self.at[b][x]]

    def place(self, ranks: Iterable[int], but: Sequence[str] = ()) -> str:
        """What these ranks have in common that not all have, such as "data 1"."""
        ranks, common = list(ranks), []
        for axis, size in self.ranks.sizes.items():
            found = {self.at[rank][axis] for rank in ranks}
            if axis not in but and size > 1 and len(found) == 1:
                common.append(f"{axis} {found.pop()}")
        return ", ".join(common)

    def telling(self, ranks: set[int], among: set[int]) -> list[Said]:
        """Name ranks by the one axis that tells them from others, or one by one."""
        for axis in self.ranks.sizes:
            found = {self.at[rank][axis] for rank in ranks}
            others = {self.at[rank][axis] for rank in among - ranks}
            if others and not found & others:
                return [(f"{axis} {i}", (axis,)) for i in sorted(found)]
        return [(self.place([rank]), tuple(self.ranks.sizes)) for rank in sorted(ranks)]

    def copies(self, key: Key, axis: str) -> int:
        """How many ranks along an axis find a gradient for the same array."""
        if self.letter(key, axis) == "S" and not self.cuts_samples(axis):
            return 1
        held = [r for r, own in enumerate(self.ranks.moved) if key in own]
        return len({self.at[rank][axis] for rank in held})

    def cuts_samples(self, axis: str) -> bool:
        """Whether ranks that differ only along an axis have other samples."""
        seen = self.ranks.samples
        there = [r for r in range(len(self.at)) if self.between(0, r) == [axis]]
        return any(list(seen[r]) != list(seen[0]) for r in there)

    def solved(self, columns: Sequence[np.ndarray], total: np.ndarray) -> list[float]:
        """Return how often each column is in a total; [] where that can't be told."""
        if not columns or len(columns[0]) != len(total):
            return []
        A = np.stack(columns, 1)
        if not np.isfinite(A).all():
            return []
        if np.linalg.matrix_rank(A, 1e-9 * np.abs(A).max(initial=0)) < A.shape[1]:
            return []
        counts = np.linalg.lstsq(A, total, rcond=None)[0]
        left = np.abs(A @ counts - total).max(initial=0)
        most = self.near * (np.abs(total).max(initial=0) or 1.0)
        return counts.tolist() if left <= most else []


def misses(grads: RankGradients, each: Sequence[Arrays] = ()) -> list[str]:
    """Return what is wrong with the ranks' gradients, in sentences; [] if nothing is.

    each: one device's gradients for each sample alone; none: no samples are counted.
    """
    said: dict[Said, set[int]] = {}
    factors: dict[float, set[tuple[int, Key]]] = {}
    unknown: list[int] = []
    for rank, key in grads.wrong():
        found = list(of_place(grads, rank, key))
        counts = of_summands(grads, rank, key)
        by_samples = not any(abs(n - due) > grads.near for _, n, due in counts)
        if by_samples:
            counts = of_samples(grads, rank, key, each)
        factor = None if found else one_factor(grads, counts)
        if factor not in (None, 1.0):
            factors.setdefault(factor, set()).add((rank, key))
            continue
        found = found or list(of_counts(grads, counts, by_samples))
        for one in found:
            said.setdefault(one, set()).add(rank)
        if not found:
            unknown.append(rank)
    sentences = [of_factor(grads, factor, own) for factor, own in factors.items()]
    for (text, axes), ranks in said.items():
        where = grads.place(ranks, but=axes)
        sentences.append(f"{text}, at {where}" if where else text)
    return sentences or of_rest(grads, unknown)


def of_place(grads: RankGradients, rank: int, key: Key) -> Iterator[Said]:
    """Yield whose part of the gradient a rank has, if it has another one's."""
    for other, held in enumerate(grads.ranks.moved):
        axes = grads.between(rank, other)
        if (
            not axes
            or key not in held
            or any(grads.letter(key, x) != "S" for x in axes)
        ):
            continue
        if grads.is_part_of(other, rank, key):
            here, there = (
                ", ".join(f"{axis} {grads.at[r][axis]}" for axis in axes)
                for r in (rank, other)
            )
            yield f"{here} has the part of {there}", tuple(axes)


def of_summands(grads: RankGradients, rank: int, key: Key) -> Counted:
    """Return how often the ranks' summands are in what moved a rank.

    Along an axis where all find the same, only this rank's own is asked.
    """
    total, asked, columns = grads.moved(rank, key), [], []
    for other, found in enumerate(grads.ranks.own):
        axes = grads.between(rank, other)
        if key not in found or any(grads.letter(key, axis) == "I" for axis in axes):
            continue
        if np.shape(found[key]) == total.shape:
            due = all(grads.letter(key, axis) == "R" for axis in axes)
            asked.append(([other], due))
            columns.append(np.ravel(found[key]))
    counts = grads.solved(columns, total.ravel())
    return [(one, n, due) for (one, due), n in zip(asked, counts, strict=False)]


def of_samples(
    grads: RankGradients, rank: int, key: Key, each: Sequence[Arrays]
) -> Counted:
    """Return how often each place's samples are in what moved a rank."""
    places: dict[tuple[int, ...], list[int]] = {}
    for other, own in enumerate(grads.ranks.samples):
        places.setdefault(tuple(own), []).append(other)
    if not len(each) or len(places) < 2:
        return []
    columns = []
    for numbers in places:
        whole = [sum(of) for of in zip(*(each[i] for i in numbers), strict=True)]
        columns.append(grads.part(key, whole, rank).ravel())
    counts = grads.solved(columns, grads.moved(rank, key).ravel())
    return [(own, n, True) for own, n in zip(places.values(), counts, strict=False)]


def one_factor(grads: RankGradients, counts: Counted) -> float | None:
    """Return the factor, if all that is due was counted as often, and nothing else."""
    times = [count for _, count, due in counts if due]
    rest = [abs(count) for _, count, due in counts if not due]
    if not times or np.ptp(times) > grads.near or max(rest, default=0) > grads.near:
        return None
    return round(float(np.mean(times)), 4)


def of_counts(
    grads: RankGradients, counts: Counted, by_samples: bool
) -> Iterator[Said]:
    """Yield whose summand, or whose samples, are counted more or less than is due."""
    wrong: dict[tuple[float, bool], set[int]] = {}
    for ranks, count, due in counts:
        if abs(count - due) > grads.near:
            wrong.setdefault((round(count, 4), due), set()).update(ranks)
    for (count, due), miscounted in wrong.items():
        among = {r for ranks, _, is_due in counts for r in ranks if is_due >= due}
        what = "samples of " if by_samples else ""
        for named, axes in grads.telling(miscounted, among):
            yield f"{what}{named} counted {told(count)} times, due {due:d}", axes


def of_factor(grads: RankGradients, factor: float, wrong: set[tuple[int, Key]]) -> str:
    """Say how often whole sums are counted, and along which axis they may be.

    That is an axis with so many copies of each array that is wrong; if there are
    several, the one with so many copies of the fewest other arrays.
    """
    keys, where = {key for _, key in wrong}, grads.place({rank for rank, _ in wrong})
    text = f"each summand counted {told(factor)} times, due 1"
    text += f", at {where}" if where else ""
    for how, count in (
        ("as if summed one time too many along", factor),
        ("as if divided by the number of ranks along", 1 / (factor or 1)),
    ):
        found: dict[int, list[str]] = {}
        for axis in grads.ranks.sizes:
            copied = {
                k for k in grads.ranks.letters if has_copies(grads, k, axis, count)
            }
            if keys <= copied:
                found.setdefault(len(copied), []).append(axis)
        if found:
            return f"{text}, {how} {' or '.join(found[min(found)])}"
    return text


def has_copies(grads: RankGradients, key: Key, axis: str, count: float) -> bool:
    """Whether so many ranks along an axis find a gradient for an array, two or more."""
    copies = grads.copies(key, axis)
    return copies > 1 and abs(copies - count) <= 1e-3 * copies


def of_rest(grads: RankGradients, ranks: Sequence[int]) -> list[str]:
    """Say only where the gradients are that are no part of one device's."""
    if not ranks:
        return []
    where = grads.place(ranks)
    named = f"the ranks at {where}" if where else f"{len({*ranks})} ranks"
    return [f"{named} have a gradient that is no part of one device's"]
