"""What all widgets bring along: style, script and data, in the page itself."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from typing import Any

from manygpu._files import data_folder

STATIC = data_folder("widgets", "*.css", "*.js")


def static_text(name: str) -> str:
    """A style sheet or a part of a script."""
    return (STATIC / name).read_text(encoding="utf-8").strip()


def script(*names: str) -> str:
    """The script made of these files, one behind the other; nothing in it is global."""
    text = "\n".join(map(static_text, names))
    return f'<script>(() => {{\n"use strict";\n{text}\n}})();</script>'


def data_script(data: Any) -> str:
    """An element whose JSON a script reads; no text in it can end it early."""
    as_json = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json">{as_json}</script>'


def packed(data: Any) -> str:
    """Much data as JSON, deflated, in base64; `unpacked` of calculator.js reads it."""
    as_json = json.dumps(data, separators=(",", ":"))
    return b64encode(zlib.compress(as_json.encode(), 9)).decode()
