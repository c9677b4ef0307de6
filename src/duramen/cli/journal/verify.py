"""`duramen verify`: checks that no event, blob or row was changed."""

from __future__ import annotations

from typing import Any

from ...api._sync.duramen import Duramen
from ...errors import JournalDamaged, StoreDamaged, UnknownSession
from ...journal.verification import Problem, Verification
from ..console import PlainConsole, print_json, use_utf8_stdout
from ..open_store import open_readonly, session_listed
from ..terminal_text import visible


def verify_store(store: str, workspace: str, session: str | None, as_json: bool) -> bool:
    """Verify one session, or the whole store, and print every problem. True if there is none."""
    with PlainConsole(stderr=True).status("Checking the events…"):
        result = _verification(store, workspace, session)
    if as_json:
        use_utf8_stdout()
        print_json(_fields(result))
    else:
        _print(result)
    return result.ok


def _verification(store: str, workspace: str, session: str | None) -> Verification:
    """The result of `dm.verify`. Damage that prevents opening the store or listing sessions becomes a problem, too."""
    try:
        with open_readonly(store, workspace) as dm:
            return dm.verify() if session is None else _session_verification(dm, session)
    except JournalDamaged as error:
        return Verification(0, 0, 0, [Problem(error.session, error.position, error.reason)])
    except StoreDamaged as error:
        return Verification(0, 0, 0, [Problem("", 0, error.message)])


def _session_verification(dm: Duramen, session: str) -> Verification:
    result = dm.session(session).verify()
    if result.ok and not result.events and not session_listed(dm, session):
        raise UnknownSession(session)
    return result


def first_bad_event(result: Verification) -> Problem | None:
    """The first problem with an event. Other problems concern rows of other tables."""
    return next((problem for problem in result.problems if problem.position), None)


def _fields(result: Verification) -> dict[str, Any]:
    first = first_bad_event(result)
    return {
        "ok": result.ok,
        "sessions": result.sessions,
        "events": result.events,
        "blobs": result.blobs,
        "first_bad_event": None if first is None else {"session": first.session, "position": first.position},
        "problems": [problem._asdict() for problem in result.problems],
        "remarks": list(result.remarks),
    }


def _print(result: Verification) -> None:
    console = PlainConsole()
    counts = (_count(result.sessions, "session"), _count(result.events, "event"), _count(result.blobs, "blob"))
    console.print_line("Checked " + ", ".join(counts) + ".")
    for remark in result.remarks:
        console.print_line(("Note: ", "bold yellow"), visible(remark), ".")
    if result.ok:
        console.print_line(("OK: ", "bold green"), "every event matches its hash, and the database is intact.")
        return
    console.print_line(("DAMAGED: ", "bold red"), _count(len(result.problems), "problem") + ".")
    for problem in result.problems:
        console.print_line("  ", (_place(problem), "cyan"), ": ", visible(problem.reason))
    first = first_bad_event(result)
    if first is not None:
        console.print_line("First bad event: ", (_place(first), "bold red"))


def _place(problem: Problem) -> str:
    """Where a problem is: an event, a session, or the store."""
    if not problem.session:
        return "store"
    return f"{visible(problem.session)}#{problem.position}" if problem.position else visible(problem.session)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
