"""The book's answers to exercises of smaller-bubble."""


def my_interleaved(devices, micro_batches, chunks):
    """Waits are p - 1 passes of a stage, and stages are shorter now."""
    waits = (devices - 1) / chunks
    return waits / (micro_batches + waits)


def my_order(order, late):
    """Behind the B of i comes the W of i - late; the last ones have no such B."""
    found, count = [], len(order) // 2
    for kind, i in order:
        found.append((kind, i))
        if kind == "B" and i >= late:
            found.append(("W", i - late))
    return found + [("W", i) for i in range(max(0, count - late), count)]


def my_places(devices, ways):
    """Each way is all devices, every other one upwards."""
    down = list(range(devices))
    return sum((down[:: -1 if way % 2 else 1] for way in range(ways)), [])


def my_rounds(device, devices, chunks, micro_batches):
    """Groups are the outer loop, stages the middle one, micro-batches the inner."""
    return [
        (device + chunk * devices, i)
        for first in range(0, micro_batches, devices)
        for chunk in range(chunks)
        for i in range(first, min(first + devices, micro_batches))
    ]
