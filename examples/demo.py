"""The main promise in seconds: an agent is killed in the middle of a booking and of a mail, and does neither twice.

Three kinds of process, nothing faked: a travel agency that speaks HTTP (`travel_server.py`), an agent that books there
(`trip_agent.py`), and this one, which kills the agent with SIGKILL after the agency has acted and before its answer
arrives, starts it again, and prints what the journal says as it grows. Then the same for an agent that saves a
checkpoint after each step (`checkpoint_after_agent.py`). Exits with 1 if the promise was not kept.
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
DEEDS = {"book": "bookings", "send_mail": "mails"}
"""The steps in whose middle the agent is killed, and the agency's book that shows when that is."""
PATIENCE = 30.0
"""Seconds after which something has gone wrong: nothing here takes two of them."""
HOLD = 60.0
"""Seconds that the agency keeps its first answers back: longer than any agent lives."""
PAUSE = 0.3 if sys.stdout.isatty() else 0.0
"""Seconds after each line, for whoever watches."""


class DemoFailed(Exception):
    """Something did not come about, so that nothing can be said of the promise."""


class Outcome(NamedTuple):
    """What the agency has in its books at the end."""

    bookings: int
    mails: int


class Timeline:
    """What happens, line by line, with the agent at work below it if there is a terminal."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.status = self.console.status("[dim]starting")
        self._begun = time.monotonic()

    def head(self, title: str, script: str) -> None:
        self.console.print()
        self.console.print(Rule(f"[bold]{title}[/] [dim]({script})", align="left"))

    def say(self, who: str, what: str, style: str = "") -> None:
        elapsed = f"{time.monotonic() - self._begun:5.2f} s  "
        self.console.print(Text.assemble((elapsed, "dim"), f"{who:<12}", (what, style)))
        time.sleep(PAUSE)

    def doing(self, what: str) -> None:
        self.status.update(f"[dim]{what}")


class Processes:
    """Every process that the demo starts. None outlives it, however it ends."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []
        self._undisturbed = False
        self._interrupted = 0

    def interrupt(self, number: int, _: FrameType | None) -> None:
        """Ctrl-C and its like: leave, but not between the start of a process and the note of it."""
        self._interrupted = number
        if not self._undisturbed:
            sys.exit(128 + number)

    def start(self, script: str, *given: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        # In a session of its own, so that Ctrl-C reaches the demo alone, which then ends the others.
        self._undisturbed = True
        process = subprocess.Popen(
            [sys.executable, str(HERE / script), *given],
            stdin=stdin,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"no_proxy": "127.0.0.1"},
        )
        self._started.append(process)
        self._undisturbed = False
        if self._interrupted:
            sys.exit(128 + self._interrupted)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undisturbed = True
        agents_first = self._started[::-1]  # an agent whose agency is gone would complain
        for process in agents_first:
            process.kill()
        for process in agents_first:
            with process:
                process.wait()


class Agency:
    """The travel agency's process, and its books as they lie on disk."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._told = dict.fromkeys(DEEDS.values(), 0)
        process = processes.start("travel_server.py", str(folder), "--hold", str(HOLD), stdin=subprocess.PIPE)
        assert process.stdout is not None
        self.address = process.stdout.readline().strip()

    def outcome(self) -> Outcome:
        return Outcome(*(len(self._book(name)) for name in Outcome._fields))

    def news(self) -> Iterator[str]:
        """What it has done since somebody last asked."""
        for name, told in self._told.items():
            entries = self._book(name)
            self._told[name] = len(entries)
            for entry in entries[told:]:
                yield f"{name.removesuffix('s')} {entry['number']} made"

    def _book(self, name: str) -> list[dict[str, Any]]:
        path = self._folder / name
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]


class Play:
    """An agency and an agent that is killed and started again."""

    def __init__(self, processes: Processes, timeline: Timeline, folder: Path, script: str, state: Path) -> None:
        self._processes = processes
        self._timeline = timeline
        self._command = (script, str(state))
        self.agency = Agency(processes, folder)
        self.start_agent()

    def start_agent(self) -> None:
        self._agent = self._processes.start(*self._command, self.agency.address)
        self._timeline.doing(f"process {self._agent.pid} is at work")
        self._timeline.say("agent", f"starts as process {self._agent.pid}", "bold")

    def kill_agent_during(self, deed: str) -> None:
        """Let the agency act, then kill the agent before it hears of it."""
        self._wait(lambda: getattr(self.agency.outcome(), deed) > 0)
        self._agent.kill()
        self._agent.wait()
        self._timeline.doing("nobody is at work")
        self._timeline.say("agent", "killed with SIGKILL before the answer arrived", "bold red")

    def see_agent_off(self) -> str:
        """Wait for the agent's end; its last words."""
        self._wait(lambda: self._agent.poll() is not None)
        assert self._agent.stdout is not None
        if self._agent.returncode != 0:
            raise DemoFailed(f"the agent ended with {self._agent.returncode}")
        return self._agent.stdout.read().strip()

    def _wait(self, reached: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not reached():
            if time.monotonic() > until:
                raise DemoFailed("the agent and the agency did not come to it in time")
            self._tell_news()
            time.sleep(0.01)
        self._tell_news()

    def _tell_news(self) -> None:
        for what in self.agency.news():
            self._timeline.say("agency", what, "magenta")


def with_duramen(processes: Processes, timeline: Timeline, folder: Path) -> Outcome:
    """Follow the journal of an agent that is killed in the middle of each deed."""
    timeline.head("duramen: intent, act, outcome; a check settles doubt", "trip_agent.py")
    path = folder / "agent.db"
    with duramen.open(path) as dm:
        play = Play(processes, timeline, folder / "agency-1", "trip_agent.py", path)
        spared = dict(DEEDS)
        for event in dm.session(RUN).follow(timeout=PATIENCE):
            what, style = told(event)
            timeline.say(f"journal #{event.position}", what, style)
            deed = spared.pop(step_of(event), None) if event.type == "step.started" else None
            if deed is not None:
                play.kill_agent_during(deed)
                for step in in_doubt(dm):
                    timeline.say("in doubt", f"{step} has an intent and no outcome: did it happen?", "yellow")
                play.start_agent()
            if event.type == "run.finished":
                break
        play.see_agent_off()
        if not dm.verify().ok:
            raise DemoFailed("the journal does not verify")
    return play.agency.outcome()


def in_doubt(dm: duramen.Duramen) -> list[str]:
    """The steps that were begun, as the journal stands."""
    return [record.step for record in dm.run_info(RUN).steps if not record.finished]


def step_of(event: duramen.Event) -> str:
    """The name of the step that an event is about; which call of it does not matter here."""
    return str(event.data.get("step", "")).partition("#")[0]


def told(event: duramen.Event) -> tuple[str, str]:
    """An event in words, and the style of its line."""
    data = event.data
    step, value = data.get("step"), data.get("value")
    match event.type, data.get("verdict"):
        case "run.started", _:
            return f"{data['task']}({', '.join(map(repr, data['args']))}) begins", ""
        case "run.resumed", _:
            return "the run goes on; what is done is not done again", ""
        case "step.started", _:
            return f"{step}: intent", ""
        case "step.done", _:
            return f"{step}: done, {brief(value)}", "green"
        case "step.settled", "happened":
            return f"{step}: its check found {brief(value)} there: it happened", "bold cyan"
        case "step.settled", verdict:
            return f"{step}: {verdict}", "yellow"
        case "run.finished", _:
            return f"finished: {value}", "bold green"
    return event.type, ""


def brief(value: Any) -> str:
    """A step's result in a few words."""
    if isinstance(value, list):
        return f"{len(value)} found"
    return str(value.get("number") or value.get("flight")) if isinstance(value, dict) else str(value)


def with_checkpoint_after(processes: Processes, timeline: Timeline, folder: Path) -> Outcome:
    """The same kills for an agent that saves what it has done after it has done it."""
    timeline.head("checkpoint after: act, then save that it is done", "checkpoint_after_agent.py")
    checkpoint = folder / "agent.json"
    play = Play(processes, timeline, folder / "agency-2", "checkpoint_after_agent.py", checkpoint)
    for deed in DEEDS.values():
        play.kill_agent_during(deed)
        saved = json.loads(checkpoint.read_text(encoding="utf-8"))
        timeline.say("checkpoint", f"{', '.join(saved)}: done; of more it knows nothing", "yellow")
        play.start_agent()
    timeline.say("agent", f"finished: {play.see_agent_off()}", "bold green")
    return play.agency.outcome()


def comparison(outcomes: dict[str, Outcome]) -> Table:
    """One line for each way, one column for each kind of deed."""
    table = Table(title="one trip, two kills", title_justify="left")
    table.add_column("")
    for name in Outcome._fields:
        table.add_column(name, justify="right")
    for way, outcome in outcomes.items():
        table.add_row(way, *(f"[{'green' if count == 1 else 'red'}]{count}" for count in outcome))
    return table


def play_both(timeline: Timeline) -> int:
    """Both ways and the verdict, as an exit code."""
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
        timeline.console.print("[bold red]The promise was not kept.")
        return 1
    timeline.console.print("[green]Killed twice, and nothing was done twice.[/] Next: `duramen --help`, docs/.")
    return 0


def main() -> int:
    timeline = Timeline()
    try:
        return play_both(timeline)
    except DemoFailed as failure:
        timeline.console.print(f"[bold red]The demo failed:[/] {escape(str(failure))}.")
        return 1


if __name__ == "__main__":
    sys.exit(main())
