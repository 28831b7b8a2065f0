"""Standard streams, however a command's user has left them: closed, or not read on.

`manygpu choose ... | head -3` reads three lines and hangs up. A command then does all
that it would have done, and its exit status says what it would have said.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO


class _Heard(io.FileIO):
    """A file whose writes get lost, without an error, once its reader has gone."""

    def write(self, data: bytes) -> int:
        """Write, or do as if: how many bytes it took.

        After an error, such as that of a full disk, nothing more is written: else
        Python would try once more when the command ends, and print a traceback.
        """
        try:
            return super().write(data)
        except OSError as error:
            _open_nowhere(self.fileno())
            if isinstance(error, BrokenPipeError):
                return len(data)
            raise


def ready() -> None:
    """Make the standard streams fit for any text, closed ones and broken pipes too.

    A closed one is replaced by one that leads nowhere. Otherwise the next file that is
    opened would get its number, and what is printed would go into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _open_nowhere(number)
            file = io.FileIO(number, "r" if name == "stdin" else "w", closefd=False)
            setattr(sys, name, io.TextIOWrapper(_buffered(file), "utf-8"))
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):  # a notebook's, or a test's, stay
            setattr(sys, name, _heard(stream))
        else:
            stream.reconfigure(errors="replace")  # whatever the terminal's encoding


def _buffered(file: io.FileIO) -> io.BufferedIOBase:
    """What a text stream reads from, or writes to."""
    return io.BufferedReader(file) if file.readable() else io.BufferedWriter(file)


def as_they_were() -> None:
    """Take the streams that Python made: a broken pipe is an error again."""
    for name in ("stdout", "stderr"):
        first = getattr(sys, f"__{name}__")
        if first is not None and isinstance(_raw(getattr(sys, name)), _Heard):
            setattr(sys, name, first)
            first.reconfigure(errors="replace")


def _raw(stream: TextIO) -> object:
    """What a text stream's bytes go to in the end."""
    return getattr(getattr(stream, "buffer", None), "raw", None)


def _open_nowhere(number: int) -> None:
    """Let a file's number lead nowhere, here and in processes that are started."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere == number:  # it was closed
        os.set_inheritable(number, True)
        return
    os.dup2(nowhere, number)
    os.close(nowhere)


def _heard(stream: TextIO) -> TextIO:
    """The same stream, for a reader that may go."""
    stream.flush()
    return io.TextIOWrapper(
        _buffered(_Heard(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors="replace",  # whatever the terminal's encoding
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
