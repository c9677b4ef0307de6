"""The agent of `trip_agent.py` without duramen: it executes a step, then saves a checkpoint.

    python examples/checkpoint_after_agent.py agent.json http://127.0.0.1:PORT

If the process is killed between the two, the step has happened and is not recorded. The idempotency key of a booking
does not help, because it is created for each request and lost with the process. The mail gateway takes no key.
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
    """Return the result of a step from the checkpoint, or execute the step and save its result."""
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
