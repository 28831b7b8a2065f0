"""What the front page shows without a kernel: a live ring, and numbers of a record.

`{live-ring}` is the package's stepper on a ring of four. `{from-record} NAME` holds
Markdown with fields such as `{compiled:.2f}`: how many times as fast the record's
training was on two devices, eager and compiled, and the machine's cores.
"""

from __future__ import annotations

from statistics import median

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from manygpu import records
from manygpu.widgets.ring import RING_ALT, ring_frames
from manygpu.widgets.stepper import stepper_html


class LiveRing(SphinxDirective):
    """{live-ring}: takes nothing."""

    def run(self) -> list[nodes.Node]:
        """The stepper: without a script, its last picture and all its steps."""
        text = stepper_html(ring_frames(4), RING_ALT)
        return [nodes.raw("", text, format="html")]


class FromRecord(SphinxDirective):
    """{from-record} NAME: Markdown that names what the record gives."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """The text with the numbers in it."""
        given = fields(records.load(self.arguments[0]))
        lines = [line.format(**given) for line in self.content]
        place = nodes.container(classes=["from-record"])
        source = self.get_source_info()[0]
        self.state.nested_parse(StringList(lines, source), self.content_offset, place)
        return [place]


def fields(record: dict) -> dict[str, float]:
    """The record's speedups on two devices, and how many cores its machine had.

    They are ratios of the medians of the epochs, as in the chapter that explains them.
    """
    seconds = {
        (run["step"], run["devices"]): median(e["seconds"] for e in run["per_epoch"])
        for run in record["runs"]
        if run["init"] == "source"  # its initial weights are compared
    }
    faster = {s: seconds[s, 1] / seconds[s, 2] for s in ("eager", "compiled")}
    return {**faster, "cores": record["machine"]["cores"]}


def setup(app) -> None:
    """Two directives."""
    app.add_directive("live-ring", LiveRing)
    app.add_directive("from-record", FromRecord)
