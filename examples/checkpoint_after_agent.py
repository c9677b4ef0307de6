"""The agent of `trip_agent.py`, written the plain way: do a step, then save that it is done.

    python examples/checkpoint_after_agent.py agent.json http://127.0.0.1:PORT

Between the two is a moment in which the step has happened and is not recorded. The key of each booking does not help: it
is created for the request, as HTTP clients do, and lost with the process. Mail takes no key at all.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from travel_client import Travel

CHECKPOINT, ADDRESS = sys.argv[1:]
travel = Travel(ADDRESS)


def once(name: str, do: Callable[[], Any]) -> Any:
    """The result of a step: from the checkpoint, or by doing it and saving it afterwards."""
    path = Path(CHECKPOINT)
    done = json.loads(path.read_text()) if path.exists() else {}
    if name not in done:
        done[name] = do()
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(done))
        os.replace(fresh, path)
    return done[name]


def trip(city: str) -> str:
    flights = once("search", lambda: travel.flights(to=city))
    flight = once("choose", lambda: min(flights, key=lambda flight: int(flight["price"])))
    booking = once("book", lambda: travel.book(flight, idempotency_key=str(uuid.uuid4())))
    text = f"You fly {booking['flight']}."
    mail = once("send_mail", lambda: travel.send_mail("ada@example.com", text, reference=booking["number"]))
    return f"{flight['flight']} to {city}: booking {booking['number']}, mail {mail['number']}"


if __name__ == "__main__":
    print(trip("Lisbon"))
