"""What writers store and were told, and whether the store still says the same.

`write_one` is the writing side: every append has a number, its content follows from that number, and a line is
said only after the append returned. `Ledger` is the reading side: it collects those lines and audits a store.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duramen

if __package__:
    from .children import complete_lines
else:
    from children import complete_lines

BATCH = 3


def content(writer: str, number: int, part: int) -> dict[str, Any]:
    """What event `part` of a writer's append `number` holds. Every thirteenth append brings a blob."""
    text = f"{writer}/{number}/{part} "
    return {"writer": writer, "n": number, "part": part, "text": text * 3000 if number % 13 == 12 else text}


def parts_of(number: int) -> int:
    """Every fifth append is a batch."""
    return BATCH if number % 5 == 4 else 1


def write_one(session: duramen.Session, writer: str, number: int, say: Callable[[str], None]) -> None:
    """Append what belongs to `number` and say so once it returned. Half of the appends carry a key."""
    options: Any = {"key": f"{writer}-{number}"} if number % 2 else {}
    if parts_of(number) == 1:
        events = [session.append("wrote", content(writer, number, 0), actor=writer, **options)]
    else:
        drafts = [duramen.Draft("wrote", content(writer, number, part), actor=writer) for part in range(BATCH)]
        events = session.append_all(drafts, **options)
    say(json.dumps([session.id, writer, number, events[0].position, [event.hash.hex() for event in events]]))


class Ledger:
    """Audits the sessions of one store, each event once, over many openings."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._read: dict[str, int] = {}
        self._hashes: dict[tuple[str, int], str] = {}
        self._numbers: dict[tuple[str, str], list[int]] = {}
        self._told: set[tuple[str, str, int]] = set()
        self.acknowledged = 0

    def audit(self, said: list[Path], *, unsure: int) -> None:
        """Reopen the store and check it against what the writers said; of what they were not told, at most
        `unsure` appends may have landed."""
        with duramen.open(self._address) as store:
            for row in list(store.sessions()):
                self._take_in(store.session(row.session))
        for path in said:
            for line in complete_lines(path):
                self._expect(*json.loads(line))
        landed = {(session, writer, n) for (session, writer), numbers in self._numbers.items() for n in numbers}
        assert self._told <= landed
        assert len(landed - self._told) <= unsure, landed - self._told
        self._told |= landed  # what landed unheard is known from now on

    def _take_in(self, session: duramen.Session) -> None:
        """The new events of a session: whole appends in the order of each writer, each once."""
        new = list(session.events(start=self._read.get(session.id, 0) + 1))
        while new:
            writer, number = new[0].data["writer"], new[0].data["n"]
            whole, new = new[: parts_of(number)], new[parts_of(number) :]
            expected = [content(writer, number, part) for part in range(parts_of(number))]
            assert [event.data for event in whole] == expected, "a batch is torn, or an event is not what was written"
            numbers = self._numbers.setdefault((session.id, writer), [])
            assert not numbers or numbers[-1] < number, f"{writer} wrote {number} after {numbers[-1]}"
            numbers.append(number)
            for event in whole:
                self._read[session.id] = self._read.get(session.id, 0) + 1
                assert event.position == self._read[session.id]
                self._hashes[session.id, event.position] = event.hash.hex()

    def _expect(self, session: str, writer: str, number: int, position: int, hashes: list[str]) -> None:
        found = [self._hashes.get((session, position + index)) for index in range(len(hashes))]
        assert found == hashes, f"{writer} was told that {number} is at {session}#{position}"
        self._told.add((session, writer, number))
        self.acknowledged += 1

    @property
    def events(self) -> int:
        return len(self._hashes)


def verified(address: str) -> int:
    """Walk every chain of the store; returns how many events there are."""
    with duramen.open(address) as store:
        found = store.verify()
    assert found.ok, found.problems
    return found.events
