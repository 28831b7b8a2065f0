"""The book's answers to exercises of which-one."""


def my_fewest(parameters, memory, activations, devices):
    """Take one more until the state fits beside the activations."""
    room = memory * (1 - activations)
    fits = [n for n in range(1, devices + 1) if 16 * parameters / n <= room]
    return fits[0] if fits else None


def my_choice(plans, slower):
    """Among those that are as good as the best, fewer cuts win, then fewer seconds."""
    limit = min(seconds for seconds, _ in plans) * (1 + slower)
    good = [i for i, (seconds, _) in enumerate(plans) if seconds <= limit]
    return min(good, key=lambda i: plans[i][::-1])


def my_step(forward, backward, sending, update):
    """The link runs beside the device; each waits for the other where it must."""
    device, link, sums = sum(forward), 0.0, []
    for layer in reversed(range(len(backward))):
        device += backward[layer]
        link = max(link, device) + sending[layer]
        sums.append((link, layer))
    for there, layer in sums:
        device = max(device, there) + update[layer]
    return device


def my_held(parameters, activations, batch, devices, zero, pieces):
    """Round up twice: the largest share, and its largest piece."""
    optimizer = 12 / devices if zero >= 1 else 12
    gradients = 2 / devices if zero >= 2 else 2
    own = 2 / devices if zero >= 3 else 2
    share = -(-batch // devices)
    samples = -(-share // pieces)
    return parameters * (optimizer + gradients + own) + activations * samples
