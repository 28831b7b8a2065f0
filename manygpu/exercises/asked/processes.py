"""Exercises of part 7: processes that share nothing, and processes that die."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from manygpu.exercises.checking import exercise
from manygpu.exercises.drawn import arrays
from manygpu.exercises.flaws import flaw
from manygpu.exercises.saying import all_off, mistaken, off, other, whole_numbers


def _streams(draw: random.Random) -> Iterator[tuple]:
    yield from (([[1, 7]],), ([[1], [7]],), ([[1, 7, 2, 8, 9]],), ([[0, 1, 7]],))
    yield from (([[1, 7, 2, 7]],), ([],))
    for _ in range(4):
        sizes = [draw.randint(0, 5) for _ in range(6)]
        told = [[n, *(draw.randint(0, 255) for _ in range(n))] for n in sizes]
        stream = sum(told, [])[: -draw.randint(1, 3)]
        cuts = sorted(draw.sample(range(len(stream)), min(4, len(stream))))
        ends = zip([0, *cuts], [*cuts, len(stream)])
        yield ([stream[a:b] for a, b in ends],)


def _told(stream: list[int]) -> list[list[int]]:
    """The complete messages of a stream."""
    told, at = [], 0
    while at < len(stream) and at + stream[at] < len(stream):
        told.append(stream[at + 1 : at + 1 + stream[at]])
        at += 1 + stream[at]
    return told


@exercise(
    "many-workers/messages",
    '''
def my_messages(pieces):
    """Return the complete messages in a stream of bytes, each a list of bytes.

    A message is one byte that gives its length, followed by this many bytes.
    Leave out the first byte of each message, and also a message at the end
    that isn't complete.

    pieces: what each call of `recv` returned, a list of whole numbers from 0
        to 255. A piece can end anywhere.
    """
    raise NotImplementedError(
        "A piece can end anywhere. So what should you do first?",
    )
''',
    _streams,
)
def judge_messages(found, pieces):
    right, found = _told(sum(pieces, [])), [list(message) for message in found]
    wrong = other(found, right)
    more = wrong and found[:-1] == right and wrong
    yield "an incomplete message is left out", more
    as_pieces = [piece[1:] for piece in pieces], sum(map(_told, pieces), [])
    firsts = [piece[1 : 1 + piece[0]] for piece in pieces if piece]
    yield "a piece is no message", wrong and found in (*as_pieces, firsts) and wrong
    full = wrong and found == [message for message in right if message] and wrong
    yield "an empty message is a message", full
    yield "a message is as long as it says", wrong


def _members(draw: random.Random) -> Iterator[tuple]:
    yield from ((n,) for n in (1, 2, 3, 4, draw.randint(5, 9)))


@exercise(
    "many-workers/leftwards",
    '''
def my_plan(n):
    """Return the plan of a reduce-scatter whose messages go to the LEFT.

    In each of n - 1 steps, each rank sends its sum so far of chunk `give` to
    rank - 1, and rank 0 sends to the last rank. The rank adds the chunk that
    arrives from its right neighbour to its own chunk `add`. In the end, rank i
    must have the complete sum of chunk i.

    The result is plan[rank][step] = (give, add), two numbers of chunks.
    """
    raise NotImplementedError(
        "Which chunk does a rank give in the step after it has added to it?"
    )
''',
    _members,
)
def judge_leftwards(found, n):
    steps = [len(own) for own in found]
    said = steps != [n - 1] * n and f"for each rank, they are {steps}"
    yield "n - 1 steps for each rank", said
    far = [x for own in found for pair in own for x in pair if not -n <= x < n]
    yield "chunks have the numbers 0 to n - 1", far and f"one is {far[0]}"
    held = [[Counter({rank: 1}) for _ in range(n)] for rank in range(n)]
    for step in range(n - 1):
        gives = [list(own)[step][0] % n for own in found]
        adds = [list(own)[step][1] % n for own in found]
        apart = [r for r in range(n) if adds[r] != gives[(r + 1) % n]]
        said = apart and f"rank {apart[0]} adds to another chunk in step {step}"
        yield "the left neighbour adds the chunk that a rank gives", said
        moving = [held[rank][gives[rank]].copy() for rank in range(n)]
        for rank in range(n):
            held[rank][adds[rank]] += moving[(rank + 1) % n]
        most = max(max(parts.values()) for own in held for parts in own)
        twice = most > 1 and f"a part is added twice in step {step}"
        yield "each part is added once", twice
    lacks = [r for r in range(n) if len(held[r][r]) < n]
    said = lacks and f"rank {lacks[0]} has {len(held[lacks[0]][lacks[0]])} parts of {n}"
    yield "rank i ends with all of chunk i", said


def _firsts(draw: random.Random) -> Iterator[tuple]:
    send, receive = "send", "receive"
    yield from (([send, receive],), ([send] * 2,), ([receive] * 2,))
    yield from (([receive, send, send],), ([send, receive] * 2,), ([send] * 5,))
    for _ in range(4):
        yield ([draw.choice((send, receive)) for _ in range(draw.randint(3, 8))],)


def _rounds(first: list[str]) -> int | None:
    """Rounds until all have sent and received; None if some wait forever."""
    left = [["send", "receive"] if a == "send" else ["receive", "send"] for a in first]
    count = 0
    while any(left):
        pairs = [
            (own, right)
            for own, right in zip(left, left[1:] + left[:1])
            if own[:1] == ["send"] and right[:1] == ["receive"]
        ]
        if not pairs:
            return None
        for own, right in pairs:
            del own[0], right[0]
        count += 1
    return count


@exercise(
    "many-workers/rounds",
    '''
def my_rounds(first):
    """Return after how many rounds all messages of a ring have passed.

    Rank i sends one message to rank i + 1, and the last rank sends to rank 0.
    Each rank sends and receives once, one after the other. In a round, a
    message passes if its sender is sending while its receiver is receiving,
    and then both go on to what they do next. If not all messages can pass,
    return None.

    first: for each rank, "send" or "receive", whichever it does first.
    """
    raise NotImplementedError(
        "Keep a list of what each rank has yet to do. Which ranks form a pair?"
    )
''',
    _firsts,
)
def judge_rounds(found, first):
    right = _rounds(first)
    ends = len(set(first)) == 1 and other(found, None)
    yield "if all ranks do the same first, all wait", ends
    waits = found is None and right is not None and "it is None"
    yield "one rank that does the other first is enough", waits
    more = right is not None and found > right and f"it is {found}"
    yield "all pairs that can pass do so in one round", more
    yield "a rank that waits goes on in a later round", other(found, right)


def _lives(draw: random.Random) -> Iterator[tuple]:
    yield from (([], 5), ([8], 5), ([5], 5), ([3], 5), ([8, 8], 5), ([2, 4], 5))
    for _ in range(4):
        yield [draw.randint(0, 30) for _ in range(5)], draw.randint(2, 9)


@exercise(
    "worker-dies/begins",
    '''
def my_begins(taken, every):
    """Return the step from which each life of a training run continues.

    The first life begins at step 0. The run saves after step `every`, after
    step 2 * `every`, and so on. Each new life continues from the newest
    checkpoint.

    taken: for each life, how many steps it takes before it dies. One more life
        follows the last of them, and the result has a number for it, too.
    """
    raise NotImplementedError(
        "How far did a life get? Which part of that was saved?",
    )
''',
    _lives,
)
def judge_begins(found, taken, every):
    right = [0]
    for steps in taken:
        right.append((right[-1] + steps) // every * every)
    found = whole_numbers(found)
    yield "one number per life", other(len(found), len(right))
    wrong = other(found, right)
    ends = [0, *itertools.accumulate(taken)]
    kept = wrong and found in (ends, [end // every * every for end in ends]) and wrong
    yield "steps after the last save are lost", kept
    alone = [0, *(steps // every * every for steps in taken)]
    yield "steps that were saved stay", wrong and found == alone and wrong
    before = [0]
    for steps in taken:
        before.append(max(0, before[-1] + steps - 1) // every * every)
    yield "a save in its last step counts", wrong and found == before and wrong
    yield "a life goes on from the newest save", wrong


def _files(draw: random.Random) -> Iterator[tuple]:
    yield from (([],), ([(5, 5)],), ([(5, None)],), ([(5, 5), (10, None)],))
    yield from (([(5, 5), (9, 7)],), ([(10, 10), (5, 5)],), ([(9, 12)],))
    for _ in range(4):
        names = draw.sample(range(1, 100), 6)
        held = [draw.choice((name, None, name + 1)) for name in names]
        yield (list(zip(names, held)),)


@exercise(
    "worker-dies/resume",
    '''
def my_resume(files):
    """Return the step to resume from, or None if the run must stop.

    A file is intact if the step in its name is the step inside. Resume from
    the newest intact file. If there are no files, begin at step 0. If there
    are files, but none of them is intact, return None.

    files: for each checkpoint, in any order, (step in the name, step inside).
        The step inside is None if the file's digest is wrong.
    """
    raise NotImplementedError(
        "Which files are intact? Which of these is the newest?",
    )
''',
    _files,
)
def judge_resume(found, files):
    whole = [name for name, inside in files if name == inside]
    yield "without a file it begins at 0", not files and other(found, 0)
    stops = bool(files) and not whole and other(found, None)
    yield "if no file is intact, it stops", stops
    damaged = [name for name, inside in files if inside is None]
    yield "no damaged file is taken", found in damaged and f"it is {found}"
    lies = {step for both in files if both[0] != both[1] for step in both} - {
        *whole,
        None,
    }
    yield "a file under a wrong name isn't taken", found in lies and f"it is {found}"
    yield (
        "the newest intact file is taken",
        bool(whole) and found != max(whole) and (f"it is {found}"),
    )


def _stored(draw: random.Random) -> Iterator[tuple]:
    few = ([2], 2), ([2, 2, 2], 2), ([3, 2], 3), ([2], 3)
    for sizes, n in (*few, ([4, 3, 3], 4), ([4, 4, 3, 3], 3)):
        starts = [0, *itertools.accumulate(sizes)]
        pieces = [(start, arrays(draw, size)) for start, size in zip(starts, sizes)]
        yield pieces, n
        yield draw.sample(pieces, len(pieces)), n


@exercise(
    "worker-dies/pieces",
    '''
def my_pieces(stored, n):
    """Return a stored state as n workers need it, as a list of arrays.

    A different number of workers may have stored the state. Split the whole
    into n slices that differ by at most one number. The larger slices come
    first. If there are few numbers, the last slices are empty.

    stored: for each worker that stored, in any order, (start, numbers): the
        position in the whole where its array begins, and the array.
    """
    raise NotImplementedError("First join the pieces. In which order?")
''',
    _stored,
)
def judge_pieces(found, stored, n):
    yield "one slice per worker", other(len(found), n)
    given = [numbers for _, numbers in stored]
    ordered = [numbers for _, numbers in sorted(stored, key=lambda own: own[0])]
    right = np.array_split(np.concatenate(ordered), n)
    wrong = all_off(found, right, "worker")
    as_given = np.array_split(np.concatenate(given), n)
    yield (
        "pieces go where they belong",
        wrong and not all_off(found, as_given) and wrong,
    )
    lengths = other([len(own) for own in found], [len(own) for own in right])
    yield "slices differ by at most one, larger ones first", lengths
    yield "the slices are the whole", wrong


def _fused(draw: random.Random) -> Iterator[tuple]:
    for widths in ([1], [1, 1], [2, 2], [2, 1], [1, 2, 3]):
        yield ([arrays(draw, 2, 3 * width) for width in widths],)
    for _ in range(4):
        rows = draw.randint(1, 4)
        ranks = range(draw.randint(2, 4))
        yield ([arrays(draw, rows, 3 * draw.randint(1, 4)) for _ in ranks],)


def _joined(slices: list[np.ndarray], order: tuple = (0, 1, 2)) -> np.ndarray:
    """The three parts of all ranks, in an order."""
    parts = [np.split(own, 3, axis=1) for own in slices]
    return np.concatenate([own[i] for i in order for own in parts], axis=1)


@exercise(
    "worker-dies/whole",
    '''
def my_whole(slices):
    """Return a fused weight as one device has it, as a matrix.

    On one device, its columns are those of all queries, then those of all
    keys, then those of all values. Each of these three parts is cut into
    slices, in the order of the ranks. Ranks may have different widths.

    slices: for each rank, a matrix (rows, columns) with the rank's queries,
        keys and values side by side. All three have the same width.
    """
    raise NotImplementedError("Which columns of rank 1 come after rank 0's?")
''',
    _fused,
)
def judge_whole(found, slices):
    right = _joined(slices)
    shapes = other(list(np.shape(found)), list(right.shape))
    yield "it has all rows and columns", shapes
    side_by_side = mistaken(found, right, np.concatenate(slices, axis=1))
    yield "the ranks' matrices aren't put side by side", side_by_side
    backward = mistaken(found, right, _joined(slices[::-1]))
    yield "the slices are in the order of the ranks", backward
    orders = list(itertools.permutations(range(3)))[1:]
    turned = [mistaken(found, right, _joined(slices, order)) for order in orders]
    yield "queries come first, then keys, then values", next(filter(None, turned), "")
    wrong = off(found, right)
    columns = sorted(map(tuple, np.asarray(found, float).T))
    given = columns == sorted(map(tuple, right.T))
    yield "the columns are those of the ranks", not given and wrong
    yield "they are in the order of one device", wrong


def _two_of_four(whole: Callable) -> str:
    def named(heads: tuple[int, int]) -> np.ndarray:
        return np.array([[10.0 * part + head for part in (1, 2, 3) for head in heads]])

    found = whole([named((0, 1)), named((2, 3))])
    said = ", ".join(f"{number:.0f}" for number in np.ravel(found))
    return (
        "there are four heads on two ranks. The queries' columns hold 10 to 13, the "
        f"keys' 20 to 23 and the values' 30 to 33. The result is {said}"
    )


flaw(
    "worker-dies/whole",
    """
import numpy as np


def my_whole(slices):
    rows = len(slices[0])
    by_part = [own.reshape(rows, -1, 3) for own in slices]
    whole = np.concatenate(by_part, axis=1)
    return whole.transpose(0, 2, 1).reshape(rows, -1)
""",
    _two_of_four,
    "they are in the order of one device",
)
