"""What all that a page shows has in common: how it is shown, a caption, a name.

The book numbers captions as it is built (workshop/extensions/captions.py).
"""

from __future__ import annotations

import html
import re

COUNT = re.compile(r"\b(\d[\d,]*) (\w+)\(s\)")
ZERO = re.compile(r"(?<![\d.])0(?:\.0+)?e\+00\b")
# A browser may break a line at the minus of 1e-08, before the unit of 709 kB, at the
# slash of α/β and within [12, 11], and not within this element.
WHOLE = re.compile(
    r"(?<![\w.])\d[\d.]*e-\d+|(?<![\w.])\d[\d.,]* (?:[kMGT]i?B|[mµ]?s|S)(?!\w)"
    r"|α/β|\[[\d., ]{1,16}\]"
)
# An integer power such as 2^-28 outside of code, as people type it.
POWER = re.compile(r"(<code>.*?</code>)|(?<![\w.^])(\d+)\^(-?\d+)(?![\w^]|\.\d)")
# A name that is longer than this may be broken into pieces, each of so many letters or
# more: a page has few elements. A tag is no name.
LONG, PIECE = 12, 8
NAME = re.compile(r"<[^>]*>|(?:&[#\w]+;|[^\s<&])+")
PART = re.compile(r"(?<=\w)(?:[_/]+(?=\w)|\.(?=[^\W\d]))")
BOUND = r'<span style="white-space:nowrap">\g<0></span>'


def show(page: str, text: str) -> None:
    """Show HTML in a notebook, with the text beside; in a script, print the text."""
    from IPython import get_ipython  # here: a command starts sooner without
    from IPython.display import display

    if get_ipython() is None:
        print(text)
    else:
        display({"text/html": page, "text/plain": text}, raw=True)


def plain(text: str) -> str:
    """A text for a page or a terminal, whatever number it was made with.

    "1 device(s)" is 1 device, "2 device(s)" are 2 devices, and 0.0e+00 is 0.
    """
    counted = COUNT.sub(lambda m: f"{m[1]} {m[2]}{'s' * (m[1] != '1')}", text)
    return ZERO.sub("0", counted)


def words(text: str) -> str:
    """A text as HTML: escaped, names in backticks as code, numbers in one piece.

    Outside of code, 2^-28 gets a raised exponent.
    """
    code = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(plain(text)))
    return WHOLE.sub(BOUND, POWER.sub(_raised, code))


def _raised(found: re.Match[str]) -> str:
    """A power with its exponent raised; code as it is."""
    code, base, exponent = found.groups()
    return code or f"{base}<sup>{exponent.replace('-', '−')}</sup>"


def breakable(page: str) -> str:
    """HTML whose long names may end a line after "_", "/" or ".", but copy as they are.

    A browser breaks a line at spaces only, so a name with many parts makes a column of
    a table as wide as itself. <wbr> is no letter: who copies the name doesn't get it.
    """
    return NAME.sub(_with_breaks, page)


def _with_breaks(found: re.Match[str]) -> str:
    """One name with places to break it; a tag or a short name as it is."""
    name = found[0]
    if name[0] == "<" or len(html.unescape(name)) <= LONG:
        return name
    pieces, start = [], 0
    for end in (part.end() for part in PART.finditer(name)):
        if end - start >= PIECE:
            pieces.append(name[start:end])
            start = end
    return "<wbr>".join([*pieces, name[start:]])


def caption(tag: str, text: str) -> str:
    """The element that holds a caption, its text escaped; nothing without a text."""
    said = html.escape(plain(" ".join(text.split())))
    return f'<{tag} class="manygpu-caption">{said}</{tag}>' if said else ""


def named(name: str) -> str:
    """The attribute that lets prose link to a figure or a table by name.

    Raises:
        ValueError: a link could not hold this name.
    """
    if name and not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise ValueError(
            f"name must be of small letters, digits and hyphens, got {name!r}"
        )
    return f' data-name="{name}"' if name else ""
