"""The book's answers to exercises of files-for-many-workers."""

import numpy as np


def my_files(files, workers):
    """Every so many-th file, each worker from another one on."""
    return [list(range(w, files, workers)) for w in range(workers)]


def my_steps(sizes, workers, batch):
    """The worker with the least ends it for all; what others still have is unseen."""
    records = [sum(sizes[w::workers]) for w in range(workers)]
    steps = -(-min(records) // batch)
    return steps, sum(max(0, n - steps * batch) for n in records)


def my_parts(sizes, workers):
    """The largest first, each to whoever has least: the small ones fill the gaps."""
    parts, records = [[] for _ in range(workers)], [0] * workers
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        w = records.index(min(records))
        parts[w].append(i)
        records[w] += sizes[i]
    return parts


def my_epochs(samples, workers, epochs, seed):
    """One order for all workers, from seed and epoch; each takes its own places."""
    found = []
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(samples)
        found.append([order[w::workers].tolist() for w in range(workers)])
    return found
