"""Chapters that a command's answer sends readers to: their titles, and where they are.

`make address` writes the address of the rendered book here. Without it, a chapter is a
file of the book's folder.
"""

from __future__ import annotations

BOOK = ""  # the address, with a slash at its end
TITLES = {
    "start/devices": "Devices",
    "start/one-device": "One device",
    "start/three-ways-to-split": "Three ways to split",
    "data-parallel/many-devices": "A step on many devices",
    "data-parallel/collectives": "The ring",
    "data-parallel/gradient-accumulation": "Gradient accumulation",
    "data-parallel/large-batches": "Large batches",
    "engine/mirrored-strategy": "MirroredStrategy",
    "engine/files-for-many-workers": "Files for many workers",
    "engine/mixed-precision": "Mixed precision",
    "splitting/pipeline": "Pipeline",
    "splitting/running-a-pipeline": "Running a pipeline",
    "splitting/smaller-bubble": "What is left of the bubble",
    "splitting/layerwise": "Tensor parallelism (layerwise splitting)",
    "splitting/transformer": "A transformer, split",
    "splitting/recomputation": "Recomputation",
    "splitting/sharded-state": "Sharded state",
    "splitting/hybrid-meshes": "Hybrid meshes",
    "splitting/mesh-layout": "Laying out a mesh",
    "in-step/asynchronous": "Synchronous and asynchronous",
    "beyond/worker-dies": "When a worker dies",
    "beyond/sixteen-thousand": "Sixteen thousand GPUs",
}


def reference(path: str) -> str:
    """Return a chapter's title and where to open it, as a message names it.

    Args:
        path: of the chapter in the book, such as "splitting/sharded-state".

    Raises:
        KeyError: no message has named this chapter before: add its title.
    """
    place = f"{BOOK}book/{path}.html" if BOOK else f"book/{path}.ipynb"
    return f'"{TITLES[path]}": {place}'
