"""The rows of the table as the judge takes them: each is right, until it is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from manygpu.prove import more_steps, small, todays_steps
from manygpu.prove.subject import Subject
from manygpu.trainings import table
from manygpu.trainings.at_work import maker
from manygpu.trainings.table import Judged, Strategy

OF_THE_JUDGE = ("rule", "most_devices", "apart", "excused", "guarded")


def subject_of(row: Strategy, bounded: bool = True) -> Subject:
    """Return what the judge asks of a row: its step on a small model of its own.

    bounded: whether the dense model has bounded logits, see `small.layers_of`.
    """
    judged = row.judged
    if judged.subject:
        rooms = vars(more_steps) | vars(todays_steps)
        return rooms[judged.subject](judged.name)
    about = {name: getattr(judged, name) for name in OF_THE_JUDGE}
    about |= {"dtype": judged.dtype, "pieces": judged.pieces, "bounded": bounded}
    about["parts"] = partial(parts_of, judged)
    if judged.lr is not None:
        about["lr"] = judged.lr
    make = partial(maker(row.make), **judged.options)
    return small.subject(make, judged.name, **about)


def parts_of(judged: Judged, devices: int) -> int:
    """Return into how many parts a row's step cuts a batch on so many devices."""
    return max(judged.least_samples, devices)


class ByName(Mapping[str, Callable[[str], Subject]]):
    """By the judge's name for a row: makes the subject, which gets that name."""

    def __getitem__(self, name: str) -> Callable[[str], Subject]:
        row = table.judged()[name]
        return lambda _: subject_of(row)

    def __iter__(self) -> Iterator[str]:
        return iter(table.judged())

    def __len__(self) -> int:
        return len(table.judged())


BY_NAME = ByName()
