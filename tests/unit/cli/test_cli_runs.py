"""The commands about runs, on a real file with real runs."""

from __future__ import annotations

import asyncio
import getpass
import hashlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from programs.child_processes import until
from programs.command_line import CommandResult, environment, run, run_each, run_on_terminal, running

import duramen

TRIPS = """
import dataclasses, os, signal, time
import duramen

@duramen.register
@dataclasses.dataclass
class Flight:
    number: str

class Gateway(Exception):
    pass

attempts = []

@duramen.step
def search(where):
    return [Flight("BA 117"), Flight("DL 2")]

@duramen.step(retry=duramen.Retry(attempts=3, first=0.01))
def price(flight):
    attempts.append(flight)
    if len(attempts) == 1:
        raise Gateway("later \\x1b[31m")
    return 412.5

@duramen.step(irreversible=True)
def charge(amount, *, key):
    if os.environ.get("DIE"):
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {amount}"

@duramen.task
def trip(where):
    print("the task is called")
    flight = search(where)[0]
    cost = price(flight)
    if not duramen.ask(f"Book {flight.number}?", {"price": cost}):
        return None
    return {"flight": flight, "paid": charge(cost)}

@duramen.task
def mail():
    return duramen.receive("mail")

@duramen.task
def nap():
    duramen.sleep(3600)

@duramen.task
def broken(why):
    raise ValueError(why)

@duramen.task
def child(number):
    return number + 1

@duramen.task(version="2")
def family():
    return child(41)

@duramen.step
def wait_for_file():
    while not os.path.exists("finish"):
        time.sleep(0.01)
    return "finished"

@duramen.task
def slow():
    return wait_for_file()

@duramen.task
def count(number):
    return number

LIMITED = duramen.Queue("limited", concurrency=1)
OFTEN = duramen.Schedule("often", count, every=0.05, args=(7,))
LISTED = [mail, count, LIMITED]
TICKING = (OFTEN,)
MIXED = [mail, "mial"]
NUMBER = 5
"""
MAKE = """
import os, sys
import duramen, trips
with duramen.open("duramen.db") as dm:
    def execute(task, id, *args):
        try:
            dm.run(task, *args, id=id)
        except Exception as error:
            print(type(error).__name__)
    execute(trips.trip, "trip-1", "NYC")
    execute(trips.mail, "mail-1")
    execute(trips.broken, "broken-1", "no [red]luck[/red] \\x1b[2J")
    execute(trips.family, "family-1")
    dm.start(trips.count, 3, id="count-1", queue="limited", queue_key="ann", priority=2)
    dm.start(trips.nap, id="nap-1", delay=3600)
    if len(sys.argv) > 1:
        dm.answer("trip-1", True, actor="user:ann")
        os.environ["DIE"] = "1"
        dm.resume("trip-1", trips.trip)
"""
KILLED = "trip-1"
"""A run that waits in `parked`. In `doubtful`, its process was killed inside the step `charge`."""


def _create_runs(folder: Path, *arguments: str) -> Path:
    (folder / "trips.py").write_text(TRIPS)
    command = [sys.executable, "-c", MAKE, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=30)
    assert done.returncode == (-signal.SIGKILL if arguments else 0), done.stderr
    if arguments:  # resuming frees the lease of the killed process
        resumed = run("run", "resume", KILLED, "--tasks", "trips", cwd=folder)
        assert (resumed.code, resumed.out) == (3, "")
        assert "is in doubt" in resumed.err
        assert f"duramen run settle {KILLED} done|retry|abort" in resumed.err
    return folder


@pytest.fixture(scope="module")
def parked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and runs that tests only read."""
    return _create_runs(tmp_path_factory.mktemp("parked"))


@pytest.fixture(scope="module")
def _doubtful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _create_runs(tmp_path_factory.mktemp("doubtful"), "die")


@pytest.fixture
def doubtful(_doubtful: Path, tmp_path: Path) -> Path:
    """A copy of a store in which a run is in doubt. Tests may change it."""
    return Path(shutil.copytree(_doubtful, tmp_path / "copy"))


@pytest.fixture
def waiting(parked: Path, tmp_path: Path) -> Path:
    """A copy of the store of `parked`. Tests may change it."""
    return Path(shutil.copytree(parked, tmp_path / "copy"))


def assert_refused(result: CommandResult, message_part: str, hint_part: str = "", code: int = 2) -> None:
    assert (result.code, result.out) == (code, ""), result
    message, *hint = (line for line in result.err.splitlines() if line != "the task is called")
    assert message.startswith("Error: ")
    assert message_part in message
    assert hint_part in "".join(hint)
    assert all(line.startswith("Hint: ") for line in hint)


def shown(folder: Path, name: str) -> dict[str, object]:
    [line] = run("run", "show", name, "--json", cwd=folder).lines
    assert isinstance(line, dict)
    return line


ME = f"cli:{getpass.getuser()}"


# -- reading


def test_help_lists_writing_commands_and_imports_little(tmp_path: Path) -> None:
    main, group, bare = run_each([], ["run", "--help"], ["run"], cwd=tmp_path)
    flat = " ".join(main.out.split())
    writing = (
        "worker, signal, reindex, sync, import, memory add, edit, forget and confirm, proposals accept and dismiss, "
        "run resume, cancel, fork, settle and answer"
    )
    assert f"These write to the store: {writing}." in flat
    assert all(word in group.out for word in ("show", "resume", "cancel", "fork", "settle", "answer"))
    assert bare.code == 2
    code = (
        "import sys, duramen.cli.app as cli\n"
        "try:\n    cli.app(['worker', '--help'])\nexcept SystemExit:\n    pass\n"
        "sys.exit(bool({'apsw', 'msgspec', 'duramen.api._sync.duramen', 'duramen.execution'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30, stdout=subprocess.DEVNULL).returncode == 0


def test_runs_are_listed_and_filtered(parked: Path) -> None:
    table, waits, both, queue, children, task, two = run_each(
        ["runs"],
        ["runs", "--json", "--status", "waiting"],
        ["runs", "--json", "--status", "waiting", "--status", "failed"],
        ["runs", "--json", "--queue", "limited"],
        ["runs", "--json", "--parent", "family-1"],
        ["runs", "--json", "--task", "family"],
        ["runs", "--json", "-n", "2"],
        cwd=parked,
    )
    assert table.code == 0
    titles, *rows = table.out.splitlines()
    assert titles.split() == ["run", "task", "status", "created", "(UTC)", "took", "queue", "parent", "waits", "for"]
    assert [row.split()[0] for row in rows][:2] == ["nap-1", "count-1"]
    assert rows[-1].split()[:3] == ["trip-1", "trip", "waiting"]
    assert "an answer to 'Book BA 117?'" in rows[-1]
    assert "limited/ann" in rows[1]
    assert {row["run"] for row in waits.lines} == {"trip-1", "mail-1"}
    assert {row["run"] for row in both.lines} == {"trip-1", "mail-1", "broken-1"}
    assert [(row["run"], row["queue_key"], row["priority"], row["status"]) for row in queue.lines] == [
        ("count-1", "ann", 2, "queued")
    ]
    assert [(row["parent"], row["status"]) for row in children.lines] == [("family-1", "done")]
    assert [(row["version"], row["status"], row["waiting"]) for row in task.lines] == [("2", "done", None)]
    assert [row["run"] for row in two.lines] == ["nap-1", "count-1"]
    assert "--limit" in two.err
    created = task.lines[0]["created"]
    assert created.endswith("Z")
    assert created <= task.lines[0]["started"] <= task.lines[0]["ended"]


def test_empty_lists_and_invalid_filters_are_explained(parked: Path) -> None:
    unknown, nothing, status, timeout = run_each(
        ["runs", "-w", "unknown"],
        ["runs", "--task", "none"],
        ["runs", "--status", "happy"],
        ["runs", "--timeout", "1"],
        cwd=parked,
    )
    assert (unknown.code, unknown.out) == (0, "")
    assert "default" in unknown.err
    assert (nothing.code, nothing.out) == (0, "")
    assert_refused(status, "'happy'", "queued, running, crashed")
    assert (timeout.code, "--watch" in timeout.err) == (2, True)


def _read_until(stream: IO[str], wanted: str) -> str:
    """The first line that contains `wanted`."""
    for line in stream:
        if wanted in line:
            return line
    raise AssertionError(f"the output has no line with {wanted!r}")


def test_watch_shows_changes_until_interrupted(waiting: Path) -> None:
    with running("runs", "--watch", "--json", cwd=waiting) as lines, running("runs", "--watch", cwd=waiting) as tables:
        assert lines.stdout is not None
        assert tables.stdout is not None
        assert json.loads(_read_until(lines.stdout, '"mail-1"'))["status"] == "waiting"
        assert "waiting" in _read_until(tables.stdout, "mail-1")
        _read_until(tables.stdout, "trip-1")
        _read_until(lines.stdout, '"trip-1"')
        with duramen.open(waiting / "duramen.db") as dm:
            dm.signal("mail-1", "mail", "hello")
        assert json.loads(_read_until(lines.stdout, '"mail-1"'))["status"] == "queued"
        assert "queued" in _read_until(tables.stdout, "mail-1")
        for process in (lines, tables):
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=10)
            assert (process.returncode, errors) == (0, "")


def test_watch_redraws_a_terminal_until_its_timeout(parked: Path) -> None:
    done = run_on_terminal("runs", "--watch", "--timeout", "0.7", "--status", "waiting", cwd=parked)
    assert done.code == 0
    assert done.out.count("an answer to 'Book BA 117?'") >= 2
    assert "\x1b[1A" in done.out  # moves up and overwrites the table
    assert "2 runs at" in done.out


def test_show_prints_the_question_input_and_steps_of_a_run(parked: Path) -> None:
    result = run("run", "show", "trip-1", cwd=parked)
    assert result.code == 0
    assert result.out.replace("\n", "").isprintable()
    facts = {line[2:14].strip(): line[14:] for line in result.out.splitlines() if line.startswith("  ")}
    assert result.out.splitlines()[0] == "trip-1  waiting"
    assert (facts["task"], facts["input"]) == ("trip", '"NYC"')
    assert facts["waits for"] == "an answer to 'Book BA 117?'"
    assert (facts["question"], facts["about"]) == ("Book BA 117?", '{"price": 412.5}')
    assert facts["answer it"] == "duramen run answer trip-1 JSON"
    steps = [line.split() for line in result.out.splitlines() if line.startswith(" ") and line[:4].strip().isdigit()]
    assert [step[1:3] for step in steps] == [["search#1", "done"], ["price#1", "done"], ["@ask#1", "waiting"]]
    assert (steps[0][3], steps[1][3]) == ("1", "2")
    assert '{"$type": "Flight", "version": 1, "value": {"number": "BA 117"}}' in result.out
    assert "attempt 1: Gateway: later \\u001b[31m" in result.out


def test_show_json_has_every_detail_of_a_run(parked: Path) -> None:
    trip, broken, family = shown(parked, "trip-1"), shown(parked, "broken-1"), shown(parked, "family-1")
    assert (trip["status"], trip["args"], trip["kwargs"]) == ("waiting", ["NYC"], {})
    asked = {"step": "@ask#1", "question": "Book BA 117?", "payload": {"price": 412.5}, "answered": False}
    assert trip["questions"] == [asked]
    steps = trip["steps"]
    assert isinstance(steps, list)
    search, price, ask = steps
    assert search["position"] == 2
    assert 0 <= search["seconds"] < 30
    assert (price["attempts"], price["value"], price["error"] is not None) == (2, 412.5, True)
    assert [note["what"] for note in price["notes"]] == ["failed", "again"]
    assert (ask["state"], ask["ended"], ask["seconds"]) == ("waiting", None, None)
    error = broken["error"]
    assert isinstance(error, dict)
    assert (broken["status"], error["type"]) == ("failed", "ValueError")
    assert (family["result"], family["version"], family["executions"]) == (42, "2", 1)
    assert [step["value"] for step in family["steps"]] == [42]  # type: ignore[attr-defined]
    failed = run("run", "show", "broken-1", cwd=parked)
    assert "ValueError: no [red]luck[/red] \\u001b[2J" in failed.out


def test_show_finds_one_of_several_runs_in_a_session(tmp_path: Path) -> None:
    @duramen.step
    def one(value: int) -> int:
        return value

    @duramen.task
    def plain(value: int) -> int:
        return one(value)

    with duramen.open(tmp_path / "duramen.db") as dm:
        for number in (1, 2, 3):
            dm.run(plain, number, id=f"run {number}", session="shared")
        dm.fork_run("run 2", "fork")
        dm.resume("fork", plain)
    second, fork = shown(tmp_path, "run 2"), shown(tmp_path, "fork")
    assert (second["session"], second["args"], second["result"]) == ("shared", [2], 2)
    assert [step["value"] for step in second["steps"]] == [2]  # type: ignore[attr-defined]
    assert (fork["session"], fork["args"], fork["result"]) == ("fork", [2], 2)
    assert "session     shared" in run("run", "show", "run 2", cwd=tmp_path).out


def test_reading_commands_do_not_change_runs(parked: Path) -> None:
    def digest() -> str:
        return hashlib.sha256((parked / "duramen.db").read_bytes()).hexdigest()

    before = digest()
    commands = (["runs"], ["run", "show", "trip-1"], ["runs", "--watch", "--timeout", "0"])
    assert [result.code for result in run_each(*commands, cwd=parked)] == [0] * 3
    replayed = run("replay", "family-1", "--tasks", "trips", cwd=parked)
    assert (replayed.code, replayed.out) == (0, "42\n")
    assert digest() == before


# -- doubt, answers and signals


def test_doubt_is_shown_and_can_be_settled(doubtful: Path) -> None:
    before = run("run", "show", KILLED, cwd=doubtful)
    assert "in doubt    charge#1: it may have happened" in before.out
    assert "the process ended while it executed this step" in before.out
    assert "by its declaration: a person has to decide" in before.out
    settled, after = run_each(
        ["run", "settle", KILLED, "done", "--value", '"paid by hand"', "--step", "charge"],
        ["run", "show", KILLED, "--json"],
        cwd=doubtful,
    )
    assert (settled.code, settled.err) == (0, "")
    charge = after.lines[0]["steps"][-1]
    assert (charge["state"], charge["value"]) == ("done", "paid by hand")
    assert [(note["what"], note["actor"]) for note in charge["notes"]][-1] == ("settled", ME)
    resumed = run("run", "resume", KILLED, "--tasks", "trips:trip", cwd=doubtful)
    assert resumed.code == 0
    assert resumed.lines == [
        {"flight": {"$type": "Flight", "version": 1, "value": {"number": "BA 117"}}, "paid": "paid by hand"}
    ]
    assert "the task is called" in resumed.err  # the output of the task goes to stderr, not into the result


def test_doubt_can_be_settled_with_retry_or_abort(doubtful: Path, tmp_path: Path) -> None:
    again = Path(shutil.copytree(doubtful, tmp_path / "again"))
    assert run("run", "settle", KILLED, "retry", cwd=again).code == 0
    assert run("run", "resume", KILLED, "-t", "trips", cwd=again).lines[0]["paid"] == "paid 412.5"
    assert run("run", "settle", KILLED, "abort", cwd=doubtful).code == 0
    assert_refused(run("run", "resume", KILLED, "-t", "trips", cwd=doubtful), "a person aborted it", "run show", code=1)
    assert shown(doubtful, KILLED)["status"] == "failed"


def test_invalid_verdicts_are_refused(doubtful: Path) -> None:
    verdict, value, broken, step, certain, ended, unknown = run_each(
        ["run", "settle", KILLED, "perhaps"],
        ["run", "settle", KILLED, "retry", "--value", "1"],
        ["run", "settle", KILLED, "done", "--value", "{"],
        ["run", "settle", KILLED, "done", "--step", "search"],
        ["run", "settle", "mail-1", "done"],
        ["run", "settle", "broken-1", "retry"],
        ["run", "settle", "unknown", "retry"],
        cwd=doubtful,
    )
    assert_refused(verdict, "'perhaps' is not a verdict", "retry")
    assert (value.code, "--value" in value.err) == (2, True)
    assert_refused(broken, "--value is not valid JSON", "quotes")
    assert_refused(step, "charge#1", "name the step")
    assert_refused(certain, "no step in doubt", "run show mail-1")
    assert_refused(ended, "has ended (failed)")
    assert_refused(unknown, "there is no run 'unknown'", "duramen runs")


def test_a_question_can_be_answered(waiting: Path) -> None:
    answered, asked = run_each(["run", "answer", "trip-1", "true"], ["run", "show", "trip-1"], cwd=waiting)
    assert (answered.code, answered.err) == (0, "")
    assert f"true by {ME}, not received yet" in asked.out
    resumed = run("run", "resume", "trip-1", "--tasks", "trips", cwd=waiting)
    assert resumed.lines[0]["paid"] == "paid 412.5"
    trip = shown(waiting, "trip-1")
    assert (trip["status"], trip["questions"]) == ("done", [])
    signals = [(one["actor"], one["payload"], one["received"]) for one in trip["signals"]]  # type: ignore[attr-defined]
    assert signals == [(ME, True, True)]


def test_one_of_several_questions_can_be_answered(tmp_path: Path) -> None:
    @duramen.task
    async def both() -> list[object]:
        return await asyncio.gather(duramen.ask("one?"), duramen.ask("two \x1b[2J?"))

    with duramen.open(tmp_path / "duramen.db") as dm:
        with pytest.raises(duramen.errors.RunParked):
            dm.run(both, id="both")
        answered, none, shows = run_each(
            ["run", "answer", "both", "-5", "--question", "two \x1b[2J?"],
            ["run", "answer", "both", "1", "--question", "three?"],
            ["run", "show", "both"],
            cwd=tmp_path,
        )
        assert answered.code == 0
        assert_refused(none, "open question", "run show both")
        assert f"-5 by {ME}, not received yet" in shows.out
        assert "duramen run answer both JSON --question 'one?'" in shows.out
        assert run("run", "answer", "both", "1", cwd=tmp_path).code == 0
        assert dm.resume("both", both) == [1, -5]


def test_erased_input_is_shown_as_erased(tmp_path: Path) -> None:
    @duramen.task
    def about(name: str) -> object:
        return duramen.receive("go")

    with duramen.open(tmp_path / "duramen.db") as dm:
        with pytest.raises(duramen.errors.RunParked):
            dm.run(about, "Ann", id="about", subject="ann")
        dm.signal("about", "go", "secret")
        dm.erase("ann")
    shows, lines = run_each(["run", "show", "about"], ["run", "show", "about", "--json"], cwd=tmp_path)
    assert "input       (erased)" in shows.out
    assert (lines.lines[0]["args"], lines.lines[0]["signals"]) == (None, [])


def test_invalid_answers_are_refused(parked: Path) -> None:
    text, constant, deep, number, ended, unknown = run_each(
        ["run", "answer", "trip-1", "yes"],
        ["run", "answer", "trip-1", "NaN"],
        ["run", "answer", "trip-1", "[" * 100_000],
        ["run", "answer", "mail-1", "-5"],
        ["run", "answer", "family-1", "1"],
        ["run", "answer", "unknown", "1"],
        cwd=parked,
    )
    assert_refused(text, "the answer is not valid JSON", "quotes")
    assert_refused(constant, "NaN")
    assert_refused(deep, "the answer is not valid JSON")
    assert_refused(number, "open question", "run show mail-1")
    assert_refused(ended, "has ended (done)")
    assert_refused(unknown, "there is no run 'unknown'")


def test_a_signal_reaches_its_run_once(waiting: Path) -> None:
    arguments = ["signal", "mail-1", "mail", "--data", '{"from": "ann"}', "--key", "m-7"]
    first, second, show = run_each(arguments, arguments, ["run", "show", "mail-1", "--json"], cwd=waiting)
    assert (first.code, second.code) == (0, 0)
    [sent] = show.lines[0]["signals"]
    assert (sent["name"], sent["payload"], sent["actor"], sent["received"]) == ("mail", {"from": "ann"}, ME, False)
    assert run("run", "resume", "mail-1", "-t", "trips:mail", cwd=waiting).lines == [{"from": "ann"}]
    ended, unknown, broken = run_each(
        ["signal", "mail-1", "mail"],
        ["signal", "unknown", "mail"],
        ["signal", "trip-1", "mail", "--data", "hello"],
        cwd=waiting,
    )
    assert_refused(ended, "has ended (done)", "open run")
    assert_refused(unknown, "there is no run 'unknown'", "duramen runs")
    assert_refused(broken, "--data is not valid JSON", "quotes")


# -- cancel, fork, resume and replay


def test_cancel_reports_whether_the_run_has_ended(waiting: Path) -> None:
    at_once, later, ended, unknown = run_each(
        ["run", "cancel", "mail-1", "--reason", "no mail today"],
        ["run", "cancel", "trip-1"],
        ["run", "cancel", "family-1"],
        ["run", "cancel", "unknown"],
        cwd=waiting,
    )
    assert (at_once.code, at_once.out) == (0, "mail-1 is cancelled.\n")
    assert (later.code, "is being cancelled" in later.out) == (0, True)
    assert_refused(ended, "has ended (done)", "only an open run")
    assert_refused(unknown, "there is no run 'unknown'")
    mail = shown(waiting, "mail-1")
    assert (mail["status"], mail["cancelling"]) == ("cancelled", {"reason": "no mail today", "actor": ME})
    assert f"cancelling  by {ME}" in run("run", "show", "trip-1", cwd=waiting).out
    assert_refused(run("run", "resume", "trip-1", "-t", "trips", cwd=waiting), "was cancelled", code=1)
    assert shown(waiting, "trip-1")["status"] == "cancelled"


def test_a_fork_continues_independently(doubtful: Path) -> None:
    forked, again, before, beyond, unknown = run_each(
        ["run", "fork", KILLED, "other", "--at", "7"],
        ["run", "fork", KILLED, "other"],
        ["run", "fork", KILLED, "none", "--at", "0"],
        ["run", "fork", KILLED, "none", "--at", "999"],
        ["run", "fork", "unknown", "none"],
        cwd=doubtful,
    )
    assert (forked.code, forked.out.startswith(f"Forked other from {KILLED} at position 7.")) == (0, True)
    assert_refused(again, "already exists", "another id")
    assert before.code == 2
    assert_refused(beyond, "cannot be forked at 999")
    assert_refused(unknown, "there is no run 'unknown'")
    assert_refused(
        run("run", "resume", "other", "-t", "trips", cwd=doubtful), "Book BA 117?", "run answer other", code=3
    )
    assert run("run", "answer", "other", "false", cwd=doubtful).code == 0
    assert run("run", "resume", "other", "-t", "trips", cwd=doubtful).out == "null\n"
    other = shown(doubtful, "other")
    assert (other["status"], other["args"]) == ("done", ["NYC"])
    assert [step["step"] for step in other["steps"]] == ["search#1", "price#1", "@ask#1"]  # type: ignore[attr-defined]


def test_resume_explains_why_a_run_cannot_continue(waiting: Path) -> None:
    needs = run("run", "resume", "mail-1", "--tasks", "trips", cwd=waiting)
    assert_refused(needs, "signal 'mail'", "duramen signal mail-1 mail", code=3)
    failed = run("run", "resume", "broken-1", "--tasks", "trips", cwd=waiting)
    assert_refused(failed, "ValueError: no [red]luck[/red] \\u001b[2J", "run show broken-1", code=1)
    (waiting / "other.py").write_text("import duramen\n@duramen.task\ndef other(): pass\n")
    missing, unknown = run_each(
        ["run", "resume", "mail-1", "--tasks", "other"], ["run", "resume", "unknown", "-t", "trips"], cwd=waiting
    )
    assert_refused(missing, "needs the task 'mail'", "import its module")
    assert_refused(unknown, "there is no run 'unknown'")
    assert run("run", "resume", "mail-1", cwd=waiting).code == 2


def test_replay_prints_the_result_without_executing_steps(waiting: Path) -> None:
    with duramen.open(waiting / "duramen.db", keep_unknown=True) as dm:
        dm.answer("trip-1", True)
    assert run("run", "resume", "trip-1", "-t", "trips", cwd=waiting).code == 0
    again, early, failed, waits = (
        run("replay", *arguments, "--tasks", "trips", cwd=waiting, DIE="1")
        for arguments in (["trip-1"], ["trip-1", "--at", "4"], ["broken-1"], ["mail-1"])
    )
    assert again.code == 0
    assert again.lines[0]["paid"] == "paid 412.5"
    assert_refused(early, "up to position 4 ends before its task does", "run show", code=3)
    assert_refused(failed, "ValueError", code=1)
    assert_refused(waits, "mail-1", code=3)
    (waiting / "trips.py").write_text(TRIPS.replace("duramen.ask(", "len("))
    changed = run("replay", "trip-1", "--tasks", "trips", cwd=waiting)
    assert changed.code in (1, 2)
    other, unknown = run_each(
        ["replay", "mail-1", "-t", "trips:trip", "--at", "0"], ["replay", "unknown", "-t", "trips"], cwd=waiting
    )
    assert other.code == 2
    assert_refused(unknown, "there is no run 'unknown'")


def test_replay_prints_a_result_that_cannot_be_stored(tmp_path: Path) -> None:
    module = "import duramen\n@duramen.task\ndef odd():\n    return {}\n"
    (tmp_path / "odd.py").write_text(module.format(1))
    make = "import duramen, odd\nduramen.open('duramen.db').run(odd.odd, id='odd')"
    subprocess.run([sys.executable, "-c", make], cwd=tmp_path, check=True)
    (tmp_path / "odd.py").write_text(module.format("range(3)"))
    assert run("replay", "odd", "-t", "odd", cwd=tmp_path).lines == [{"$type": "range", "value": "range(0, 3)"}]


# -- importing tasks


@pytest.mark.parametrize(
    ("place", "message_part", "hint_part"),
    [
        ("nowhere", "there is no module 'nowhere'", "PYTHONPATH"),
        ("nowhere.deeper:task", "there is no module 'nowhere.deeper'", "PYTHONPATH"),
        ("trips:nothing", "there is no 'trips:nothing': its tasks are trip, mail", "a task in the module"),
        ("trips:NUMBER", "'trips:NUMBER' is not a task", "@duramen.task"),
        ("trips:MIXED", "'mial'", "list only tasks"),
        ("trips:search", "'trips:search' is not a task", "@duramen.task"),
        ("trips.py", "is not the name of a module", "not a path"),
        ("../trips", "is not the name of a module", "not a path"),
        (":trip", "is not the name of a module", "module:attribute"),
        ("json", "module 'json' has no tasks", "@duramen.task"),
        ("raising", "importing 'raising' failed with ZeroDivisionError", 'python -c "import raising"'),
        ("leaving", "importing 'leaving' failed with SystemExit", "see the whole error"),
        ("needing", "importing 'needing' failed with ModuleNotFoundError", "see the whole error"),
    ],
)
def test_import_failures_are_explained(parked: Path, place: str, message_part: str, hint_part: str) -> None:
    (parked / "raising.py").write_text("1 / 0\n")
    (parked / "leaving.py").write_text("raise SystemExit(0)\n")
    (parked / "needing.py").write_text("import not_installed_anywhere\n")
    for result in run_each(["worker", place], ["replay", "family-1", "--tasks", place], cwd=parked):
        assert_refused(result, message_part, hint_part)


# -- workers


def test_a_worker_executes_runs_that_are_due(waiting: Path) -> None:
    result = run("worker", "trips", "--until-idle", cwd=waiting)
    assert result.code == 0
    assert (
        "Working on tasks trip, mail, nap, broken, child, family (version 2), slow, count; queues limited" in result.err
    )
    assert shown(waiting, "count-1")["result"] == 3


def test_a_worker_serves_only_the_named_tasks_and_queues(waiting: Path) -> None:
    one = run("worker", "trips:count", "trips:mail", "--until-idle", cwd=waiting)
    assert (one.code, "Working on tasks count, mail.\n" in one.err) == (0, True)
    assert shown(waiting, "count-1")["status"] == "queued"  # no worker serves its queue
    listed = run("worker", "trips:LISTED", "--until-idle", "--concurrency", "2", cwd=waiting)
    assert "Working on tasks mail, count; queues limited.\nStopped after 1 execution." in listed.err
    assert shown(waiting, "count-1")["status"] == "done"
    assert run("worker", cwd=waiting).code == 2
    assert run("worker", "trips", "-c", "0", cwd=waiting).code == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signalled_worker_finishes_its_current_run(waiting: Path, number: signal.Signals) -> None:
    with duramen.open(waiting / "duramen.db") as dm:
        with running("worker", "trips:slow", "-c", "1", cwd=waiting) as process:
            assert process.stderr is not None
            _read_until(process.stderr, "Stop with Ctrl-C")
            subprocess.run([sys.executable, "-c", START_SLOW], cwd=waiting, check=True)
            until(lambda: dm.run_info("slow-1").status == "running", "the run")
            process.send_signal(number)
            _read_until(process.stderr, "Stopping")
            (waiting / "finish").touch()
            _, errors = process.communicate(timeout=20)
            assert process.returncode == 0
            assert "Stopped after 1 execution." in errors
        assert dm.run_info("slow-1").status == "done"


START_SLOW = "import duramen, trips\nduramen.open('duramen.db').start(trips.slow, id='slow-1')"


def test_a_second_interrupt_stops_at_once_and_the_run_resumes_later(waiting: Path) -> None:
    subprocess.run([sys.executable, "-c", START_SLOW], cwd=waiting, check=True)
    with duramen.open(waiting / "duramen.db") as dm:
        with running("worker", "trips:slow", cwd=waiting) as process:
            assert process.stderr is not None
            until(lambda: dm.run_info("slow-1").status == "running", "the run")
            process.send_signal(signal.SIGINT)
            _read_until(process.stderr, "Stopping")
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == 130
        assert dm.run_info("slow-1").ended is None
    (waiting / "finish").touch()
    assert run("worker", "trips:slow", "--until-idle", cwd=waiting).code == 0
    assert shown(waiting, "slow-1")["result"] == "finished"


def test_a_worker_reports_failures_and_serves_schedules(waiting: Path) -> None:
    start = "import duramen, trips\nduramen.open('duramen.db').start(trips.broken, 'bad \\x1b[2J', id='broken-2')"
    subprocess.run([sys.executable, "-c", start], cwd=waiting, check=True)
    with running("worker", "trips:TICKING", "trips:broken", cwd=waiting) as process:
        assert process.stderr is not None
        assert "schedules often" in _read_until(process.stderr, "Working on")
        assert "bad \\u001b[2J" in _read_until(process.stderr, "broken-2")
        with duramen.open(waiting / "duramen.db") as dm:
            done = lambda: [info.id for info in dm.runs(task="count", status="done")]  # noqa: E731
            until(lambda: any(run.startswith("often@") for run in done()), "a run of the schedule")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


# -- stores


def test_commands_on_runs_do_not_create_a_store(tmp_path: Path) -> None:
    (tmp_path / "trips.py").write_text(TRIPS)
    (tmp_path / "junk.db").write_text("this is not a database " * 200)
    (tmp_path / "empty.db").touch()
    before = sorted(path.name for path in tmp_path.iterdir())
    commands: list[list[str]] = [
        ["signal", "r", "go"],
        ["worker", "trips", "--until-idle"],
        ["replay", "r", "--tasks", "trips"],
        ["runs"],
        ["run", "show", "r"],
        ["run", "resume", "r", "--tasks", "trips"],
        ["run", "cancel", "r"],
        ["run", "fork", "r", "s"],
        ["run", "settle", "r", "done"],
        ["run", "answer", "r", "1"],
    ]
    for result in run_each(*commands, cwd=tmp_path, PYTHONDONTWRITEBYTECODE="1"):
        assert_refused(result, "there is no duramen.db", "--store")
    for result in run_each(*commands, cwd=tmp_path, PYTHONDONTWRITEBYTECODE="1", DURAMEN_STORE="junk.db"):
        assert_refused(result, "not a database")
    for result in run_each(*commands, cwd=tmp_path, PYTHONDONTWRITEBYTECODE="1", DURAMEN_STORE="empty.db"):
        assert_refused(result, "holds no journal")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "empty.db").stat().st_size == 0


def test_run_commands_work_on_postgres(empty_postgres_url: str, tmp_path: Path) -> None:
    (tmp_path / "trips.py").write_text(TRIPS)
    start = "import duramen, sys, trips\nduramen.open(sys.argv[1]).start(trips.mail, id='mail-1')"
    empty = run("run", "cancel", "mail-1", cwd=tmp_path, DURAMEN_STORE=empty_postgres_url)
    assert_refused(empty, "holds no journal")
    subprocess.run([sys.executable, "-c", start, empty_postgres_url], cwd=tmp_path, check=True)
    sent, worked, listed = run_each(
        ["signal", "mail-1", "mail", "--data", "[1]"],
        ["worker", "trips", "--until-idle"],
        ["run", "show", "mail-1", "--json"],
        cwd=tmp_path,
        DURAMEN_STORE=empty_postgres_url,
    )
    assert (sent.code, worked.code, listed.code) == (0, 0, 0), (worked, listed)
    assert (listed.lines[0]["status"], listed.lines[0]["result"]) == ("done", [1])
