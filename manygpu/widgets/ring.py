"""The ring all-reduce as a stepper, for a page that runs no TensorFlow.

The chapter on the ring films its own all-reduce; the book's front page has no kernel.
So the ring is played here with whole numbers::

    stepper(ring_frames(4), RING_ALT)
"""

from __future__ import annotations

from manygpu.widgets.stepper import Frame

RING_ALT = (
    "A ring all-reduce of four GPUs: each passes one number a step to the next. In "
    "three steps the numbers are added up, in three more the sums are copied round."
)
ADDED = "Each passes one number to the right, where it is added."
COPIED = "Each passes a finished sum on, and it is copied."
END = " Now all hold all sums."


def ring_frames(count: int) -> list[Frame]:
    """Each step of a ring: reduce-scatter, then all-gather, 2 (count - 1) steps.

    GPU i starts with (c + 1) 10^i in chunk c. So a number's digits count the GPUs that
    are in it: where all digits are equal, a sum is complete. Patarasuk and Yuan (2009).

    Raises:
        ValueError: `count` is no number of GPUs.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"count must be a number of GPUs, at least 1, got {count!r}")
    held = [[(c + 1) * 10**i for c in range(count)] for i in range(count)]
    frames = [Frame("Each GPU has numbers of its own, one a row.", _cells(held))]
    for step in range(2 * (count - 1)):
        adds = step < count - 1
        chunks = [(i - step - 1) % count for i in range(count)]
        sent = [held[i][chunk] for i, chunk in enumerate(chunks)]
        arrows = []
        for i, (chunk, number) in enumerate(zip(chunks, sent, strict=True)):
            to = (i + 1) % count
            held[to][chunk] = number + adds * held[to][chunk]
            arrows.append((f"GPU {i}", f"GPU {to}", str(number)))
        caption = ADDED if adds else COPIED
        caption += END * (step == 2 * count - 3)
        frames.append(Frame(caption, _cells(held), arrows))
    return frames


def _cells(held: list[list[int]]) -> dict[str, list[str]]:
    """What each GPU holds, as texts: a frame would shorten long numbers."""
    return {f"GPU {i}": [*map(str, column)] for i, column in enumerate(held)}
