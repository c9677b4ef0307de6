"""An agent with duramen that plans a trip: it finds a flight, books it and sends a mail to the traveller.

    python examples/trip_agent.py agent.db http://127.0.0.1:PORT

The address is that of a `travel_server.py`. Kill the agent at any moment and start it again: it continues where it
stopped, and never books or sends a mail twice.
"""

from __future__ import annotations

import sys
from typing import Any

from travel_client import Travel

import duramen

DATABASE, ADDRESS = sys.argv[1:]
travel = Travel(ADDRESS)


@duramen.step
def search(city: str) -> list[dict[str, Any]]:
    return travel.flights(to=city)


@duramen.step
def choose(flights: list[dict[str, Any]]) -> dict[str, Any]:
    return min(flights, key=lambda flight: int(flight["price"]))  # a real agent asks its model here


def find_booking(flight: dict[str, Any], *, key: str) -> dict[str, Any] | None:
    return travel.booking_made_with(key)  # None means that the step did not happen


@duramen.step(check=find_booking)
def book(flight: dict[str, Any], *, key: str) -> dict[str, Any]:
    return travel.book(flight, idempotency_key=key)


def find_mail(booking: dict[str, Any]) -> dict[str, Any] | None:
    return travel.mail_about(booking["number"])


@duramen.step(check=find_mail)
def send_mail(booking: dict[str, Any]) -> dict[str, Any]:
    text = f"You fly {booking['flight']}."
    return travel.send_mail("ada@example.com", text, reference=booking["number"])


@duramen.task
def trip(city: str) -> str:
    flight = choose(search(city))
    booking = book(flight)
    mail = send_mail(booking)
    return f"{flight['flight']} to {city}: booking {booking['number']}, mail {mail['number']}"


if __name__ == "__main__":
    with duramen.open(DATABASE) as dm:
        print(dm.run(trip, "Lisbon", id="trip-456"))  # starts the run, resumes it, or returns its result
