"""One table for the results of every chapter: read, not deciphered.

A page shows it as HTML: header cells, digits below digits, the best of a column marked,
bars inside cells. A terminal gets the same table as text. It needs no style sheet; the
book's own makes it prettier.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np

from manygpu import _page

STAR, NOTHING = "★", "–"
# Needed to read a column of numbers, so it doesn't wait for a style sheet.
DIGITS = "text-align:right;font-variant-numeric:tabular-nums"
# On a phone, a cell and a header have room for three lines; a long text is cut at so
# many letters.
LINES, HEADERS, WIDEST = 3, 3, 22
SHORT = 12  # letters of a date or a name that is not broken into lines
THOUSANDS = re.compile(r"(?<![\d.,])\d{4,}(?=$|[.%])")
LARGE = 1e6  # up to here, "g" writes a number with all its digits
Cell = str | Real | Sequence[Real] | None


class Link(str):
    """A cell's text that leads somewhere.

    Args:
        text: short.
        address: begins with https.
    """

    address: str

    def __new__(cls, text: str, address: str) -> Link:
        """A str with an address; raises ValueError for one that isn't https."""
        if not address.startswith("https://"):
            raise ValueError(f"address must begin with https://, got {address!r}")
        made = super().__new__(cls, text)
        made.address = address
        return made


def visible(text: object) -> str:
    """Return a text whose letters do nothing to a terminal but show."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode()
        for c in str(text)
    )


def spread(values: Iterable[Real]) -> tuple[float, float, float]:
    """Return the median, the least and the largest: the cell of some measurements.

    Raises:
        ValueError: no values.
    """
    found = np.fromiter(values, float)
    if not found.size:
        raise ValueError("values must hold at least one measurement, got none")
    return float(np.median(found)), float(found.min()), float(found.max())


@dataclass(frozen=True)
class Column:
    """One column: its header, and its cells in order.

    Attributes:
        header: such as "memory [MB]"; what is in brackets is the unit.
        spec: how numbers are written, such as ".1f".
        cells: a text, a number, None, or (middle, least, most) of measurements.
        bar: draw each number's share of the largest.
        best: `min` or `max`, whichever is good; None marks nothing.
        out: the rows, from 0, that can't be the best.
    """

    header: str
    spec: str
    cells: tuple[Cell, ...]
    bar: bool = False
    best: Callable | None = None
    out: frozenset[int] = frozenset()

    @property
    def middles(self) -> list[float | None]:
        """One number a cell, that of a spread its middle; None where there is none."""
        return [_spread(cell)[0] if _is_number(cell) else None for cell in self.cells]

    @property
    def numeric(self) -> bool:
        """Whether any cell is a number: then all stand on the right."""
        return any(_is_number(cell) for cell in self.cells)

    @property
    def shares(self) -> list[float | None]:
        """The length of each cell's bar, of 1; None where there is none."""
        top = max(_finite(self.middles), default=0.0) or 1.0
        finite = [m is not None and math.isfinite(m) for m in self.middles]
        return [
            m / top if here and self.bar else None
            for m, here in zip(self.middles, finite, strict=True)
        ]

    @property
    def marked(self) -> list[bool]:
        """Which cells are the best, or too near it to tell: their spread reaches it.

        None is where that is said of all: then there is nothing to choose.
        """
        asked = [row not in self.out for row in range(len(self.cells))]
        pairs = zip(self.middles, asked, strict=True)
        known = _finite([middle for middle, here in pairs if here])
        if self.best is None or not known:
            return [False] * len(self.cells)
        winner = self.best(known)
        near = [
            here and _is_number(cell) and self._reaches(cell, winner)
            for cell, here in zip(self.cells, asked, strict=True)
        ]
        return [mark and sum(near) < sum(asked) for mark in near]

    def _reaches(self, cell: Cell, winner: float) -> bool:
        """Whether a cell is written as the best one is, or its spread holds it."""
        middle, least, most = _spread(cell)
        same = _digits(middle, self.spec) == _digits(winner, self.spec)
        return same or least <= winner <= most

    def written(self, cell: Cell) -> tuple[str, str]:
        """A cell's text, and that of its spread: ("1.20", "(1.10–1.40)")."""
        if cell is None:
            return NOTHING, ""
        if isinstance(cell, str):
            return _page.plain(cell), ""
        if isinstance(cell, Real):
            return _digits(cell, self.spec), ""
        middle, least, most = (_digits(number, self.spec) for number in cell)
        return middle, f"({least}–{most})"


def table(
    rows: Sequence[Sequence[Cell]],
    columns: Mapping[str, str] | Sequence[str],
    caption: str = "",
    *,
    bars: Sequence[str] = (),
    best: Mapping[str, Callable] | None = None,
    name: str = "",
    first: int | None = None,
) -> None:
    """Show a table of results: HTML on a page, text in a terminal.

    Args:
        rows: a list of rows of cells; the first cell of each is what it is about.
            A cell is a text (a `Link` leads somewhere), a number, a truth value, None
            (nothing known), or (middle, least, most) of some measurements.
        columns: how each column's numbers are written, by header, for instance
            {"strategy": "", "memory [MB]": ".1f"}. What is in brackets is a unit. A
            list of headers will do where numbers need no rounding.
        caption: what the table shows; the book numbers it.
        bars: headers of columns whose cells get a bar: their share of the largest.
        best: `min` or `max` for each header whose best cell is to be marked. Where
            spreads reach the best one's middle, they are marked too; where all do,
            none is.
        name: prose links to [Table](#table-name); the book adds the number.
        first: so many rows are seen at once, and the others in a fold below them.

    Raises:
        TypeError: a cell is none of these.
        ValueError: there is nothing in it, rows differ in length, a column that is to
            be marked is not there or holds no number, or a bar would be negative.
    """
    show(columns_of(rows, columns, bars, best or {}), caption, name, first)


def show(
    made: Sequence[Column], caption: str = "", name: str = "", first: int | None = None
) -> None:
    """Show columns as a table; see `table`."""
    _page.show(table_html(made, caption, name, first), to_text(made, caption))


def columns_of(
    rows: Sequence[Sequence[Cell]],
    columns: Mapping[str, str] | Sequence[str],
    bars: Sequence[str],
    best: Mapping[str, Callable],
) -> list[Column]:
    """The columns of a table. Arguments and errors are those of `table`."""
    specs = columns if isinstance(columns, Mapping) else dict.fromkeys(columns, "")
    if len(specs) != len(columns):
        raise ValueError(f"columns must have a header each, got {list(columns)}")
    if not rows or not specs:
        raise ValueError(
            f"a table needs rows and columns, got {len(rows)} and {len(specs)}"
        )
    for number, row in enumerate(rows):
        if len(row) != len(specs):
            raise ValueError(
                f"rows[{number}] must have a cell for each of {list(specs)}, "
                f"got {len(row)}: {list(row)}"
            )
    for argument, headers in (("bars", bars), ("best", best)):
        strange = sorted(set(headers) - set(specs))
        if strange:
            raise ValueError(
                f"{argument} must name columns of {list(specs)}, got {strange}"
            )
    made = [
        Column(
            _page.plain(header),
            spec,
            tuple(map(_said, cells)),
            header in bars,
            best.get(header),
        )
        for (header, spec), cells in zip(
            specs.items(), zip(*rows, strict=True), strict=True
        )
    ]
    for column in made:
        _check(column)
    return made


def _check(column: Column) -> None:
    """Refuse cells that can't be written, and marks that mean nothing."""
    about = f"column {column.header!r}"
    for cell in column.cells:
        if not (cell is None or isinstance(cell, str) or _is_number(cell)):
            raise TypeError(
                f"{about} must hold texts, numbers, (middle, least, most) or None, "
                f"got {cell!r}"
            )
    if column.best not in (None, min, max):
        raise ValueError(f"best of {about} must be min or max, got {column.best!r}")
    if (column.bar or column.best) and not column.numeric:
        raise ValueError(f"{about} holds no number to mark or to draw a bar of")
    if column.bar and min(_finite(column.middles), default=0.0) < 0:
        raise ValueError(f"{about} has negative numbers; a bar shows a share")


def table_html(
    columns: Sequence[Column],
    caption: str = "",
    name: str = "",
    first: int | None = None,
) -> str:
    """A table as HTML; see `table`. All text is escaped."""
    count = len(columns[0].cells)
    seen = min(first or count, count)
    whole = _part(columns, range(seen), caption, name)
    if seen == count:
        return whole
    said = f"<summary>{count - seen} more rows</summary>"
    rest = _part(columns, range(seen, count))
    return f'{whole}<details class="more-rows">{said}{rest}</details>'


def _part(
    columns: Sequence[Column], rows: Iterable[int], caption: str = "", name: str = ""
) -> str:
    """Some rows of a table as a table; see `table`."""
    head = "".join(_header(column) for column in columns)
    tags = ["th"] + ["td"] * (len(columns) - 1)
    body = "".join(
        f"<tr>{''.join(map(_cell, columns, [i] * len(columns), tags))}</tr>"
        for i in rows
    )
    note = _note(columns)
    said = f'<span class="note">{note}</span>'
    row = f'<tr><td colspan="{len(columns)}">{said}</td></tr>'
    foot = f"<tfoot>{row}</tfoot>" if note else ""
    return (
        f'<div class="manygpu-table"{_page.named(name)}><table>'
        + _page.caption("caption", caption)
        + f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        + foot
        + "</table></div>"
    )


def to_text(columns: Sequence[Column], caption: str = "") -> str:
    """A table as lines of text, a column below its header; see `table`."""
    blocks = []
    for column in columns:
        lines = [column.header]
        for cell, marked in zip(column.cells, column.marked, strict=True):
            words = " ".join(filter(None, column.written(cell)))
            lines.append(f"{STAR} {words}" if marked else words)
        width = max(map(len, lines))
        place = str.rjust if column.numeric else str.ljust
        blocks.append([place(line, width) for line in lines])
    lines = ["  ".join(row).rstrip() for row in zip(*blocks, strict=True)]
    return "\n".join(filter(None, [caption, *lines, _note(columns)]))


def _header(column: Column) -> str:
    """The header cell; a unit in brackets stands apart."""
    said = _page.breakable(_page.words(column.header))
    said = re.sub(r"(\[.+\])$", r'<span class="unit">\1</span>', said)
    least = f"--least:{_least_width(column)}ch"
    return f'<th scope="col" style="{_place(column)};{least}">{said}</th>'


def _least_width(column: Column) -> int:
    """The letters that a phone leaves a line, so that rows and header stay low."""
    longest = max((len(c) for c in column.cells if isinstance(c, str)), default=0)
    header = re.sub(r" *\[.+\]$", "", column.header)  # its unit has its own line
    least = max(math.ceil(longest / LINES), math.ceil(len(header) / HEADERS))
    return min(least, WIDEST) + 1


def _cell(column: Column, row: int, tag: str) -> str:
    """One cell: a <th> that says what its row is about, or a <td>."""
    cell = column.cells[row]
    text, spread = column.written(cell)
    whole = _is_number(cell) or len(text) <= SHORT
    if isinstance(cell, str):
        text = _page.breakable(_page.words(text))
    else:
        text = html.escape(text)
    spread = html.escape(spread)
    if isinstance(cell, Link):
        text = f'<a href="{html.escape(cell.address)}">{text}</a>'
    if column.marked[row]:
        star = f'<span role="img" aria-label="best">{STAR}</span>'
        text = f"{star} <strong>{text}</strong>"
    if spread:
        text += f' <span class="spread">{spread}</span>'
    share = column.shares[row]
    text += _bar(share) if share is not None else ""
    scope = ' scope="row"' if tag == "th" else ""
    one_line = ";white-space:nowrap" if whole else ""
    return f'<{tag}{scope} style="{_place(column)}{one_line}">{text}</{tag}>'


def _place(column: Column) -> str:
    """Where the cells of a column stand: digits below digits, texts on the left."""
    return DIGITS if column.numeric else "text-align:left"


def _bar(share: float) -> str:
    """A bar below a number; the number says its length, so it is silent."""
    look = f"height:0.3em;width:{share:.1%};background:currentColor;opacity:0.7"
    return f'<span class="bar" aria-hidden="true" style="display:block;{look}"></span>'


def _note(columns: Sequence[Column]) -> str:
    """What the star means, where there is one."""
    stars = [column for column in columns if any(column.marked)]
    if not stars:
        return ""
    spread = any(not isinstance(c, Real | str) for s in stars for c in s.cells if c)
    near = ", or too near it to tell: its spread reaches it" if spread else ""
    return f"{STAR} best of its column{near}"


def _digits(number: Real, spec: str) -> str:
    """A number as its spec writes it, but 1,810 where ".3g" says 1.81e+03.

    Thousands have a comma, whether the spec asks for it or not.
    """
    text = _page.plain(format(number, spec))
    large = spec.endswith("g") and "e+" in text and abs(number) < LARGE
    return f"{float(text):,.0f}" if large else THOUSANDS.sub(_with_commas, text)


def _with_commas(found: re.Match[str]) -> str:
    """Digits with a comma before each three."""
    return f"{int(found[0]):,}"


def _is_number(cell: Cell) -> bool:
    """Whether a cell is a number, or the middle, least and most of some."""
    if isinstance(cell, tuple | list):
        return len(cell) == 3 and all(isinstance(number, Real) for number in cell)
    return isinstance(cell, Real)


def _spread(cell: Cell) -> tuple[float, float, float]:
    """The middle, the least and the most of a cell of numbers."""
    return (cell, cell, cell) if isinstance(cell, Real) else tuple(cell)


def _finite(values: Sequence[float | None]) -> list[float]:
    """The values that can be compared."""
    return [v for v in values if v is not None and math.isfinite(v)]


def _said(cell: Cell) -> Cell:
    """A truth value in words, any other cell as it is."""
    return ("no", "yes")[bool(cell)] if isinstance(cell, bool | np.bool_) else cell
