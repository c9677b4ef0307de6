"""An HTTP server for side effects: bookings that honour idempotency keys, and mails that do not.

with EffectServer() as server:
    call(server.port, "POST", "/book", {"ref": "flight"}, key="k1")
    assert server.bookings["flight"] == ["k1"]

It handles one connection after the other. A query therefore sees every earlier request, also that of a client that was
killed while it sent the request.
"""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter, defaultdict
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Self
from urllib.parse import unquote

FAILURES = 2
"""How often /flaky fails before it succeeds."""


class EffectServer:
    """Counts the effects by reference."""

    def __init__(self) -> None:
        self.bookings: defaultdict[str, list[str]] = defaultdict(list)
        """The key of each booking. A request with a known key makes no new booking."""
        self.requested_keys: defaultdict[str, set[str]] = defaultdict(set)
        """All keys under which a booking was requested."""
        self.mails: Counter[str] = Counter()
        self.flaky_calls: Counter[str] = Counter()
        self._http = HTTPServer(("127.0.0.1", 0), _handler(self))
        self.port: int = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def answer(self, method: str, path: str, body: dict[str, Any], key: str | None) -> tuple[int, Any]:
        """Handle one request and return status and answer."""
        if (method, path) == ("POST", "/book"):
            return self._book(body["ref"], key or "")
        if (method, path) == ("POST", "/mail"):
            self.mails[body["ref"]] += 1
            return 200, {"sent": True}
        if method == "GET" and path.startswith("/mail/"):
            sent = self.mails[unquote(path.removeprefix("/mail/"))]
            return (200, {"sent": True}) if sent else (404, None)
        if (method, path) == ("POST", "/flaky"):
            self.flaky_calls[body["ref"]] += 1
            return (500, None) if self.flaky_calls[body["ref"]] <= FAILURES else (200, "steady")
        return 405, None

    def _book(self, ref: str, key: str) -> tuple[int, Any]:
        self.requested_keys[ref].add(key)
        if key not in self.bookings[ref] or not key:
            self.bookings[ref].append(key)
        return 200, {"seat": len(self.bookings[ref])}

    def close(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _handler(server: EffectServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            raw = self.rfile.read(length)
            if len(raw) < length:
                return  # the client was killed while it sent the request
            status, answer = server.answer(
                self.command, self.path, json.loads(raw or b"{}"), self.headers.get("Idempotency-Key")
            )
            with suppress(OSError):  # the client was killed before it read the answer
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

        do_GET = do_POST = _handle

        def handle(self) -> None:
            with suppress(ConnectionError):  # the client was killed
                super().handle()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def call(port: int, method: str, path: str, body: Any = None, *, key: str | None = None) -> Any:
    """Send one request. Returns None for a 404 and raises OSError for other errors.

    Uses plain sockets because importing an HTTP client takes longer than most children of these tests run.
    """
    raw = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.0\r\nContent-Length: {len(raw)}\r\n"
    head += "" if key is None else f"Idempotency-Key: {key}\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(f"{head}\r\n".encode() + raw)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    first, _, content = answer.partition(b"\r\n\r\n")
    status = int(first.split()[1])
    if status == 404:
        return None
    if status != 200:
        raise OSError(f"{method} {path} was answered with {status}")
    return json.loads(content)
