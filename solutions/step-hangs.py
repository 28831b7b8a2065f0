"""The book's answers to exercises of step-hangs."""

from collections import Counter


def my_missing(entered):
    """Those that wait have entered most; the others wait for nobody."""
    furthest = max(entered.values())
    return sorted(rank for rank, count in entered.items() if count < furthest)


def my_parted(calls):
    """At each number, only those count that have come to it."""
    for number in range(max(map(len, calls))):
        met = {r: own[number] for r, own in enumerate(calls) if number < len(own)}
        counts = Counter(met.values())
        if len(counts) > 1:
            most = max(counts.values())
            top = [name for name in counts if counts[name] == most]
            return number, [r for r in met if len(top) > 1 or met[r] != top[0]]
    return None


def my_slow(entered, left):
    """Only times of one clock are subtracted; who comes last waits least."""
    waits = [sum(out) - sum(into) for into, out in zip(entered, left, strict=True)]
    return waits.index(min(waits))


def my_verdict(logs):
    """Who is gone first, then who is on the way; the link only if all have come."""
    gone = [r for r, (status, _, _) in enumerate(logs) if status == "gone"]
    if gone:
        return "missing", gone
    waits = [entered for _, entered, inside in logs if inside]
    if not waits:
        return "nothing", []
    late = [r for r, (_, n, inside) in enumerate(logs) if not inside and n < max(waits)]
    if late:
        return "straggler", late
    return "link", [r for r, (_, n, own) in enumerate(logs) if own and n == min(waits)]
