"""Numbered appends, and an audit that none was lost, duplicated or torn.

`write_one` does one append and prints a line after it returned. The content follows from the number of the append.
`AppendAudit` collects the lines and compares them with the store.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duramen

if __package__:
    from .child_processes import complete_lines
else:
    from child_processes import complete_lines

BATCH = 3


def content(writer: str, number: int, part: int) -> dict[str, Any]:
    """The data of event `part` of a writer's append `number`. Every thirteenth append has a blob."""
    text = f"{writer}/{number}/{part} "
    return {"writer": writer, "n": number, "part": part, "text": text * 3000 if number % 13 == 12 else text}


def parts_of(number: int) -> int:
    """Every fifth append is a batch."""
    return BATCH if number % 5 == 4 else 1


def write_one(session: duramen.Session, writer: str, number: int, say: Callable[[str], None]) -> None:
    """Do append `number` and print a line after it returned. Half of the appends carry a key."""
    options: Any = {"key": f"{writer}-{number}"} if number % 2 else {}
    if parts_of(number) == 1:
        events = [session.append("wrote", content(writer, number, 0), actor=writer, **options)]
    else:
        drafts = [duramen.Draft("wrote", content(writer, number, part), actor=writer) for part in range(BATCH)]
        events = session.append_all(drafts, **options)
    say(json.dumps([session.id, writer, number, events[0].position, [event.hash.hex() for event in events]]))


class AppendAudit:
    """Audits the sessions of one store. Each event is read once, also if the store is reopened."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._read: dict[str, int] = {}
        self._hashes: dict[tuple[str, int], str] = {}
        self._numbers: dict[tuple[str, str], list[int]] = {}
        self._acknowledged: set[tuple[str, str, int]] = set()
        self.acknowledged = 0

    def check(self, outputs: list[Path], *, unsure: int) -> None:
        """Reopen the store and compare it with the output of the writers. At most `unsure` appends may be stored
        without a line."""
        with duramen.open(self._address) as store:
            for row in list(store.sessions()):
                self._read_new(store.session(row.session))
        for path in outputs:
            for line in complete_lines(path):
                self._expect(*json.loads(line))
        stored = {(session, writer, n) for (session, writer), numbers in self._numbers.items() for n in numbers}
        assert self._acknowledged <= stored
        assert len(stored - self._acknowledged) <= unsure, stored - self._acknowledged
        self._acknowledged |= stored  # an append that is stored now must stay stored

    def _read_new(self, session: duramen.Session) -> None:
        """Read the new events of a session. Check that appends are complete, unique, and in order for each writer."""
        new = list(session.events(start=self._read.get(session.id, 0) + 1))
        while new:
            writer, number = new[0].data["writer"], new[0].data["n"]
            append, new = new[: parts_of(number)], new[parts_of(number) :]
            expected = [content(writer, number, part) for part in range(parts_of(number))]
            assert [event.data for event in append] == expected, (
                "a batch is torn, or an event has other data than was written"
            )
            numbers = self._numbers.setdefault((session.id, writer), [])
            assert not numbers or numbers[-1] < number, f"{writer} wrote {number} after {numbers[-1]}"
            numbers.append(number)
            for event in append:
                self._read[session.id] = self._read.get(session.id, 0) + 1
                assert event.position == self._read[session.id]
                self._hashes[session.id, event.position] = event.hash.hex()

    def _expect(self, session: str, writer: str, number: int, position: int, hashes: list[str]) -> None:
        stored = [self._hashes.get((session, position + index)) for index in range(len(hashes))]
        assert stored == hashes, f"append {number} of {writer} was acknowledged at {session}#{position}"
        self._acknowledged.add((session, writer, number))
        self.acknowledged += 1

    @property
    def events(self) -> int:
        """The number of events read so far."""
        return len(self._hashes)


def verified(address: str) -> int:
    """Verify every chain of the store. Returns the number of events."""
    with duramen.open(address) as store:
        result = store.verify()
    assert result.ok, result.problems
    return result.events
