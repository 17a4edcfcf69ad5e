"""Answers 200 to every export: the other end when a run is not recorded.

Usage: sink.py URL_FILE [BODIES_FOLDER]. With a folder, bodies are kept there.
"""

from __future__ import annotations

import itertools
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_FOLDER = Path(sys.argv[2]) if len(sys.argv) > 2 else None
_COUNT = itertools.count()


class Sink(BaseHTTPRequestHandler):
    """Keep-alive, whole bodies, empty JSON answers."""

    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if _FOLDER is not None and body:
            name = f"{next(_COUNT):05d}{self.path.replace('/', '_')}"
            (_FOLDER / name).write_bytes(body)
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_GET = do_POST = do_PATCH = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    Path(sys.argv[1]).write_text(f"http://127.0.0.1:{server.server_port}")
    server.serve_forever()
