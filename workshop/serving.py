"""A server for the rendered book on this machine, which answers as a host does.

It has a page for who is lost, and squeezes text.
"""

from __future__ import annotations

import gzip
import http.server
import io
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO

TEXTS = {".css", ".html", ".js", ".json", ".mjs", ".svg", ".txt", ".xml"}


class Pages(http.server.SimpleHTTPRequestHandler):
    """Serve a folder; for what isn't there, its 404.html."""

    def send_head(self) -> BinaryIO | None:
        """Send a text squeezed to who can open that; all else as it is."""
        file = Path(self.translate_path(self.path))
        can = "gzip" in self.headers.get("Accept-Encoding", "")
        if not can or file.suffix not in TEXTS or not file.is_file():
            return super().send_head()
        squeezed = gzip.compress(file.read_bytes(), 6)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", self.guess_type(file))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(squeezed)))
        self.end_headers()
        return io.BytesIO(squeezed)

    def send_error(self, code: int, *said: str | None) -> None:
        """Answer with the book's own page if something is missing."""
        lost = Path(self.directory) / "404.html"
        if code == HTTPStatus.NOT_FOUND and lost.is_file():
            page = lost.read_text(encoding="utf-8")
            self.error_message_format = page.replace("%", "%%")
        super().send_error(code, *said)
