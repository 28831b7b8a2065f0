"""The book's answers to exercises of large-batches."""


def my_rate(step, steps, base, peak):
    """A straight line from base to peak, and then level."""
    return base + (peak - base) * min(1, step / steps)


def my_critical(one, other):
    """Images, B S(B) = S_min B + S_min B_crit, are a straight line in B."""
    (B, S), (B2, S2) = one, other
    least = (B * S - B2 * S2) / (B - B2)
    return least, B * S / least - B


def my_way(gradients, rates, momentum):
    """A buffer without rates needs no mending: the rate comes last."""
    at, buffer, way = 0, 0, []
    for gradient, rate in zip(gradients, rates):
        buffer = momentum * buffer + gradient
        at -= rate * buffer
        way.append(at)
    return way


def my_noise_scale(means, shard):
    """Two batch sizes, two equations: signal + noise / B for each."""
    batch = len(means) * shard
    small = sum(m @ m for m in means) / len(means)
    mean = sum(means) / len(means)
    large = mean @ mean
    noise = (small - large) / (1 / shard - 1 / batch)
    return noise / (large - noise / batch)
