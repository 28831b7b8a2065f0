"""A server for the rendered book on this machine, which has a page for who is lost."""

from __future__ import annotations

import http.server
from http import HTTPStatus
from pathlib import Path


class Pages(http.server.SimpleHTTPRequestHandler):
    """Serve a folder; for what isn't there, its 404.html, as a host of pages does."""

    def send_error(self, code: int, *said: str | None) -> None:
        """Answer with the book's own page if something is missing."""
        lost = Path(self.directory) / "404.html"
        if code != HTTPStatus.NOT_FOUND or not lost.is_file():
            super().send_error(code, *said)
            return
        text = lost.read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)
