"""What all that a page shows has in common: how it is shown, a caption, a name.

The book numbers captions as it is built (workshop/extensions/captions.py).
"""

from __future__ import annotations

import html
import re


def show(page: str, text: str) -> None:
    """Show HTML in a notebook, with the text beside; in a script, print the text."""
    from IPython import get_ipython  # here: a command starts sooner without
    from IPython.display import display

    if get_ipython() is None:
        print(text)
    else:
        display({"text/html": page, "text/plain": text}, raw=True)


def caption(tag: str, text: str) -> str:
    """The element that holds a caption, its text escaped; nothing without a text."""
    words = html.escape(" ".join(text.split()))
    return f'<{tag} class="manygpu-caption">{words}</{tag}>' if words else ""


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
