"""A comparison as a figure, and as one HTML file that needs nothing else.

The file can be sent to a colleague: its table, its figure and its style are inside, it
asks no server for anything, and it reads on light and on dark screens.
"""

from __future__ import annotations

import html
from collections.abc import Mapping

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from manygpu import figures
from manygpu.bench.result import Comparison, columns, notes, ratio
from manygpu.tables import Column, columns_of, show, spread, table_html, to_text
from manygpu.trainings.table import BASE, LENET, STRATEGIES

TIMES = 5  # columns up to those about times
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #22242b; --paper: #fff; --line: #c9ccd3; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e6e7ea; --paper: #16181d; --line: #464a54;
    --manygpu-orange-edge: #e69f00; --manygpu-sky-edge: #56b4e9;
    --manygpu-orange-rim: transparent; --manygpu-sky-rim: transparent; }}
}}
body {{ font: 1rem/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }}
.scroll {{ overflow-x: auto; }}
svg {{ max-width: 100%; height: auto; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: 0.35rem 0.5rem; border-bottom: 1px solid var(--line); }}
.spread, .unit, .note {{ font-size: 0.85em; white-space: nowrap; }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""
# A narrow screen scrolls it sideways, by keyboard too.
SCROLLING = '<div class="scroll" role="region" aria-label="table" tabindex="0">{}</div>'


def text(comparison: Comparison) -> str:
    """Return a comparison as a terminal shows it: table, notes, what can't run."""
    parts = []
    if comparison.running:
        parts.append(to_text(columns(comparison), caption(comparison)))
        parts.append("\n".join(f"- {note}" for note in notes(comparison)))
    parts.append("\n".join(missing(comparison)))
    return "\n\n".join(filter(None, parts))


def table(comparison: Comparison, name: str = "") -> None:
    """Show a comparison's table on a page, as `text` does in a terminal.

    A page is narrower, so it comes in halves: what a step takes, then what it needs.

    Args:
        comparison: with a row that runs.
        name: of the first half, see `manygpu.tables.table`.
    """
    made = columns(comparison)
    show(made[:TIMES], caption(comparison), name)
    show([made[0], *made[TIMES:]], "The same rows, what each of them needs.")


def caption(comparison: Comparison) -> str:
    """Return what a comparison is of, in a sentence."""
    asked, rounds = comparison.experiment, comparison.rounds
    samples = asked["about"].get("samples", asked["batch"])
    size = f"a batch of {samples}, " if samples else ""
    model = "LeNet" if asked["model"] == LENET else asked["model"]
    return (
        f"{model}, {size}devices: {asked['devices']}, rounds: {rounds}, "
        f"steps in each: {asked['steps']}."
    )


def missing(comparison: Comparison) -> list[str]:
    """Return for each reason why rows can't run here, which ones, and why."""
    why: dict[str, list[str]] = {}
    for row in comparison.rows.values():
        why.setdefault(row.cannot, []).append(row.title)
    why.pop("", None)
    return [f"{'; '.join(rows)} can't run here: {said}" for said, rows in why.items()]


def figure(comparison: Comparison) -> Figure | None:
    """Draw each row's time over that of one device; None where that is not known.

    What is no strategy is pale, its name in brackets.
    """
    times = comparison.times
    if not comparison.rounds or BASE not in times:
        return None
    fig, ax = figures.subplots(size=(7, 1 + 0.35 * len(times)))
    for row, name in enumerate(times):
        middle, least, most = ratio(times, name, BASE)
        pale = 0.35 if STRATEGIES[name].control else 1
        ax.barh(-row, middle, color=figures.color("measured"), height=0.6, alpha=pale)
        ax.plot([least, most], [-row, -row], color=figures.INK, linewidth=1.5)
        # Beside the axes, where no line runs through it.
        place = {"transform": ax.get_yaxis_transform(), "va": "center"}
        ax.text(1.02, -row, f"{middle:.2f}", **place)
    ax.axvline(1, color=figures.INK, linewidth=1, linestyle=":")
    titles = [
        f"({row.title})" if STRATEGIES[name].control else row.title
        for name, row in ((name, comparison.rows[name]) for name in times)
    ]
    ax.set_yticks([-row for row in range(len(times))], titles)
    ax.set_xlabel("time of a step, one device = 1")
    ax.grid(axis="y", visible=False)
    ax.margins(x=0.1)
    return fig


def alt(comparison: Comparison) -> str:
    """Return what the figure shows in words, for those who can't see it."""
    times = comparison.times
    words = "; ".join(
        f"{row.title} {ratio(times, name, BASE)[0]:.2f}"
        for name, row in comparison.running.items()
    )
    return f"Time of a step relative to one device: {words}."


def page(comparison: Comparison, others: Mapping[str, Comparison] | None = None) -> str:
    """Return the comparison as one HTML document, and others beside it, by name."""
    parts = [_beside({"yours": comparison, **others})] if others else []
    parts.append(_body(comparison))
    for name, other in (others or {}).items():
        parts += [f"<h2>{html.escape(name)}</h2>", _body(other)]
    title = f"{comparison.experiment['model']} under several strategies"
    return PAGE.format(title=html.escape(title), body="\n".join(parts))


def _body(comparison: Comparison) -> str:
    """All that is known of a comparison."""
    parts = []
    if comparison.running:
        shown = table_html(columns(comparison), caption(comparison))
        parts += [SCROLLING.format(shown), _drawn(comparison)]
        parts += ["<h2>How to read it</h2>", _listed(notes(comparison))]
    parts += [_listed(missing(comparison)), "<h2>Where it was measured</h2>"]
    return "\n".join([*parts, _listed(_machine(comparison))])


def _beside(comparisons: Mapping[str, Comparison]) -> str:
    """What they have in common: each row's time over that of one device."""
    shown = table_html(beside(comparisons), "Time of a step over that of one device.")
    where = [f"{n}: {caption(c)} {_where(c)}" for n, c in comparisons.items()]
    return f"{SCROLLING.format(shown)}{_listed(where)}"


def beside(comparisons: Mapping[str, Comparison]) -> list[Column]:
    """Return a table of all rows that ran, each comparison in a column of its name."""
    ran = {name: c for name, c in comparisons.items() if c.rounds and BASE in c.times}
    cells = [["one device, in ms", *(spread(c.times[BASE]) for c in ran.values())]]
    for name, row in STRATEGIES.items():
        found = [
            ratio(c.times, name, BASE) if name in c.times else None
            for c in ran.values()
        ]
        if any(found) and name != BASE:
            cells.append([row.title, *found])
    return columns_of(cells, {"strategy": "", **dict.fromkeys(ran, ".2f")}, (), {})


def _drawn(comparison: Comparison) -> str:
    """The figure as SVG, with what it shows in words; nothing without times."""
    fig = figure(comparison)
    if fig is None:
        return ""
    svg = figures.to_svg(fig, alt(comparison))
    plt.close(fig)
    below = (
        "Time of a step over that of one device in the same round: the median, and as "
        "a line the least to the most."
    )
    return f"<figure>{svg}<figcaption>{below}</figcaption></figure>"


def _listed(sentences: list[str]) -> str:
    items = "".join(f"<li>{html.escape(one)}</li>" for one in sentences)
    return f"<ul>{items}</ul>" if items else ""


def _where(comparison: Comparison) -> str:
    """The processor, and the GPU if there is one."""
    here, gpu = comparison.machine, comparison.experiment["about"].get("gpu")
    said = f"{here['cpu']}, {here['cores']} cores, {here['memory_gib']} GiB"
    return f"{gpu}; {said}" if gpu else said


def _machine(comparison: Comparison) -> list[str]:
    """The machine, the devices, the software and the arguments."""
    asked, here = comparison.experiment, comparison.machine
    devices = {row.facts.get("hardware") for row in comparison.rows.values()}
    return [
        f"{comparison.date}, {here['system']}",
        _where(comparison),
        f"Devices: {'; '.join(sorted(filter(None, devices)))}",
        f"Python {here['python']}, TensorFlow {here['tensorflow']}",
        f"CPU kernels: {asked['kernels']}",
        f"Parameters: {asked['about'].get('parameters', 0):,}",
    ]
