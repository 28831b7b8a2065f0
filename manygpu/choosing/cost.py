"""Dollars and hours: what a job costs, and which number of devices is worth it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from manygpu.choosing.question import positive


class Job(NamedTuple):
    """A job on some devices, done.

    Attributes:
        name: for people.
        devices: that were rented.
        seconds: that they were rented for.
        dollars_an_hour: of all of them together.
    """

    name: str
    devices: int
    seconds: float
    dollars_an_hour: float

    @property
    def hours(self) -> float:
        """How long it takes."""
        return self.seconds / 3600

    @property
    def dollars(self) -> float:
        """What it costs, where each second is billed."""
        return self.hours * self.dollars_an_hour


def best_for(jobs: Sequence[Job], waiting: float) -> Job:
    """The job that costs least where an hour of waiting costs so many dollars.

    The first of those that cost the same. Raises ValueError for no jobs, and for a
    number that is negative or not finite.
    """
    _check_jobs(jobs)
    positive("waiting", waiting, or_zero=True)
    return min(jobs, key=lambda job: job.dollars + waiting * job.hours)


def worth_from(jobs: Sequence[Job]) -> list[tuple[float, Job]]:
    """From which price of a waiting hour on each job is the best one.

    Each job is a line: dollars at 0, hours as its slope. Those on the lower edge of all
    lines are named, the cheapest first; the others are never the best. Raises
    ValueError for no jobs, and for a number that is negative or not finite.
    """
    _check_jobs(jobs)
    job = min(jobs, key=lambda job: (job.dollars, job.hours))
    found, waiting = [(0.0, job)], 0.0
    while True:
        shorter = [other for other in jobs if other.hours < job.hours]
        if not shorter:
            return found
        waiting, job = min(
            ((other.dollars - job.dollars) / (job.hours - other.hours), other)
            for other in shorter
        )
        found.append((waiting, job))


def _check_jobs(jobs: Sequence[Job]) -> None:
    """Refuse jobs that can't be compared."""
    if not jobs:
        raise ValueError("jobs is empty: give at least one")
    for i, job in enumerate(jobs):
        positive(f"jobs[{i}].devices", job.devices)
        positive(f"jobs[{i}].seconds", job.seconds)
        positive(f"jobs[{i}].dollars_an_hour", job.dollars_an_hour, or_zero=True)


def steps_to_goal(batch: float, least_steps: float, critical_batch: float) -> float:
    """Steps to a loss: S = S_min (1 + B_crit / B) (McCandlish et al. 2018).

    Raises TypeError or ValueError for a number that is not above 0.
    """
    for name, value in (("batch", batch), ("critical_batch", critical_batch)):
        positive(name, value)
    return positive("least_steps", least_steps) * (1 + critical_batch / batch)


def spot_dollars(dollars_an_hour: float, goodput: float) -> float:
    """Dollars for an hour of work that is kept, on devices that may be taken away.

    Raises ValueError for a goodput that is not above 0 and at most 1.
    """
    if not 0 < goodput <= 1:
        raise ValueError(f"goodput must be above 0 and at most 1, got {goodput}")
    return dollars_an_hour / goodput


def energy_dollars(
    job: Job, watts: float, cents: float, overhead: float = 1.0
) -> float:
    """Dollars for the energy of a job's devices.

    Args:
        job: says how many devices, and how long.
        watts: that one of them draws.
        cents: of a kilowatt-hour.
        overhead: what the building draws for each watt of the devices, 1 for none.

    Raises TypeError or ValueError for a number that is negative or not finite.
    """
    _check_jobs([job])
    for name, value in (("watts", watts), ("cents", cents), ("overhead", overhead)):
        positive(name, value, or_zero=True)
    kilowatt_hours = job.devices * watts / 1000 * job.hours * overhead
    return kilowatt_hours * cents / 100


def billed(seconds: float, unit: float) -> float:
    """Seconds that are billed where each begun unit of so many seconds counts.

    Raises TypeError or ValueError for a number that is negative or not finite, or a
    unit of 0.
    """
    positive("seconds", seconds, or_zero=True)
    positive("unit", unit)
    return unit * math.ceil(seconds / unit)
