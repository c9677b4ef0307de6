"""A travel agency on 127.0.0.1: flights, bookings and mails over HTTP, stored on disk.

    python examples/travel_server.py FOLDER

It prints its address, and exits when its standard input is closed. Bookings take an Idempotency-Key. Mails take none,
as with most mail gateways, but a sent mail can be found by its reference. With `--hold SECONDS`, the first booking and
the first mail are stored at once and answered later, so that a client can be killed while it waits.
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
    """The bookings or the mails, one on each line. An entry is on disk before the request is answered."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._path = path
        self._prefix = prefix
        self._mutex = threading.RLock()

    def entries(self) -> list[Entry]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]

    def find(self, field: str, value: str | None) -> Entry | None:
        """Return the entry with this value, or None. It waits for a write in progress, so that None is reliable."""
        with self._mutex:
            return next((entry for entry in self.entries() if value is not None and entry.get(field) == value), None)

    def add(self, details: Entry, key: str | None = None) -> tuple[Entry, bool]:
        """Add an entry, or find the one with the same key. Returns it, and whether it is the first entry."""
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
        """Print no log."""


def main() -> None:
    parser = argparse.ArgumentParser(description="A travel agency on 127.0.0.1 for the examples.")
    parser.add_argument("folder", type=Path, help="the folder for bookings and mails")
    parser.add_argument("--hold", type=float, default=0.0, help="delay the first answers by this many seconds")
    given = parser.parse_args()
    agency = Agency(given.folder, given.hold)
    threading.Thread(target=agency.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{agency.server_port}", flush=True)
    sys.stdin.read()  # returns when the process that started this one has ended


if __name__ == "__main__":
    main()
