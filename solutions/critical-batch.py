"""The book's answers to exercises of critical-batch."""


def my_critical(one, other):
    """Images, B S(B) = S_min B + S_min B_crit, are a straight line in B."""
    (B, S), (B2, S2) = one, other
    least = (B * S - B2 * S2) / (B - B2)
    return least, B * S / least - B


def my_noise_scale(means, shard):
    """Two batch sizes, two equations: signal + noise / B for each."""
    batch = len(means) * shard
    small = sum(m @ m for m in means) / len(means)
    mean = sum(means) / len(means)
    large = mean @ mean
    noise = (small - large) / (1 / shard - 1 / batch)
    return noise / (large - noise / batch)
