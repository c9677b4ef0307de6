"""A client for the travel agency of `travel_server.py`. It does not use duramen."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

Entry = dict[str, Any]


class Travel:
    """The travel agency at an address."""

    def __init__(self, address: str) -> None:
        self._address = address

    def flights(self, to: str) -> list[Entry]:
        found: list[Entry] = self._get("/flights", to=to)
        return found

    def book(self, flight: Entry, *, idempotency_key: str) -> Entry:
        return self._post("/bookings", {"flight": flight["flight"]}, {"Idempotency-Key": idempotency_key})

    def booking_made_with(self, key: str) -> Entry | None:
        found: Entry | None = self._get("/bookings", key=key)
        return found

    def send_mail(self, to: str, text: str, *, reference: str) -> Entry:
        return self._post("/mails", {"to": to, "text": text, "reference": reference}, {})

    def mail_about(self, reference: str) -> Entry | None:
        found: Entry | None = self._get("/mails", reference=reference)
        return found

    def _post(self, path: str, body: Entry, headers: dict[str, str]) -> Entry:
        with urlopen(Request(self._address + path, json.dumps(body).encode(), headers), timeout=60) as response:
            entry: Entry = json.load(response)
        return entry

    def _get(self, path: str, **query: str) -> Any:
        try:
            with urlopen(f"{self._address}{path}?{urlencode(query)}", timeout=60) as response:
                return json.load(response)
        except HTTPError as error:
            with error:
                if error.code == 404:
                    return None
            raise
