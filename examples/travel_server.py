"""A travel agency on 127.0.0.1: flights, bookings and mails over real HTTP, stored on disk.

    python examples/travel_server.py FOLDER         prints its address; ends when its input does

Bookings honour an Idempotency-Key. Mail takes no key, as most mail gateways do not, but what was sent can be looked up
by its reference. With `--hold SECONDS` the first booking and the first mail are entered at once and answered that much
later: time enough to kill the client that waits for the answer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

FLIGHTS = [
    {"flight": "TP 1351", "to": "Lisbon", "price": 129},
    {"flight": "BA 500", "to": "Lisbon", "price": 187},
    {"flight": "LH 1166", "to": "Lisbon", "price": 164},
]
Entry = dict[str, Any]


class EntryFile:
    """The bookings or the mails, one line each. An entry is on disk before it is answered."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._path = path
        self._prefix = prefix
        self._mutex = threading.RLock()

    def entries(self) -> list[Entry]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]

    def find(self, field: str, value: str | None) -> Entry | None:
        """The entry with this value. Waits for an entry that is being written, so that None is reliable."""
        with self._mutex:
            return next((entry for entry in self.entries() if value is not None and entry.get(field) == value), None)

    def add(self, details: Entry, key: str | None = None) -> tuple[Entry, bool]:
        """Add an entry, or find the one with the same key. Returns it, and whether it is the first of all."""
        with self._mutex:
            known = self.find("key", key)
            if known is not None:
                return known, False
            count = len(self.entries())
            entry = {"number": f"{self._prefix}-{1001 + count}", **details, "key": key}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
                file.flush()
                os.fsync(file.fileno())
            return entry, count == 0


class Agency(ThreadingHTTPServer):
    """The server with its bookings and mails."""

    daemon_threads = True

    def __init__(self, folder: Path, hold: float) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.hold = hold
        self.entries = {"/bookings": EntryFile(folder / "bookings", "B"), "/mails": EntryFile(folder / "mails", "M")}


class Handler(BaseHTTPRequestHandler):
    """Handles the requests of the agents."""

    server: Agency

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        wanted = dict(parse_qsl(address.query))
        if address.path == "/flights":
            self._answer(200, [flight for flight in FLIGHTS if flight["to"] == wanted.get("to")])
        elif address.path in self.server.entries and wanted:
            found = self.server.entries[address.path].find(*next(iter(wanted.items())))
            self._answer(200 if found else 404, found)
        else:
            self._answer(404, None)

    def do_POST(self) -> None:
        entries = self.server.entries.get(self.path)
        details = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if entries is None:
            return self._answer(404, None)
        key = self.headers["Idempotency-Key"] if self.path == "/bookings" else None
        entry, first = entries.add(details, key)
        if first:
            time.sleep(self.server.hold)
        return self._answer(201, entry)

    def _answer(self, status: int, body: Any) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        """No log."""


def main() -> None:
    parser = argparse.ArgumentParser(description="A travel agency on loopback.")
    parser.add_argument("folder", type=Path, help="where bookings and mails are stored")
    parser.add_argument("--hold", type=float, default=0.0, help="seconds by which the first answers are delayed")
    given = parser.parse_args()
    agency = Agency(given.folder, given.hold)
    threading.Thread(target=agency.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{agency.server_port}", flush=True)
    sys.stdin.read()  # the process that started this has ended


if __name__ == "__main__":
    main()
