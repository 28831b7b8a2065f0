"""What figures and tables have in common on a page: a caption, and a name to link to.

The book numbers captions as it is built (workshop/extensions/captions.py).
"""

from __future__ import annotations

import html
import re


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
