"""The claims as a table on a page: links to their evidence, and a filter.

The filter is a row of radio buttons and a style sheet. It needs no kernel and no
script, works by keyboard, and shows all rows where a browser doesn't know `:has`.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from manygpu import _page
from manygpu.sources import VERDICTS, Claim, Evidence

HEADERS = ("what it says", "verdict", "what we found")


def show(claims: Sequence[Claim], caption: str, name: str) -> None:
    """Show claims as a table that can be filtered by verdict; as text in a terminal.

    Args:
        claims: in the order in which they are to stand.
        caption: what the table shows; the book numbers it.
        name: prose links to [Table](#table-name); also tells its buttons apart.

    Raises:
        ValueError: there are no claims, or no link could hold the name.
    """
    if not claims:
        raise ValueError("a table of claims needs claims, got none")
    _page.show(to_html(claims, caption, name), to_text(claims))


def to_html(claims: Sequence[Claim], caption: str, name: str) -> str:
    """The table and its filter as HTML; see `show`. All text is escaped."""
    head = "".join(f'<th scope="col">{header}</th>' for header in HEADERS)
    return (
        f'<div id="claims-{name}">{_style(name)}{_filter(claims, name)}'
        f'<div class="manygpu-table"{_page.named(name)}><table>'
        f"{_page.caption('caption', caption)}<thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(map(_row, claims))}</tbody></table></div></div>"
    )


def _style(name: str) -> str:
    """Hide the rows of other verdicts than the one that is chosen."""
    place = f"#claims-{name}"
    rules = "".join(
        f"{place}:has(input[value={v}]:checked) tbody tr:not(.{v}){{display:none}}"
        for v in VERDICTS
    )
    look = (
        f"{place} td,{place} th{{text-align:left}}"
        f"{place} table{{min-width:34rem}}"
        f"{place} fieldset{{border:0;padding:0;margin:0 0 .4rem}}"
        f"{place} legend{{font-size:1rem;margin:0}}"
        f"{place} label{{margin-right:1rem;white-space:nowrap}}"
        f"{place} .where{{display:block;font-size:.9em;font-weight:400;opacity:.8}}"
        f"{place} td a{{font-size:.9em;white-space:nowrap}}"
        f"{place} code{{white-space:normal;overflow-wrap:break-word}}"  # a test's name
        f"@media(max-width:576px){{{place} table{{min-width:0}}{place} thead"
        f"{{display:none}}{place} :is(tr,th,td){{display:block;border:0}}"
        f"{place} tbody th{{position:static;max-width:none;font-weight:600}}"
        f"{place} tbody tr{{padding:.5rem 0;border-top:1px solid}}"
        f"{place} td:nth-child(2){{font-style:italic}}}}"  # a phone stacks the cells
    )
    return f"<style>{rules}{look}</style>"


def _filter(claims: Sequence[Claim], name: str) -> str:
    """Radio buttons: all, or one verdict, each with its number of claims."""
    sizes = {v: sum(claim.verdict == v for claim in claims) for v in VERDICTS}
    sizes = {"all": len(claims)} | {v: n for v, n in sizes.items() if n}
    buttons = "".join(
        f'<label><input type="radio" name="claims-{name}" value="{value}"'
        f"{' checked' if value == 'all' else ''}> {value} ({size})</label>"
        for value, size in sizes.items()
    )
    return f"<fieldset><legend>Show</legend>{buttons}</fieldset>"


def _row(claim: Claim) -> str:
    """One claim; its row has the claim's name, so that a link can lead to it."""
    said, quote, where, found = (
        _page.breakable(html.escape(text))
        for text in (claim.claim, claim.quote, _where(claim), claim.finding)
    )
    links = ", ".join(_links(claim.evidence))
    return (
        f'<tr id="{claim.name}" class="{claim.verdict}">'
        f'<th scope="row">{said}'
        f'<span class="where">{claim.name}: “{quote}” ({where})</span></th>'
        f"<td>{claim.verdict}</td>"
        f"<td>{found} {links}</td></tr>"  # few nodes: many rows
    )


def _where(claim: Claim) -> str:
    """Where in its source it stands, such as "Overview, lines 3-4"."""
    one = claim.lines.isdigit()
    return f"{claim.section}, line{'' if one else 's'} {claim.lines}"


def _links(evidence: Sequence[Evidence]) -> Iterator[str]:
    """Links to cells on their pages, or names of tests, which have no page.

    Several cells of one page are numbered, so that no two links read alike.
    """
    files = [piece.file for piece in evidence]
    for i, piece in enumerate(evidence):
        if not piece.is_cell:
            yield f"<code>{_page.breakable(piece.place)}</code>"
            continue
        said = piece.file.split("/")[1].replace("-", " ")
        if files.count(piece.file) > 1:
            said += f" ({files[: i + 1].count(piece.file)})"
        yield f'<a href="../{piece.file}.html#cell-{piece.place}">{said}</a>'


def to_text(claims: Sequence[Claim]) -> str:
    """The claims as lines of text, for a terminal."""
    return "\n".join(
        f"{c.name} ({_where(c)}): {c.claim}\n"
        f"  “{c.quote}”\n"
        f"  {c.verdict}: {c.finding} ({' '.join(map('#'.join, c.evidence))})"
        for c in claims
    )
