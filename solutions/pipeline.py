"""The book's answers to exercises of pipeline."""


def my_bubble(stages, micro_batches):
    """All turns of a step, less the m in which a stage works."""
    return (stages - 1) / (micro_batches + stages - 1)


def my_schedule(stages, micro_batches):
    """Stage s runs p - 1 - s forward passes ahead, then one of each in turns."""
    orders = []
    for s in range(stages):
        ahead = min(stages - 1 - s, micro_batches)
        order = [("F", i) for i in range(ahead)]
        for i in range(micro_batches):
            if ahead + i < micro_batches:
                order.append(("F", ahead + i))
            order.append(("B", i))
        orders.append(order)
    return orders


def my_micro_batches(stages, percent):
    """(p - 1) / (m + p - 1) <= share, solved for m, in whole numbers and rounded up."""
    waits = stages - 1
    return max(1, -(-waits * (100 - percent) // percent))


def my_ends(orders, seconds, message):
    """An operation begins when its stage is free and what it needs has arrived."""
    ends, clock = {}, [0] * len(orders)
    waiting = [list(order) for order in orders]
    while any(waiting):
        for s, order in enumerate(waiting):
            while order:
                kind, i = order[0]
                near = s - 1 if kind == "F" else s + 1
                needs = 0 <= near < len(orders)
                if needs and (kind, near, i) not in ends:
                    break
                there = ends[kind, near, i] + message if needs else 0
                start = max(clock[s], there)
                clock[s] = start + seconds[s] * (1 if kind == "F" else 2)
                ends[kind, s, i] = clock[s]
                order.pop(0)
    return clock
