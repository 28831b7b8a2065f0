"""Answers to exercises of parts 6 and 7."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, deque

import numpy as np


def parameter_by_counting(messages):
    finished, x = Counter(), 0.0
    for worker, number, change in messages:
        if number == finished[worker]:
            finished[worker] += 1
            x += change
    return x


def parameter_by_marks(messages):
    had = set()
    return sum(
        change
        for worker, number, change in messages
        if (worker, number) not in had and not had.add((worker, number))
    )


def by_last_number(messages):
    last, x = {}, 0.0
    for worker, number, change in messages:
        if last.get(worker) != number:
            x += change
        last[worker] = number
    return x


def walk(order, rate, before=False, pulls=True, fresh=False, up=-1):
    held, x, path = dict.fromkeys(order, 1.0), 1.0, []
    for worker in order:
        old = x
        x = x + up * rate * (x if fresh else held[worker])
        if pulls:
            held[worker] = old if before else x
        path.append(x)
    return path


def walk_by_search(order, rate):
    path = []
    for i, worker in enumerate(order):
        last = max((j for j in range(i) if order[j] == worker), default=None)
        pulled = 1.0 if last is None else path[last]
        path.append((path[-1] if path else 1.0) - rate * pulled)
    return path


def bytes_(numbers, width, n, k, place=4, messages=None, rounds=2, of=min):
    chunk = numbers // n * width
    passed = n - 1 if messages is None else messages
    return of(rounds * (n - 1) * chunk, passed * k * (place + width))


def packed_by_bits(levels):
    bits = "".join(f"{level:02b}" for level in reversed(levels))
    bits = bits.zfill(-(-len(bits) // 8) * 8)
    return [int(bits[at : at + 8], 2) for at in range(0, len(bits), 8)][::-1]


def packed_by_array(levels):
    filled = np.zeros(-(-len(levels) // 4) * 4, int)
    filled[: len(levels)] = levels
    return (filled.reshape(-1, 4) @ [1, 4, 16, 64]).tolist()


def packed(levels, powers=(1, 4, 16, 64), whole=False, count=4):
    end = len(levels) // 4 * 4 if whole else len(levels)
    parts = [levels[at : at + count] for at in range(0, end, count)]
    return [sum(a * b for a, b in zip(part, powers)) for part in parts]


def kept_by_sent(matrices, Q):
    P, _ = np.linalg.qr(sum(M @ Q for M in matrices))
    sent = [P @ (M.T @ P).T for M in matrices]
    return [M - own for M, own in zip(matrices, sent)]


def kept_by_projector(matrices, Q):
    P = np.linalg.svd(np.mean(matrices, axis=0) @ Q, full_matrices=False)[0]
    apart = np.eye(len(P)) - P @ P.T
    return [apart @ M for M in matrices]


def kept_by_each(matrices, Q):
    bases = [np.linalg.qr(M @ Q)[0] for M in matrices]
    return [M - P @ P.T @ M for M, P in zip(matrices, bases)]


def kept_raw(matrices, Q):
    P = np.sum(matrices, axis=0) @ Q
    return [M - P @ P.T @ M for M in matrices]


def sent_not_kept(matrices, Q):
    P = np.linalg.qr(np.sum(matrices, axis=0) @ Q)[0]
    return [P @ P.T @ M for M in matrices]


def kept_of_mean(matrices, Q):
    P = np.linalg.qr(np.sum(matrices, axis=0) @ Q)[0]
    mean = np.mean(matrices, axis=0)
    return [M - P @ P.T @ mean for M in matrices]


def late_by_queue(sums, rate, late):
    queue, w, path = deque([np.zeros(sums.shape[1])] * late), 0.0, []
    for own in sums:
        queue.append(own)
        w = w - rate * queue.popleft()
        path.append(w)
    return np.array(path)


def late_by_padding(sums, rate, late):
    filled = np.concatenate([np.zeros((late, sums.shape[1])), sums])
    return -rate * filled[: len(sums)].cumsum(0)


def late(sums, rate, late, up=-1, at=lambda t, d: t - d, first=None):
    w, path = np.zeros(sums.shape[1]), []
    for step in range(len(sums)):
        if step >= (late if first is None else first):
            w = w + up * rate * sums[at(step, late)]
        path.append(w)
    return np.array(path)


def steps_by_trying(size, speed, work, n):
    meeting = 2 * (n - 1) * size / n / speed
    return next(h for h in itertools.count(1) if h * work >= meeting)


def steps_by_division(size, speed, work, n):
    whole = -int(-(2 * size - 2 * size / n) // (speed * work))
    return whole or 1


def messages_by_one(pieces):
    told, left = [], None
    for byte in itertools.chain(*pieces):
        if left is None:
            told.append([])
            left = byte
        else:
            told[-1].append(byte)
            left -= 1
        left = left or None
    full = not told or left is None
    return told if full else told[:-1]


def messages_by_popping(pieces):
    stream = deque(byte for piece in pieces for byte in piece)
    told = []
    while stream and len(stream) > stream[0]:
        told.append([stream.popleft() for _ in range(stream.popleft())])
    return told


def messages_whole_or_not(pieces):
    stream, told, at = sum(pieces, []), [], 0
    while at < len(stream):
        told.append(stream[at + 1 : at + 1 + stream[at]])
        at += 1 + stream[at]
    return told


def messages_not_empty(pieces):
    return [message for message in messages_by_popping(pieces) if message]


def plan_backwards(n):
    plan = []
    for rank in range(n):
        own, add = [], rank
        for _ in range(n - 1):
            own.insert(0, ((add - 1) % n, add))
            add = (add - 1) % n
        plan.append(own)
    return plan


def plan_by_walking(n):
    plan = []
    for rank in range(n):
        give, own = (rank + 1) % n, []
        for _ in range(n - 1):
            own.append((give, (give + 1) % n))
            give = own[-1][1]
        plan.append(own)
    return plan


def plan(n, by=1, start=1):
    ranks, steps = range(n), range(n - 1)
    return [
        [((i + start + by * s) % n, (i + start + 1 + by * s) % n) for s in steps]
        for i in ranks
    ]


def plan_to_the_right(n):
    return [
        [((i - s - 1) % n, (i - s - 2) % n) for s in range(n - 1)] for i in range(n)
    ]


def rounds_by_state(first):
    n, done, count = len(first), [0] * len(first), 0
    while min(done) < 2:
        does = [
            "" if d == 2 else f if d == 0 else {"send": "receive"}.get(f, "send")
            for f, d in zip(first, done)
        ]
        go = [i for i in range(n) if does[i] == "send" and does[i + 1 - n] == "receive"]
        if not go:
            return None
        count += 1
        for i in go:
            done[i] += 1
            done[i + 1 - n] += 1
    return count


def rounds_by_runs(first):
    """A message waits for the one that its sender receives, or its receiver sends."""
    if len(set(first)) == 1:
        return None
    n, when = len(first), {}

    def passes(i):  # the round of the message from i to the next
        if i not in when:
            waits = [0]
            if first[i] == "receive":
                waits.append(passes((i - 1) % n))
            if first[(i + 1) % n] == "send":
                waits.append(passes((i + 1) % n))
            when[i] = 1 + max(waits)
        return when[i]

    return max(map(passes, range(n)))


def begins_by_saves(taken, every):
    saves, out = [0], [0]
    for steps in taken:
        at = saves[-1]
        saves += [s for s in range(at + 1, at + steps + 1) if s % every == 0]
        out.append(saves[-1])
    return out


def begins_by_sums(taken, every):
    return [0, *itertools.accumulate(n // every * every for n in taken)]


def begins_before(taken, every):
    out = [0]
    for steps in taken:
        out.append(max(0, out[-1] + steps - 1) // every * every)
    return out


def resume_in_order(files):
    for name, inside in sorted(files, reverse=True, key=lambda file: file[0]):
        if inside is not None and name == inside:
            return name
    return None if files else 0


def resume_by_fold(files):
    found = None if files else 0
    for name, inside in files:
        if inside == name and (found is None or name > found):
            found = name
    return found


def pieces_by_place(stored, n):
    whole = np.empty(sum(len(own) for _, own in stored))
    for start, own in stored:
        whole[start : start + len(own)] = own
    return np.array_split(whole, n)


def pieces_by_heap(stored, n):
    heap = [(start, i) for i, (start, _) in enumerate(stored)]
    heapq.heapify(heap)
    whole = []
    while heap:
        whole += stored[heapq.heappop(heap)[1]][1].tolist()
    few, more = divmod(len(whole), n)
    sizes = [few + (i < more) for i in range(n)]
    ends = [*itertools.accumulate(sizes)]
    return [np.array(whole[end - size : end]) for size, end in zip(sizes, ends)]


def pieces_as_given(stored, n):
    return np.array_split(np.concatenate([own for _, own in stored]), n)


def pieces_large_last(stored, n):
    whole = np.concatenate([own for _, own in sorted(stored, key=lambda p: p[0])])
    return [own[::-1] for own in np.array_split(whole[::-1], n)][::-1]


def pieces_of_the_ceiling(stored, n):
    whole = np.concatenate([own for _, own in sorted(stored, key=lambda p: p[0])])
    size = math.ceil(len(whole) / n)
    return [whole[i * size : (i + 1) * size] for i in range(n)]


def pieces_not_empty(stored, n):
    whole = np.concatenate([own for _, own in sorted(stored, key=lambda p: p[0])])
    return np.array_split(whole, min(n, len(whole)))


def pieces_of_the_first(stored, n):
    in_order = [own for _, own in sorted(stored, key=lambda p: p[0])]
    return np.array_split(np.concatenate([in_order[0], *in_order[:-1]]), n)


def whole_by_columns(slices):
    widths = [own.shape[1] // 3 for own in slices]
    whole = np.empty((len(slices[0]), 3 * sum(widths)))
    for part in range(3):
        at = part * sum(widths)
        for own, width in zip(slices, widths, strict=True):
            whole[:, at : at + width] = own[:, part * width : (part + 1) * width]
            at += width
    return whole


def whole_in_the_order(slices, parts=(0, 1, 2)):
    cut = [own.reshape(len(own), 3, -1) for own in slices]
    return np.hstack([own[:, part] for part in parts for own in cut])


def parted_by_zip(calls):
    late = object()
    for number, met in enumerate(itertools.zip_longest(*calls, fillvalue=late)):
        there = [name for name in met if name is not late]
        if len(set(there)) > 1:
            (_, most), (_, second), *_ = Counter(there).most_common(2)
            odd = [
                rank
                for rank, name in enumerate(met)
                if name is not late and (most == second or there.count(name) < most)
            ]
            return number, odd
    return None


def parted_by_counts(calls):
    ranks = range(len(calls))
    for at in range(max(len(own) for own in calls)):
        met = [calls[r][at] for r in ranks if at < len(calls[r])]
        most = max(met.count(name) for name in met)
        top = {name for name in met if met.count(name) == most}
        common = top.pop() if len(top) == 1 else None
        odd = [r for r in ranks if at < len(calls[r]) and calls[r][at] != common]
        if len(set(met)) > 1:
            return at, odd
    return None


def parted(calls, absent=False, last=False, all_=False, tie=True):
    found = None
    for at in range(max(map(len, calls))):
        met = {r: own[at] for r, own in enumerate(calls) if at < len(own)}
        if absent:
            met = dict.fromkeys(range(len(calls)), "") | met
        (common, most), *others = Counter(met.values()).most_common()
        level = tie and others and others[0][1] == most
        odd = [r for r in sorted(met) if all_ or level or met[r] != common]
        if len(set(met.values())) > 1:
            found = at, odd
            if not last:
                break
    return found


def slow_by_pairs(entered, left):
    def waited(rank):
        return math.fsum(b - a for a, b in zip(entered[rank], left[rank]))

    return sorted(range(len(entered)), key=waited)[0]


def slow_by_arrays(entered, left):
    return int((np.array(left) - np.array(entered)).mean(1).argmin())


def verdict_in_loops(logs):
    gone, late, furthest, lowest = [], [], -1, []
    for rank, (status, entered, inside) in enumerate(logs):
        gone += [rank] * (status == "gone")
        furthest = max(furthest, entered) if inside else furthest
        lowest += [(entered, rank)] * inside
    late = [r for r, (_, n, inside) in enumerate(logs) if n < furthest and not inside]
    if gone or not lowest:
        return ("missing", gone) if gone else ("nothing", [])
    link = [rank for n, rank in lowest if n == min(lowest)[0]]
    return ("straggler", late) if late else ("link", link)


def verdict(logs, gone=True, waits=False, come=False, lowest=True):
    dead = [r for r, (status, *_) in enumerate(logs) if status == "gone"]
    if gone and dead:
        return "missing", dead
    counts = [n for _, n, inside in logs if inside]
    if not counts:
        return "nothing", []
    late = [
        r
        for r, (_, n, inside) in enumerate(logs)
        if (waits or not inside) and n < max(counts) + come
    ]
    if late:
        return "straggler", late
    low = min(counts) if lowest else max(counts)
    return "link", [r for r, (_, n, inside) in enumerate(logs) if inside and n == low]


def step_by_ends(forward, backward, sums):
    ends = [*itertools.accumulate(backward[::-1], initial=sum(forward))][1:]
    later = [*itertools.accumulate(sums)]  # of a layer and those before it
    return max(end + rest for end, rest in zip(ends, later[::-1]))


def step_recursive(forward, backward, sums):
    def summed(layer):  # when a layer's sum is over
        if layer == len(sums):
            return 0.0
        ready = sum(forward) + sum(backward[layer:])
        return max(ready, summed(layer + 1)) + sums[layer]

    return summed(0)


def step_forwards(forward, backward, sums):
    return step_recursive(forward, backward[::-1], sums[::-1])


def step_all_at_once(forward, backward, sums):
    ends = [*itertools.accumulate(backward[::-1], initial=sum(forward))][1:]
    return max(end + own for end, own in zip(ends, sums[::-1]))


def ends_by_formula(sizes):
    return [sum(min(own, other) for other in sizes) for own in sizes]


def ends_by_events(sizes):
    left, now, ends = dict(enumerate(sizes)), 0.0, {}
    while left:
        least = min(left.values())
        now += least * len(left)
        left = {i: rest - least for i, rest in left.items()}
        ends |= {i: now for i, rest in left.items() if rest < 1e-12}
        left = {i: rest for i, rest in left.items() if rest >= 1e-12}
    return [ends[i] for i in range(len(sizes))]


def leaving_by_positions(order, gpus, size):
    n, nodes = len(order), np.array(order) // gpus
    leaves = nodes != np.roll(nodes, -1)
    return np.bincount(nodes[leaves], minlength=n // gpus) * (2 * (n - 1) * size / n)


def leaving_by_node(order, gpus, size):
    n, found = len(order), []
    for node in range(n // gpus):
        own = range(node * gpus, (node + 1) * gpus)
        out = sum(order[i] in own and order[i - n + 1] not in own for i in range(n))
        found.append(out * (n - 1) * size * 2 / n)
    return found


def leaving(order, gpus, size, closed=True, part=lambda n: 2 * (n - 1) / n, all_=False):
    out, n = [0.0] * (len(order) // gpus), len(order)
    for rank, right in zip(order, order[1:] + order[: int(closed)]):
        if all_ or rank // gpus != right // gpus:
            out[rank // gpus] += part(n) * size
    return out


def leaving_by_remainder(order, gpus, size):
    n = len(order)
    out, nodes = [0.0] * (n // gpus), n // gpus
    for rank, right in zip(order, order[1:] + order[:1]):
        if rank % nodes != right % nodes:
            out[rank % nodes] += 2 * (n - 1) / n * size
    return out


def played_by_need(works):
    lanes = [lane for lane, *_ in works]

    def sent(i):
        before = [j for j in range(i) if lanes[j] == lanes[i]]
        ready = [arrives(j) for j in works[i][3]] + [sent(j) for j in before[-1:]]
        return max(ready, default=0.0) + works[i][1]

    def arrives(i):
        return sent(i) + works[i][2]

    return [arrives(i) for i in range(len(works))]


def played_by_rounds(works):
    ends = np.zeros(len(works))
    for _ in works:  # so often, for a chain of all of them
        free = Counter()
        for i, (lane, seconds, latency, after) in enumerate(works):
            begin = max([free[lane], *ends[after]])
            free[lane] = begin + seconds
            ends[i] = free[lane] + latency
    return ends


def played(works, lanes=True, of=max, holds=False, sent=False):
    free, ends, starts = {}, [], []
    for lane, seconds, latency, after in works:
        waits = [(starts if sent else ends)[i] for i in after]
        begin = max(free.get(lane, 0.0) * lanes, of(waits, default=0.0))
        starts.append(begin + seconds)
        ends.append(begin + seconds + latency)
        free[lane] = ends[-1] if holds else starts[-1]
    return ends


RIGHT = {
    "asynchronous/once": [parameter_by_counting, parameter_by_marks],
    "asynchronous/walk": [walk, walk_by_search],
    "sending-less/bytes": [
        bytes_,
        lambda m, w, n, k: (n - 1) * min(2 * m * w / n, k * w + 4 * k),
    ],
    "sending-less/two-bits": [packed_by_bits, packed_by_array],
    "sending-less/low-rank": [kept_by_sent, kept_by_projector],
    "meeting-seldom/late": [late_by_queue, late_by_padding],
    "meeting-seldom/steps": [steps_by_trying, steps_by_division],
    "many-workers/messages": [messages_by_one, messages_by_popping],
    "many-workers/leftwards": [plan_backwards, plan_by_walking],
    "many-workers/rounds": [rounds_by_state, rounds_by_runs],
    "worker-dies/begins": [begins_by_saves, begins_by_sums],
    "worker-dies/resume": [resume_in_order, resume_by_fold],
    "worker-dies/pieces": [pieces_by_place, pieces_by_heap],
    "worker-dies/whole": [whole_by_columns, whole_in_the_order],
    "step-hangs/parted": [parted_by_zip, parted_by_counts],
    "step-hangs/slow": [slow_by_pairs, slow_by_arrays],
    "step-hangs/verdict": [verdict_in_loops, verdict],
    "whole-cluster/overlap": [step_by_ends, step_recursive],
    "whole-cluster/shared": [ends_by_formula, ends_by_events],
    "whole-cluster/leaving": [leaving_by_positions, leaving_by_node],
    "whole-cluster/play": [played_by_need, played_by_rounds],
}

WRONG = {
    "asynchronous/once": [
        ("no change counts twice", lambda m: sum(change for *_, change in m)),
        ("no change counts twice", by_last_number),
        ("equal changes are two changes", lambda m: sum({c for *_, c in m})),
        (
            "each worker has numbers of its own",
            lambda m: sum({number: change for _, number, change in m}.values()),
        ),
        ("no change is lost", lambda m: m[0][2]),
    ],
    "asynchronous/walk": [
        ("a push goes downhill", lambda o, r: walk(o, r, up=1)),
        (
            "a gradient belongs to the parameters that its worker pulled",
            lambda o, r: walk(o, r, fresh=True),
        ),
        ("a worker pulls after its own push", lambda o, r: walk(o, r, pulls=False)),
        ("a worker pulls after its own push", lambda o, r: walk(o, r, before=True)),
        ("one number per push", lambda o, r: [1.0, *walk(o, r)]),
    ],
    "sending-less/bytes": [
        (
            "a place travels with each number",
            lambda m, w, n, k: bytes_(m, w, n, k, place=0),
        ),
        (
            "all messages are passed on",
            lambda m, w, n, k: bytes_(m, w, n, k, messages=1),
        ),
        ("a ring goes round twice", lambda m, w, n, k: bytes_(m, w, n, k, rounds=1)),
        (
            "the way with fewer bytes is taken",
            lambda m, w, n, k: bytes_(m, w, n, k, of=max),
        ),
        (
            "the way with fewer bytes is taken",
            lambda m, w, n, k: (n - 1) * k * (4 + w),
        ),
        (
            "it is the amount that one participant sends",
            lambda m, w, n, k: n * bytes_(m, w, n, k),
        ),
    ],
    "sending-less/two-bits": [
        ("the last levels aren't left out", lambda ls: packed(ls, whole=True)),
        (
            "the first level is in the lowest bits",
            lambda ls: packed(ls, (64, 16, 4, 1)),
        ),
        ("each level has its own two bits", lambda ls: packed(ls, (1, 2, 4, 8))),
        ("four levels per byte", lambda ls: packed(ls, (1, 4), count=2)),
    ],
    "sending-less/low-rank": [
        ("numbers that are sent aren't kept", sent_not_kept),
        ("the columns of P are orthonormal", kept_raw),
        ("all participants use the same P", kept_by_each),
        ("sent and kept add up to the matrix", kept_of_mean),
    ],
    "meeting-seldom/late": [
        ("the first sum comes after that many steps", lambda s, r, d: late(s, r, 0)),
        (
            "the first sum comes after that many steps",
            lambda s, r, d: late(s, r, d, first=0),
        ),
        ("a step goes downhill", lambda s, r, d: late(s, r, d, up=1)),
        ("each sum is that many steps late", lambda s, r, d: late(s, r, d + 1)),
        (
            "each sum is that many steps late",
            lambda s, r, d: late(s, r, d, at=lambda step, d: step),
        ),
    ],
    "meeting-seldom/steps": [
        (
            "it is a whole number of steps",
            lambda s, v, t, n: max(1, 2 * (n - 1) / n * s / v / t),
        ),
        (
            "there is at least one step between meetings",
            lambda s, v, t, n: int(2 * (n - 1) / n * s / v / t),
        ),
        (
            "the work is as long as a meeting",
            lambda s, v, t, n: max(1, int(2 * (n - 1) / n * s / v / t)),
        ),
        (
            "a device sends 2 (n - 1) / n of the model",
            lambda s, v, t, n: max(1, math.ceil(2 * (n - 1) * s / v / t)),
        ),
        (
            "a device sends 2 (n - 1) / n of the model",
            lambda s, v, t, n: max(1, math.ceil((n - 1) / n * s / v / t)),
        ),
        (
            "fewer steps would be too short",
            lambda s, v, t, n: 1 + math.ceil(2 * (n - 1) / n * s / v / t),
        ),
    ],
    "many-workers/messages": [
        ("a piece is no message", lambda pieces: [piece[1:] for piece in pieces]),
        (
            "a piece is no message",
            lambda pieces: [
                m for piece in pieces for m in messages_by_popping([piece])
            ],
        ),
        ("an incomplete message is left out", messages_whole_or_not),
        ("an empty message is a message", messages_not_empty),
        ("a message is as long as it says", lambda pieces: [sum(pieces, [])]),
    ],
    "many-workers/leftwards": [
        ("the left neighbour adds the chunk that a rank gives", plan_to_the_right),
        ("rank i ends with all of chunk i", lambda n: plan(n, start=0)),
        ("each part is added once", lambda n: plan(n, by=0)),
        ("n - 1 steps for each rank", lambda n: [*map(list, zip(*plan(n)))]),
    ],
    "many-workers/rounds": [
        ("if all ranks do the same first, all wait", lambda first: 2),
        (
            "if all ranks do the same first, all wait",
            lambda first: (
                None if "receive" not in first else rounds_by_state(first) or 2
            ),
        ),
        (
            "one rank that does the other first is enough",
            lambda f: rounds_by_state(f) if f[::2] == f[:1] * len(f[::2]) else None,
        ),
        (
            "all pairs that can pass do so in one round",
            lambda first: None if len(set(first)) == 1 else len(first),
        ),
        (
            "a rank that waits goes on in a later round",
            lambda first: None if len(set(first)) == 1 else 2,
        ),
    ],
    "worker-dies/begins": [
        (
            "steps after the last save are lost",
            lambda t, e: [0, *itertools.accumulate(t)],
        ),
        (
            "steps after the last save are lost",
            lambda t, e: [0, *(n // e * e for n in itertools.accumulate(t))],
        ),
        ("steps that were saved stay", lambda t, e: [0, *(n // e * e for n in t)]),
        ("a save in its last step counts", begins_before),
        ("one number per life", lambda t, e: begins_by_sums(t, e)[1:]),
    ],
    "worker-dies/resume": [
        (
            "if no file is intact, it stops",
            lambda f: max((s for s, i in f if i), default=0),
        ),
        (
            "no damaged file is taken",
            lambda f: (
                max((s for s, _ in f), default=0)
                if resume_in_order(f) is not None
                else None
            ),
        ),
        (
            "a file under a wrong name isn't taken",
            lambda f: (
                max((s for s, i in f if i), default=0)
                if resume_in_order(f) is not None
                else None
            ),
        ),
        (
            "the newest intact file is taken",
            lambda f: next((s for s, i in f[::-1] if s == i), None if f else 0),
        ),
        ("without a file it begins at 0", lambda f: resume_in_order(f) or None),
    ],
    "worker-dies/pieces": [
        ("pieces go where they belong", pieces_as_given),
        ("slices differ by at most one, larger ones first", pieces_large_last),
        ("slices differ by at most one, larger ones first", pieces_of_the_ceiling),
        ("one slice per worker", pieces_not_empty),
        ("the slices are the whole", pieces_of_the_first),
        ("one slice per worker", lambda stored, n: [own for _, own in stored]),
    ],
    "worker-dies/whole": [
        (
            "the ranks' matrices aren't put side by side",
            lambda slices: np.concatenate(slices, axis=1),
        ),
        (
            "the slices are in the order of the ranks",
            lambda slices: whole_in_the_order(slices[::-1]),
        ),
        (
            "queries come first, then keys, then values",
            lambda slices: whole_in_the_order(slices, (1, 0, 2)),
        ),
        (
            "queries come first, then keys, then values",
            lambda slices: whole_in_the_order(slices, (2, 1, 0)),
        ),
        ("it has all rows and columns", lambda slices: slices[0]),
        (
            "the columns are those of the ranks",
            lambda slices: (
                whole_in_the_order([slices[0]] * len(slices))
                if len({own.shape for own in slices}) == 1
                else whole_in_the_order(slices)
            ),
        ),
        (
            "they are in the order of one device",
            lambda slices: whole_in_the_order(
                [
                    own.reshape(len(own), 3, -1)[:, :, ::-1].reshape(own.shape)
                    for own in slices
                ]
            ),
        ),
    ],
    "step-hangs/parted": [
        ("a rank that hasn't arrived doesn't differ", lambda c: parted(c, absent=True)),
        ("the first difference counts", lambda c: parted(c, last=True)),
        ("in a tie, all are named", lambda c: parted(c, tie=False)),
        ("the minority is named", lambda c: parted(c, all_=True)),
        ("a difference is found", lambda c: None),
    ],
    "step-hangs/slow": [
        (
            "each rank has a clock of its own",
            lambda e, _: max(range(len(e)), key=lambda r: sum(e[r])),
        ),
        (
            "all collectives count",
            lambda e, o: min(range(len(e)), key=lambda r: o[r][-1] - e[r][-1]),
        ),
        (
            "a rank that waits isn't slow",
            lambda e, o: max(range(len(e)), key=lambda r: sum(o[r]) - sum(e[r])),
        ),
    ],
    "step-hangs/verdict": [
        ("a rank that is gone comes first", lambda logs: verdict(logs, gone=False)),
        ("a rank that waits is no straggler", lambda logs: verdict(logs, waits=True)),
        ("a rank that has arrived isn't late", lambda logs: verdict(logs, come=True)),
        (
            "the link is looked for in the lowest one",
            lambda logs: verdict(logs, lowest=False),
        ),
    ],
    "whole-cluster/overlap": [
        ("a sum waits for its gradients", lambda f, b, s: max(sum(f) + sum(b), sum(s))),
        (
            "sums travel during backward passes",
            lambda f, b, s: sum(f) + sum(b) + sum(s),
        ),
        ("the last layer's gradients come first", step_forwards),
        ("the network does one sum at a time", step_all_at_once),
        ("the step ends with the last sum", lambda f, b, s: sum(f) + sum(b)),
    ],
    "whole-cluster/shared": [
        ("two at once take longer than one", lambda sizes: sizes),
        (
            "all messages progress at the same time",
            lambda sizes: [*itertools.accumulate(sizes)],
        ),
        (
            "a complete message leaves its part to the others",
            lambda s: [len(s) * own for own in s],
        ),
        (
            "the ends are in the order of the messages",
            lambda sizes: sorted(ends_by_formula(sizes)),
        ),
    ],
    "whole-cluster/leaving": [
        ("the last rank sends to the first", lambda *a: leaving(*a, closed=False)),
        (
            "a rank sends 2 (n - 1) / n of the tensor",
            lambda *a: leaving(*a, part=lambda n: 2),
        ),
        ("messages inside a node aren't counted", lambda *a: leaving(*a, all_=True)),
        ("messages inside a node aren't counted", leaving_by_remainder),
        (
            "the order decides which rank sends to which",
            lambda order, *a: leaving([*range(len(order))], *a),
        ),
    ],
    "whole-cluster/play": [
        ("a lane does one work at a time", lambda works: played(works, lanes=False)),
        ("a lane is free while a message travels", lambda w: played(w, holds=True)),
        (
            "a work waits until earlier works have arrived",
            lambda w: played(w, sent=True),
        ),
        (
            "a work waits for all of them, not for one",
            lambda works: played(works, of=min),
        ),
    ],
}
