"""The library beside the book *Training on Many GPUs*.

Importing it imports no TensorFlow, and starts no device: `devices` does both when it
is first called. The rest is in rooms, each to be imported by its own name, such as
`import manygpu.bench`; a room imports rooms of lower lines only:

- `backstage`: what pages use and don't show, such as an experiment's processes
- `exercises`: exercises that answer back, bugs to be found, projects, puzzles
- `bench`: fair comparisons of training strategies, each in processes of its own
- `prove`: a judge of parallel steps, which says what broke
- `widgets`: figures that a page can be asked: a stepper, an explorer, calculators
- `trainings`: one table of strategies, each a row that `bench` times and `prove` judges
- `choosing`: which plan, and what it costs
- `scratch`: what the chapters built, exported from their notebooks
- `data`: Fashion-MNIST, from wherever it can be had, checked before it is used
- `trace`: when pieces of work ran, and where tensors lay
- `processes`: processes: started, asked, told of their cluster, and killed
- `simulate`: what a training step takes on a cluster that you don't have
- `sources`: the claims of the documents that the book grew out of, with verdicts
- `costs`: what training costs: FLOPs, seconds, bytes, dollars, each by one formula
- `figures`: one style for all figures of the book
- `measure`: one distance, one size, one fair share, one timer
- `patching`: a class goes on in the next cell
- `records`: experiments too long to run with a page, with the machine they ran on
- `chapters`: where to read more, as a command's answer names it
- `here`: the line after a result, from its own numbers
- `addresses`: `module:function`, as a command is told of a reader's own function
- `checks`: refuse bad input by name, before anything changes
- `options`: numbers of a command's options, within bounds
- `tables`: one table for the results of every chapter
- `hops`: the way of one message: its step, its source and its target
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manygpu._devices import devices as devices

__all__ = ["devices"]  # no room: `from manygpu import *` would import them all
__version__ = "0.1.0"  # the one place: pyproject.toml reads it from here

_ROOMS = re.findall(r"^- `(\w+)`: ", __doc__ or "", flags=re.M)  # no text with -OO


def __getattr__(name: str) -> Any:
    if name == "devices":
        from manygpu._devices import devices

        return devices
    said = f"module {__name__!r} has no attribute {name!r}"
    if name in _ROOMS:  # not imported here: `help` asks for all that `dir` names
        said += f" yet: `import manygpu.{name}` first"
    raise AttributeError(said)


def __dir__() -> list[str]:
    """Return what is there, also the rooms that nobody has imported yet."""
    taken = {"Any", "TYPE_CHECKING", "annotations", "re"}
    return sorted({*globals(), *__all__, *_ROOMS} - taken)
