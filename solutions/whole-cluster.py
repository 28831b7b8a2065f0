"""The book's answers to exercises of whole-cluster."""


def my_mfu(parameters, tokens, seconds, gpus, peak):
    """2 FLOPs forward and twice as many backward, over what all GPUs could do."""
    return 6 * parameters * tokens / (seconds * gpus * peak)


def my_step(forward, backward, sums):
    """A sum waits for two things: its gradients, and the network."""
    gpu, network = sum(forward), 0.0
    for passing, adding in zip(backward[::-1], sums[::-1], strict=True):
        gpu += passing
        network = max(network, gpu) + adding
    return network


def my_ends(sizes):
    """Until the next shortest is through, all that are left have sent equally much."""
    ends, now, sent, left = [0.0] * len(sizes), 0.0, 0.0, len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: sizes[i]):
        now += (sizes[i] - sent) * left
        ends[i], sent, left = now, sizes[i], left - 1
    return ends


def my_leaving(order, gpus, size):
    """Each rank sends as much; only a neighbour on another node makes it leave."""
    n = len(order)
    leaving = [0.0] * (n // gpus)
    for rank, right in zip(order, order[1:] + order[:1], strict=True):
        if rank // gpus != right // gpus:
            leaving[rank // gpus] += 2 * (n - 1) / n * size
    return leaving


def my_played(works):
    """A work begins when its lane is free and all that it needs has arrived."""
    free, ends = {}, []
    for lane, seconds, latency, after in works:
        begin = max([free.get(lane, 0.0), *(ends[i] for i in after)])
        free[lane] = begin + seconds
        ends.append(begin + seconds + latency)
    return ends
