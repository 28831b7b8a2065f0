"""Wrong answers that no case once showed, found by changing right ones a little."""

from __future__ import annotations

import itertools
import math


def shared_by_neighbours(replicas):
    """Takes a byte behind the end for one of its own."""
    for one, two in itertools.combinations(replicas, 2):
        for (device, start, size), (other, begin, length) in itertools.product(
            one, two
        ):
            if device == other and start <= begin + length and begin < start + size:
                return True
    return False


def fewest_and_one_more(parameters, memory, activations, devices):
    """Takes one device more than there are."""
    room = memory * (1 - activations)
    fits = [n for n in range(1, devices + 2) if 16 * parameters / n <= room]
    return fits[0] if fits else None


def stored_up_to(largest_of):
    """Has another largest number."""

    def stored(x, exponent, fraction):
        bias = 2 ** (exponent - 1) - 1
        power = max(math.floor(math.log2(abs(x))), 1 - bias) if x else 0
        found = round(x / 2.0 ** (power - fraction)) * 2.0 ** (power - fraction)
        largest = min(largest_of(fraction) * 2.0**bias, 3.4e38)
        return found if abs(found) <= largest else math.copysign(math.inf, x)

    return stored


def worth_a_dollar(one, many):
    """Takes a dollar for nothing."""
    spared, more = one[1] - many[1], many[0] - one[0]
    if spared > 0:
        return max(0, more / spared)
    return 0 if spared == 0 and more <= 1 else None


def step_from_second_one(forward, backward, sending, update):
    """Its link is free from second 1 on."""
    device, link, sums = sum(forward), 1.0, []
    for layer in reversed(range(len(backward))):
        device += backward[layer]
        link = max(link, device) + sending[layer]
        sums.append((link, layer))
    for there, layer in sums:
        device = max(device, there) + update[layer]
    return device


def overlap_from_second_one(forward, backward, sums):
    gpu, network = sum(forward), 1.0
    for passing, adding in zip(backward[::-1], sums[::-1]):
        gpu += passing
        network = max(network, gpu) + adding
    return network


def sticks_out_from_second_one(ready, sizes, alpha, beta):
    free = 1
    for there, size in zip(ready, sizes):
        free = max(free, there) + alpha + beta * size
    return free - ready[-1]


RIGHT = {}
WRONG = {
    "parameters-and-devices/shared": [
        ("neighbours in memory share nothing", shared_by_neighbours),
    ],
    "which-one/fewest": [("it is None if nothing fits", fewest_and_one_more)],
    "mixed-precision/stored": [
        (
            "a number that is too large becomes infinite",
            stored_up_to(lambda fraction: 2.5),
        ),
        (
            "a number that isn't too large stays finite",
            stored_up_to(lambda fraction: 1.8),
        ),
    ],
    "what-it-costs/worth": [("waiting pays for no lost time", worth_a_dollar)],
    "which-one/step": [
        ("a step ends when the last update does", step_from_second_one),
    ],
    "whole-cluster/overlap": [
        ("the step ends with the last sum", overlap_from_second_one),
    ],
    "hiding-communication/sticks-out": [
        ("it is the time after the backward pass", sticks_out_from_second_one),
    ],
    "worker-dies/interval": [
        ("saves don't cost more than they gain", lambda save, failure: -1.0),
        ("saves don't cost more than they gain", lambda save, failure: math.nan),
    ],
    "two-devices/step": [
        (
            "each number is one",
            lambda w, X, y, devices: [w * math.nan for _ in range(devices)],
        ),
    ],
}
