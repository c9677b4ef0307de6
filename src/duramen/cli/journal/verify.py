"""`duramen verify`: is the history what it was when it was written?"""

from __future__ import annotations

from typing import Any

from ...api._sync.duramen import Duramen
from ...errors import JournalDamaged, StoreDamaged, UnknownSession
from ...journal.verification import Problem, Verification
from ..open_store import listed, opened
from ..screen import Screen, expect_json, print_json
from ..terminal_text import visible


def verify(store: str, workspace: str, session: str | None, as_json: bool) -> bool:
    """Walk one session, or everything; print what was walked and every problem. True if there is none."""
    with Screen(stderr=True).status("Walking the chains…"):
        found = _walk(store, workspace, session)
    if as_json:
        expect_json()
        print_json(_fields(found))
    else:
        _print(found)
    return found.ok


def _walk(store: str, workspace: str, session: str | None) -> Verification:
    """What the library found. Damage that keeps the store from opening, or a list from being read, is found too."""
    try:
        with opened(store, workspace) as dm:
            return dm.verify() if session is None else _walk_session(dm, session)
    except JournalDamaged as error:
        return Verification(0, 0, 0, [Problem(error.session, error.position, error.reason)])
    except StoreDamaged as error:
        return Verification(0, 0, 0, [Problem("", 0, error.message)])


def _walk_session(dm: Duramen, session: str) -> Verification:
    found = dm.session(session).verify()
    if found.ok and not found.events and not listed(dm, session):
        raise UnknownSession(session)
    return found


def first_bad_event(found: Verification) -> Problem | None:
    """The first problem that is an event; others are rows beside the events."""
    return next((problem for problem in found.problems if problem.position), None)


def _fields(found: Verification) -> dict[str, Any]:
    first = first_bad_event(found)
    return {
        "ok": found.ok,
        "sessions": found.sessions,
        "events": found.events,
        "blobs": found.blobs,
        "first_bad_event": None if first is None else {"session": first.session, "position": first.position},
        "problems": [problem._asdict() for problem in found.problems],
        "remarks": list(found.remarks),
    }


def _print(found: Verification) -> None:
    screen = Screen()
    walked = (_count(found.sessions, "session"), _count(found.events, "event"), _count(found.blobs, "blob"))
    screen.say("Walked " + ", ".join(walked) + ".")
    for remark in found.remarks:
        screen.say(("Note: ", "bold yellow"), visible(remark), ".")
    if found.ok:
        screen.say(("OK: ", "bold green"), "every event matches its hash, and the database is sound.")
        return
    screen.say(("DAMAGED: ", "bold red"), _count(len(found.problems), "problem") + ".")
    for problem in found.problems:
        screen.say("  ", (_place(problem), "cyan"), ": ", visible(problem.reason))
    first = first_bad_event(found)
    if first is not None:
        screen.say("First bad event: ", (_place(first), "bold red"))


def _place(problem: Problem) -> str:
    """Where a problem is: an event, a session, or the store as a whole."""
    if not problem.session:
        return "store"
    return f"{visible(problem.session)}#{problem.position}" if problem.position else visible(problem.session)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
