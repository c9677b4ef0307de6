"""A demo that takes a few seconds: an agent is killed during a booking and during a mail, and does neither twice.

Nothing is simulated. A travel agency runs as an HTTP server (`travel_server.py`), and an agent books there
(`trip_agent.py`). This process kills the agent with SIGKILL after the agency has acted and before its answer arrives,
starts it again, and prints the journal as it grows. Then it does the same with an agent that saves a checkpoint after
each step (`checkpoint_after_agent.py`). The exit code is 1 if duramen did something twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Self

from rich.console import Console
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

import duramen

HERE = Path(__file__).parent
RUN = "trip-456"
EFFECTS = {"book": "bookings", "send_mail": "mails"}
"""The steps during which the agent is killed, and the list of the agency that each one adds to."""
TIMEOUT = 30.0
"""Seconds after which the demo fails. Each part takes less than two seconds."""
ANSWER_DELAY = 60.0
"""Seconds by which the agency delays its first answers: longer than any agent lives."""
PAUSE = 0.3 if sys.stdout.isatty() else 0.0
"""Seconds to wait after each line, so that people can read it."""


class DemoFailed(Exception):
    """The demo could not be completed, so it shows nothing about duramen."""


class Outcome(NamedTuple):
    """The number of bookings and mails of the agency at the end."""

    bookings: int
    mails: int


class Timeline:
    """Prints what happens, line by line. On a terminal, it also shows what the agent does now."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.status = self.console.status("[dim]starting")
        self._begun = time.monotonic()

    def print_title(self, title: str, script: str) -> None:
        self.console.print()
        self.console.print(Rule(f"[bold]{title}[/] [dim]({script})", align="left"))

    def print_line(self, who: str, what: str, style: str = "") -> None:
        elapsed = f"{time.monotonic() - self._begun:5.2f} s  "
        self.console.print(Text.assemble((elapsed, "dim"), f"{who:<12}", (what, style)))
        time.sleep(PAUSE)

    def set_status(self, what: str) -> None:
        self.status.update(f"[dim]{what}")


class Processes:
    """All processes that the demo starts. It ends them when it exits."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []
        self._uninterruptible = False
        self._interrupted = 0

    def interrupt(self, number: int, _: FrameType | None) -> None:
        """Exit on a signal, but not between the start of a process and its registration."""
        self._interrupted = number
        if not self._uninterruptible:
            sys.exit(128 + number)

    def start(self, script: str, *given: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        # In a session of its own, so that Ctrl-C only reaches the demo, which then ends the process.
        self._uninterruptible = True
        process = subprocess.Popen(
            [sys.executable, str(HERE / script), *given],
            stdin=stdin,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"no_proxy": "127.0.0.1"},
        )
        self._started.append(process)
        self._uninterruptible = False
        if self._interrupted:
            sys.exit(128 + self._interrupted)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._uninterruptible = True
        agents_first = self._started[::-1]  # an agent without an agency would print errors
        for process in agents_first:
            process.kill()
        for process in agents_first:
            with process:
                process.wait()


class Agency:
    """The process of the travel agency, and its bookings and mails on disk."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._reported = dict.fromkeys(EFFECTS.values(), 0)
        process = processes.start("travel_server.py", str(folder), "--hold", str(ANSWER_DELAY), stdin=subprocess.PIPE)
        assert process.stdout is not None
        self.address = process.stdout.readline().strip()

    def outcome(self) -> Outcome:
        return Outcome(*(len(self._entries(name)) for name in Outcome._fields))

    def new_entries(self) -> Iterator[str]:
        """The entries since the last call."""
        for name, reported in self._reported.items():
            entries = self._entries(name)
            self._reported[name] = len(entries)
            for entry in entries[reported:]:
                yield f"{name.removesuffix('s')} {entry['number']} made"

    def _entries(self, name: str) -> list[dict[str, Any]]:
        path = self._folder / name
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]


class Scenario:
    """An agency and an agent that is killed and started again."""

    def __init__(self, processes: Processes, timeline: Timeline, folder: Path, script: str, state: Path) -> None:
        self._processes = processes
        self._timeline = timeline
        self._command = (script, str(state))
        self.agency = Agency(processes, folder)
        self.start_agent()

    def start_agent(self) -> None:
        self._agent = self._processes.start(*self._command, self.agency.address)
        self._timeline.set_status(f"process {self._agent.pid} is running")
        self._timeline.print_line("agent", f"starts as process {self._agent.pid}", "bold")

    def kill_agent_during(self, effect: str) -> None:
        """Wait until the agency has acted, then kill the agent before the answer arrives."""
        self._wait(lambda: getattr(self.agency.outcome(), effect) > 0)
        self._agent.kill()
        self._agent.wait()
        self._timeline.set_status("no agent is running")
        self._timeline.print_line("agent", "killed with SIGKILL before the answer arrived", "bold red")

    def wait_for_agent(self) -> str:
        """Wait until the agent ends. Returns its output."""
        self._wait(lambda: self._agent.poll() is not None)
        assert self._agent.stdout is not None
        if self._agent.returncode != 0:
            raise DemoFailed(f"the agent exited with code {self._agent.returncode}")
        return self._agent.stdout.read().strip()

    def _wait(self, reached: Callable[[], bool]) -> None:
        until = time.monotonic() + TIMEOUT
        while not reached():
            if time.monotonic() > until:
                raise DemoFailed(f"the agent and the agency took longer than {TIMEOUT:g} s")
            self._print_new_entries()
            time.sleep(0.01)
        self._print_new_entries()

    def _print_new_entries(self) -> None:
        for what in self.agency.new_entries():
            self._timeline.print_line("agency", what, "magenta")


def with_duramen(processes: Processes, timeline: Timeline, folder: Path) -> Outcome:
    """Follow the journal of an agent that is killed during each effect."""
    timeline.print_title("duramen: journal the intent, act, journal the outcome", "trip_agent.py")
    path = folder / "agent.db"
    with duramen.open(path) as dm:
        scenario = Scenario(processes, timeline, folder / "agency-1", "trip_agent.py", path)
        pending = dict(EFFECTS)
        for event in dm.session(RUN).follow(timeout=TIMEOUT):
            what, style = event_line(event)
            timeline.print_line(f"journal #{event.position}", what, style)
            effect = pending.pop(step_of(event), None) if event.type == "step.started" else None
            if effect is not None:
                scenario.kill_agent_during(effect)
                for step in in_doubt(dm):
                    timeline.print_line("in doubt", f"{step} has an intent and no outcome: did it happen?", "yellow")
                scenario.start_agent()
            if event.type == "run.finished":
                break
        scenario.wait_for_agent()
        if not dm.verify().ok:
            raise DemoFailed("the journal does not verify")
    return scenario.agency.outcome()


def in_doubt(dm: duramen.Duramen) -> list[str]:
    """The steps that have an intent and no outcome."""
    return [record.step for record in dm.run_info(RUN).steps if not record.finished]


def step_of(event: duramen.Event) -> str:
    """The name of the step that an event is about; which call of it does not matter here."""
    return str(event.data.get("step", "")).partition("#")[0]


def event_line(event: duramen.Event) -> tuple[str, str]:
    """An event as text, and the style of its line."""
    data = event.data
    step, value = data.get("step"), data.get("value")
    match event.type, data.get("verdict"):
        case "run.started", _:
            return f"{data['task']}({', '.join(map(repr, data['args']))}) begins", ""
        case "run.resumed", _:
            return "the run continues; completed steps are not repeated", ""
        case "step.started", _:
            return f"{step}: intent", ""
        case "step.done", _:
            return f"{step}: done, {short_text(value)}", "green"
        case "step.settled", "happened":
            return f"{step}: its check found {short_text(value)}, so it happened", "bold cyan"
        case "step.settled", verdict:
            return f"{step}: {verdict}", "yellow"
        case "run.finished", _:
            return f"finished: {value}", "bold green"
    return event.type, ""


def short_text(value: Any) -> str:
    """A short text for the result of a step."""
    if isinstance(value, list):
        return f"{len(value)} found"
    return str(value.get("number") or value.get("flight")) if isinstance(value, dict) else str(value)


def with_checkpoint_after(processes: Processes, timeline: Timeline, folder: Path) -> Outcome:
    """Kill an agent that saves a checkpoint after each step, at the same moments."""
    timeline.print_title("checkpoint after: act, then save a checkpoint", "checkpoint_after_agent.py")
    checkpoint = folder / "agent.json"
    scenario = Scenario(processes, timeline, folder / "agency-2", "checkpoint_after_agent.py", checkpoint)
    for effect in EFFECTS.values():
        scenario.kill_agent_during(effect)
        saved = json.loads(checkpoint.read_text(encoding="utf-8"))
        timeline.print_line("checkpoint", f"only {', '.join(saved)} recorded as done", "yellow")
        scenario.start_agent()
    timeline.print_line("agent", f"finished: {scenario.wait_for_agent()}", "bold green")
    return scenario.agency.outcome()


def comparison(outcomes: dict[str, Outcome]) -> Table:
    """One row for each agent, one column for each kind of effect."""
    table = Table(title="One trip, two kills", title_justify="left")
    table.add_column("")
    for name in Outcome._fields:
        table.add_column(name, justify="right")
    for way, outcome in outcomes.items():
        table.add_row(way, *(f"[{'green' if count == 1 else 'red'}]{count}" for count in outcome))
    return table


def run_both(timeline: Timeline) -> int:
    """Run both agents and compare them. Returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="duramen-demo-") as name, Processes() as processes, timeline.status:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, processes.interrupt)
        folder = Path(name)
        outcomes = {
            "duramen": with_duramen(processes, timeline, folder),
            "checkpoint after": with_checkpoint_after(processes, timeline, folder),
        }
    timeline.console.print()
    timeline.console.print(comparison(outcomes))
    if outcomes["duramen"] != Outcome(1, 1):
        timeline.console.print("[bold red]The agent with duramen did something twice, or not at all.")
        return 1
    timeline.console.print("[green]duramen: killed twice, nothing done twice.[/] Next: `duramen --help`, docs/.")
    return 0


def main() -> int:
    timeline = Timeline()
    try:
        return run_both(timeline)
    except DemoFailed as failure:
        timeline.console.print(f"[bold red]The demo failed:[/] {escape(str(failure))}.")
        return 1


if __name__ == "__main__":
    sys.exit(main())
