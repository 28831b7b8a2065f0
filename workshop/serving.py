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
        if code == HTTPStatus.NOT_FOUND and lost.is_file():
            page = lost.read_text(encoding="utf-8")
            self.error_message_format = page.replace("%", "%%")
        super().send_error(code, *said)
