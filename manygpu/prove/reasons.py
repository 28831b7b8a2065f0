"""Why a step stopped: the reason, out of the errors that frameworks wrap around it.

Keras says which layer it was calling, TensorFlow which node of which graph, PyTorch on
which rank; a process sends its whole traceback. The reason is among these lines, rarely
in the first one.
"""

from __future__ import annotations

import re
import textwrap

MOST = 2000  # characters of a reason: a page of TensorFlow's is no reason
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
NODES = re.compile(r"\[?\[?\{\{.*?\}\}\]?\]?\s*|\s*\[Op:\w+\]( name:.*)?")
# Lines that begin so, and what follows them, say where an error was and not why.
TAILS = re.compile(
    r"^\s*(Arguments received by |Call arguments received by |Exception raised from "
    r"|frame #\d|Stack trace for|Function call stack|Original stack trace for"
    r"|For simplicity, JAX has removed|Set JAX_TRACEBACK_FILTERING|Errors may have orig"
    r"|The above exception was|During handling of the above)",
    re.MULTILINE,
)
# A line of a traceback that says which error it was; what follows belongs to it.
KIND = re.compile(
    r"^(?:\[rank\d+\]:\s*)?\s*(?:[\w-]+(?:\.[\w-]+)*\.)?"
    r"([A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning)): ",
    re.MULTILINE,
)
WRAPPERS = re.compile(
    r"^\s*(Exception encountered when calling .*|Graph execution error:"
    r"|Detected at node .*|defined at .*|.*<stack traces unavailable>.*|in user code:"
    r"|Caught \w+ in .*|Original Traceback.*|Traceback \(most recent.*"
    r"|File \".*|-{5,}.*|\s*\^+\s*|\d+ root error\(s\) found\.?"
    r"|\(\d+\) (?=\S))"
)


def reason_of(text: str, kind: str = "") -> str:
    """Return `Kind: reason` in one line, out of the text of an error.

    Args:
        text: the message, or a whole traceback.
        kind: the error's class; "" if the text says it.
    """
    readable = NODES.sub("", COLOURS.sub("", text))
    if found := list(KIND.finditer(readable)):  # the innermost comes last
        last = _innermost(readable, found)
        kind, readable = last.group(1), readable[last.end() :]
    if tail := TAILS.search(readable):
        readable = readable[: tail.start()] or readable
    lines = [WRAPPERS.sub("", line).strip() for line in readable.splitlines()]
    lines = _without_code(readable.splitlines(), lines)
    said = " ".join(dict.fromkeys(line for line in lines if line))
    said = textwrap.shorten(said, MOST, placeholder=" ...")
    return f"{kind}: {said}" if kind else said


def _innermost(text: str, found: list[re.Match]) -> re.Match:
    """Return the last error that a traceback names, before what comes behind it."""
    tail = TAILS.search(text)
    before = [one for one in found if tail is None or one.start() < tail.start()]
    return (before or found)[-1]


def _without_code(raw: list[str], lines: list[str]) -> list[str]:
    """Leave out the lines of code that a traceback shows below `File "...`."""
    kept = []
    for i, line in enumerate(lines):
        above = raw[i - 1].strip() if i else ""
        if not above.startswith('File "'):
            kept.append(line)
    return kept
