"""The book's answers to exercises of running-a-pipeline."""


def my_controls(orders):
    """Neighbours on a stage, but for a pass that reads what the one before kept."""
    return [
        [
            (before, after)
            for before, after in zip(order, order[1:])
            if (before, after) != (("F", after[1]), ("B", after[1]))
        ]
        for order in orders
    ]


def my_program(stage, stages, order):
    """An F comes from the stage before and goes on; a B the other way round."""
    done = []
    for kind, i in order:
        step = 1 if kind == "F" else -1
        source, target = stage - step, stage + step
        if 0 <= source < stages:
            done.append(("receive", i, source))
        done.append((kind, i))
        if 0 <= target < stages:
            done.append(("send", i, target))
    return done


def my_versions(order):
    """What passes under way have used, and the newest: different ones count."""
    used, newest, most = {}, 0, 1
    for kind, i in order:
        if kind == "F":
            used[i] = newest
        else:
            del used[i]
            newest += 1
        most = max(most, len({newest, *used.values()}))
    return most
