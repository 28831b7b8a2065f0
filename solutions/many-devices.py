"""The book's answers to exercises of many-devices."""


def my_shares(samples, devices):
    """All get the quotient; the first ones share the remainder."""
    each, left = divmod(samples, devices)
    return [each + (d < left) for d in range(devices)]


def my_shares_by_speed(samples, speeds):
    """Each sample goes to the device that would be done with it first."""
    shares = [0] * len(speeds)
    for _ in range(samples):
        ends = [(share + 1) / speed for share, speed in zip(shares, speeds)]
        shares[ends.index(min(ends))] += 1
    return shares


def my_epoch(images, batch, devices):
    """The batch sets the number of steps; devices only share each batch out."""
    steps = -(-images // batch)
    last = images - (steps - 1) * batch
    return steps, last // devices


def my_padded(samples, devices):
    """Repeat a sample that weighs nothing: then sums don't notice it."""
    missing = -samples % devices
    return [*range(samples)] + [0] * missing, [1] * samples + [0] * missing
