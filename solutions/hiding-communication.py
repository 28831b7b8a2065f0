"""The book's answers to exercises of hiding-communication."""


def my_buckets(sizes, limit):
    """From the last gradient on, as backward finds them."""
    buckets, room = [], -1
    for i in reversed(range(len(sizes))):
        if sizes[i] > room:
            buckets.append([])
            room = limit
        buckets[-1].append(i)
        room -= sizes[i]
    return buckets


def my_sticks_out(ready, sizes, alpha, beta):
    """A message waits for its gradients and for the wire."""
    free = 0
    for there, size in zip(ready, sizes):
        free = max(free, there) + alpha + beta * size
    return free - ready[-1]


def my_order(ready, seconds):
    """When the wire is free, look who waits; if nobody does, wait for the first."""
    order, now, left = [], 0, list(range(len(ready)))
    while left:
        now = max(now, min(ready[i] for i in left))
        layer = min(i for i in left if ready[i] <= now)
        order.append(layer)
        left.remove(layer)
        now += seconds
    return order
