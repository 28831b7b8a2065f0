"""The book's answers to exercises of asynchronous."""


def my_staleness(pushes):
    """A worker pulls right after its push: what came since then is others' work."""
    pulled, stale = {}, []
    for count, worker in enumerate(pushes):
        stale.append(count - pulled.get(worker, 0))
        pulled[worker] = count + 1
    return stale


def my_parameter(messages):
    """Worker and number together name a change: a second one replaces the first."""
    changes = {(worker, number): change for worker, number, change in messages}
    return sum(changes.values())


def my_walk(order, rate):
    """The gradient is the x that this worker pulled, not the newest one."""
    x, pulled, path = 1.0, {}, []
    for worker in order:
        x -= rate * pulled.get(worker, 1.0)
        pulled[worker] = x
        path.append(x)
    return path
