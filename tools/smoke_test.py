"""Tests an installed duramen in an empty folder, with nothing but its required dependencies.

`tools/build_dist.py` copies this file next to a new virtual environment and runs it there: `python -I smoke_test.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import duramen

STORE = Path("agent.db")
CALLS = Path("calls.txt")
TIMEOUT = 60.0


@duramen.step
def book(flight: str) -> str:
    with CALLS.open("a", encoding="utf-8") as calls:
        calls.write(f"book {flight}\n")
    return f"ticket for {flight}"


@duramen.step
def send(ticket: str) -> str:
    with CALLS.open("a", encoding="utf-8") as calls:
        calls.write(f"send {ticket}\n")
    if "DURAMEN_SMOKE_HANG" in os.environ:
        time.sleep(TIMEOUT)
    return f"sent {ticket}"


@duramen.task
def trip(flight: str) -> str:
    return send(book(flight))


def check_install() -> None:
    """duramen is imported from this environment, not from a source tree."""
    package = Path(duramen.__file__ or "").resolve()
    assert Path(sysconfig.get_path("purelib")).resolve() in package.parents, package
    assert duramen.__version__ != "0+unknown"
    assert (package.parent / "py.typed").exists()


def check_resume() -> None:
    """A process is killed in its second step. The next one resumes the run and repeats only that step."""
    child = subprocess.Popen([sys.executable, "-I", __file__, "--run"], env=os.environ | {"DURAMEN_SMOKE_HANG": "1"})
    deadline = time.monotonic() + TIMEOUT
    while not (CALLS.exists() and "send" in CALLS.read_text(encoding="utf-8")):
        assert time.monotonic() < deadline, "The run did not reach its second step."
        assert child.poll() is None, "The run ended before its second step."
        time.sleep(0.05)
    child.kill()
    child.wait()
    subprocess.run([sys.executable, "-I", __file__, "--run"], check=True, timeout=TIMEOUT)
    calls = CALLS.read_text(encoding="utf-8").splitlines()
    assert calls == ["book TP 1351", *["send ticket for TP 1351"] * 2], calls


def run_trip() -> None:
    with duramen.open(STORE) as dm:
        assert dm.run(trip, "TP 1351", id="trip-1") == "sent ticket for TP 1351"


def check_memory() -> None:
    with duramen.open(STORE) as dm:
        dm.memory.remember("Ada prefers aisle seats on long flights", kind="preference", subject="ada")
        dm.memory.remember("The staging server runs Debian 13")
    with duramen.open(STORE) as dm:
        first = dm.memory.recall("Which seats does Ada like?", subject="ada").hits[0]
        assert first.memory.content.startswith("Ada prefers"), first


def check_context() -> None:
    with duramen.open(STORE) as dm:
        session = dm.session("chat")
        session.say("user", "An aisle seat, please.")
        session.say("assistant", "Seat 12C is an aisle seat.")
        context = session.context(budget=2_000)
        assert [message["role"] for message in context.anthropic()["messages"]] == ["user", "assistant"]
        assert context.openai()["messages"][1]["content"] == "Seat 12C is an aisle seat."
        assert 0 < context.tokens <= 2_000


def check_command_line() -> None:
    command = Path(sysconfig.get_path("scripts"), "duramen")
    for arguments, expected in [
        (["--version"], duramen.__version__),
        (["runs", "--store", str(STORE)], "trip-1"),
        (["verify", "--store", str(STORE)], "OK: every event"),
        (["memory", "list", "--store", str(STORE)], "Debian"),
    ]:
        done = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout, done.stdout


def main() -> None:
    for check in (check_install, check_resume, check_memory, check_context, check_command_line):
        check()
        print(f"  {check.__name__}: ok")


if __name__ == "__main__":
    run_trip() if "--run" in sys.argv else main()
