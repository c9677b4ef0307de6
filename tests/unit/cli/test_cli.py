"""The commands that read a store, on real files."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import signal
import subprocess
import sys
import uuid
from decimal import Decimal
from pathlib import Path, PurePath

import apsw
import pytest
from programs.command_line import (
    HOSTILE_TEXT,
    CommandResult,
    run,
    run_each,
    run_on_terminal,
    running,
)

import duramen
from duramen.testing.clock import FakeClock


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that tests only read."""
    folder = tmp_path_factory.mktemp("journal")
    with duramen.open(folder / "duramen.db", clock=FakeClock(1_772_374_925_000_000)) as dm:
        trip = dm.session("trip")
        trip.append("run.started", {"task": "trip"}, actor="user:ann")
        trip.append("message", {"text": HOSTILE_TEXT}, actor="user:ann", cause=1, subject="ann", key="m-1")
        trip.append("step.done", {"flight": "BA 117"}, actor="agent", cause=2)
        trip.append("note", {"text": "forget me"}, actor="agent", cause="inbox#7", subject="zoe")
        trip.fork("trip-b", at=3).append("note", {"text": "other way"}, actor="dev:bo", cause=3)
        dm.session(f"evil {HOSTILE_TEXT}").append("[bold]\x1b[2J", HOSTILE_TEXT, actor="\x1b[31mroot", key="\x07k")
        dm.erase("zoe")
    with duramen.open(folder / "duramen.db", workspace="other") as dm:
        dm.session("elsewhere").append("run.finished", {"ok": True})
    return folder


def test_without_arguments_it_prints_help_and_imports_little(tmp_path: Path) -> None:
    bare, version, wrong = run_each([], ["--version"], ["nonsense"], cwd=tmp_path)
    assert bare.code == 0
    assert all(word in bare.out for word in ("sessions", "show", "tail", "verify", "export", "DURAMEN_KEY"))
    assert (version.code, version.out) == (0, f"duramen {duramen.__version__}\n")
    assert wrong.code == 2
    code = "import sys, duramen.cli.app; sys.exit(bool({'apsw', 'msgspec', 'rich'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_sessions_lists_sessions_and_their_status(folder: Path) -> None:
    table, some, other, unknown = run_each(
        ["sessions"],
        ["sessions", "--json", "--limit", 2],
        ["sessions", "--json", "--workspace", "other"],
        ["sessions", "-w", "unknown"],
        cwd=folder,
    )
    assert table.code == 0
    titles, evil, *_, trip, fork = table.out.splitlines()
    assert titles.split() == ["session", "events", "first", "(UTC)", "last", "(UTC)", "fork", "of", "status"]
    assert evil.startswith("evil [red]hi[/red] \\u001b[2J")
    assert trip.split() == ["trip", "5", "2026-03-01", "14:22:05", "2026-03-01", "14:22:05", "crashed"]
    assert fork.split()[0::6] == ["trip-b", "trip#3"]
    assert [row["session"] for row in some.lines] == [f"evil {HOSTILE_TEXT}", "trip"]
    assert some.lines[1]["first"] == "2026-03-01T14:22:05.000000Z"
    assert [(row["session"], row["events"], row["status"]) for row in other.lines] == [("elsewhere", 1, "finished")]
    assert (unknown.code, unknown.out) == (0, "")
    assert "default, other" in unknown.err


@pytest.mark.promise("J9")
def test_show_prints_the_audit_trail_of_a_killed_process(tmp_path: Path) -> None:
    writer = (
        "import duramen, os, signal\n"
        "trip = duramen.open('agent.db').session('trip')\n"
        "trip.append('run.started', {'task': 'book'}, actor='user:ann')\n"
        "trip.append('step.intent', {'step': 'book'}, actor='agent:7', cause=1)\n"
        "trip.append('step.done', {'ticket': 'X1'}, actor='agent:7', cause='mail#4')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    began = dt.datetime.now(dt.UTC)
    assert subprocess.run([sys.executable, "-c", writer], cwd=tmp_path).returncode == -signal.SIGKILL
    shown, lines = run_each(["show", "trip"], ["show", "trip", "--json"], cwd=tmp_path, DURAMEN_STORE="agent.db")
    _, _, *rows = (line.split() for line in shown.out.splitlines())
    assert [(row[0], *row[2:5]) for row in rows[1:]] == [
        ("2", "step.intent", "agent:7", "1"),
        ("3", "step.done", "agent:7", "mail#4"),
    ]
    events = lines.lines
    assert [(event["actor"], event["cause"]) for event in events] == [
        ("user:ann", None),
        ("agent:7", 1),
        ("agent:7", "mail#4"),
    ]
    times = [dt.datetime.fromisoformat(event["time"]) for event in events]
    assert began - dt.timedelta(seconds=1) <= times[0] <= times[1] <= times[2] <= dt.datetime.now(dt.UTC)


@pytest.mark.promise("J9")
def test_show_filters_events(folder: Path) -> None:
    span, types, fork, nothing = run_each(
        ["show", "trip", "--json", "--start", 2, "--stop", 4, "--backwards"],
        ["show", "trip", "--json", "--type", "note", "--type", "message", "--limit", 2],
        ["show", "trip-b", "--json"],
        ["show", "trip", "--type", "none.such"],
        cwd=folder,
    )
    assert [event["position"] for event in span.lines] == [4, 3, 2]
    assert [event["position"] for event in types.lines] == [2, 4]
    origins = [(event["session"], event["origin"]) for event in fork.lines]
    assert origins == [("trip-b", "trip")] * 3 + [("trip-b", "trip-b")]
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "No events match.\n")


def test_untrusted_data_cannot_control_the_terminal(folder: Path) -> None:
    evil = f"evil {HOSTILE_TEXT}"
    shows = [["show", evil, *options] for options in ([], ["--full"], ["--json"])]
    outputs = run_each(*shows, ["sessions"], ["show", "trip"], ["show", f"no {HOSTILE_TEXT}"], cwd=folder)
    for result in outputs:
        shown = (result.out + result.err).replace("\n", "")
        assert shown.isprintable(), shown
        assert "[red]hi[/red] \\" in shown
    table, full, lines, *_, trip, unknown = outputs
    assert "[bold]\\u001b[2J" in table.out
    assert (
        '"[red]hi[/red] \\u001b[2J\\u001b]0;owned\\u0007 \\u009b31m \\u202elive \\udb40\\udc41 \\u2028end"' in full.out
    )
    assert lines.lines[0]["data"] == HOSTILE_TEXT
    assert "(erased)" in trip.out.splitlines()[5]
    assert unknown.code == 2


def test_colours_are_printed_only_on_terminals(folder: Path) -> None:
    coloured = run_on_terminal("sessions", "-w", "other", cwd=folder)
    plain = run_on_terminal("sessions", "-w", "other", cwd=folder, NO_COLOR="1")
    assert (coloured.code, plain.code) == (0, 0)
    assert "\x1b[36melsewhere" in coloured.out
    assert "elsewhere" in plain.out
    assert "\x1b[36m" not in plain.out


@pytest.mark.promise("G4")
def test_verify_reports_roles_that_bypass_workspace_isolation(
    tmp_path: Path, postgres_url: str, bound_url: str
) -> None:
    for url, expected in ((postgres_url, 1), (bound_url, 0)):
        with duramen.open(url) as dm:
            dm.session("s").append("note", 1)
        shown = run("verify", "--store", url, cwd=tmp_path)
        as_json = run("verify", "--store", url, "--json", cwd=tmp_path)
        assert (shown.code, shown.out.count("is a superuser: only duramen")) == (0, expected)
        assert (as_json.code, len(as_json.lines[0]["remarks"])) == (0, expected)


@pytest.mark.promise("J10")
def test_verify_names_the_first_bad_event(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "duramen.db") as dm:
        for name in ("a", "b"):
            for number in range(6):
                dm.session(name).append("note", {"number": number}, actor="agent")
    good = run("verify", cwd=tmp_path)
    assert (good.code, good.out.splitlines()[0]) == (0, "Checked 2 sessions, 12 events, 0 blobs.")
    connection = apsw.Connection(str(tmp_path / "duramen.db"))
    connection.execute("UPDATE duramen_events SET actor = 'other' WHERE position IN (4, 5) AND sid = 2")
    connection.close()
    bad, as_json, one, other, sessions, shown, export = run_each(
        ["verify"],
        ["verify", "--json"],
        ["verify", "a"],
        ["verify", "b"],
        ["sessions", "--json"],
        ["show", "b"],
        ["export", "--output", "out.jsonl"],
        cwd=tmp_path,
    )
    assert [result.code for result in (bad, as_json, one, other)] == [1, 1, 0, 1]
    assert "b#4: it does not match its hash" in bad.out
    assert bad.out.splitlines()[-1] == "First bad event: b#4"
    assert as_json.lines[0]["first_bad_event"] == {"session": "b", "position": 4}
    assert [(one["session"], one["position"]) for one in as_json.lines[0]["problems"]] == [("b", 4)]
    assert [row["status"] for row in sessions.lines] == ["idle", "damaged"]
    assert (shown.code, "damaged at position 4" in shown.err) == (2, True)
    assert (export.code, (tmp_path / "out.jsonl").exists()) == (2, False)


def test_errors_have_hints_and_create_no_files(tmp_path: Path) -> None:
    (tmp_path / "junk.db").write_text("this is not a database " * 200)
    (tmp_path / "folder.db").mkdir()
    with duramen.open(tmp_path / "sealed.db", key=duramen.new_key()) as dm:
        dm.session("s").append("note", {"text": "secret"})
    before = sorted(path.name for path in tmp_path.iterdir())

    def assert_refused(result: CommandResult, message_part: str, hint_part: str) -> None:
        assert (result.code, result.out) == (2, "")
        message, hint = result.err.splitlines()
        assert message.startswith("Error: ")
        assert hint.startswith("Hint: ")
        assert message_part in message
        assert hint_part in hint

    assert_refused(run("sessions", cwd=tmp_path), "there is no duramen.db", "--store")
    missing = run("verify", cwd=tmp_path, DURAMEN_STORE="none/x.db")
    assert_refused(missing, "there is no none/x.db", "--store")
    output, directory, junk, keyless = run_each(
        ["export", "-o", "out.jsonl"],
        ["show", "s", "-s", "folder.db"],
        ["tail", "-s", "junk.db"],
        ["sessions", "-s", "sealed.db"],
        cwd=tmp_path,
    )
    assert_refused(output, "there is no duramen.db", "--store")
    assert_refused(directory, "is a directory", "path of a file")
    assert_refused(junk, "not a database", "DURAMEN_FILE_KEY")
    assert_refused(keyless, "no key was given", "DURAMEN_KEY")
    wrong = run("verify", "-s", "sealed.db", cwd=tmp_path, DURAMEN_KEY=duramen.new_key())
    assert_refused(wrong, "another key", "DURAMEN_KEY")
    left = {path.name for path in tmp_path.iterdir()} - {"sealed.db-wal", "sealed.db-shm"}
    assert sorted(left) == before


def test_every_command_reports_an_unknown_session(folder: Path) -> None:
    for result in run_each(*([command, "unknown"] for command in ("show", "tail", "verify", "export")), cwd=folder):
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("Error: there is no session 'unknown' in this workspace\nHint: ")


@pytest.mark.promise("J15")
def test_tail_follows_other_processes_until_interrupted(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "duramen.db") as dm:
        one = dm.session("one")
        for number in range(12):
            one.append("note", number)
        with (
            running("tail", "one", "--json", cwd=tmp_path) as one_session,
            running("tail", cwd=tmp_path) as all_sessions,
        ):
            assert one_session.stdout is not None
            assert all_sessions.stdout is not None
            assert [json.loads(one_session.stdout.readline())["data"] for _ in range(10)] == list(range(2, 12))
            shown = [all_sessions.stdout.readline() for _ in range(12)]
            assert shown[0].split() == ["session", "#", "time", "type", "actor", "cause", "data"]
            one.append("note", "live")
            assert json.loads(one_session.stdout.readline())["data"] == "live"
            dm.session("two").append("hello", {"new": True}, actor="agent")
            live, hello = (all_sessions.stdout.readline().split() for _ in range(2))
            assert (live[:2], live[-1]) == (["one", "13"], '"live"')
            assert (hello[:2], hello[3:]) == (["two", "1"], ["hello", "agent", '{"new":', "true}"])
            for process in (one_session, all_sessions):
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=10)
                assert (process.returncode, errors) == (0, "")
    later, nonsense = run_each(
        ["tail", "one", "--after", 12, "--timeout", 0, "--json"], ["tail", "--after", 1], cwd=tmp_path
    )
    assert (later.code, [event["position"] for event in later.lines]) == (0, [13])
    assert nonsense.code == 2


EXPORTED = [
    {"plain": [1, 2.5, None, True, "日本 [red] \x1b[2J"]},
    {
        "bytes": b"\x00\xff",
        "time": dt.datetime(2026, 3, 1, 14, 22, tzinfo=dt.UTC),
        "day": dt.date(2026, 3, 1),
        "span": dt.timedelta(days=1, seconds=5),
        "price": Decimal("412.50"),
        "id": uuid.UUID(int=5),
        "path": Path("a/b"),
        "pure": PurePath("c"),
        "set": {"b", "a"},
        "frozen": frozenset([2, 1]),
        "pair": (1, "x"),
        "huge": 2**70,
        "nan": float("nan"),
    },
    {1: "one", "$type": {"$bytes": "mine"}},
]
AS_JSON = [
    EXPORTED[0],
    {
        "bytes": {"$bytes": "AP8="},
        "time": {"$type": "datetime", "value": "2026-03-01T14:22:00+00:00"},
        "day": {"$type": "date", "value": "2026-03-01"},
        "span": {"$type": "timedelta", "value": {"days": 1, "seconds": 5, "microseconds": 0}},
        "price": {"$type": "Decimal", "value": "412.50"},
        "id": {"$type": "UUID", "value": "00000000-0000-0000-0000-000000000005"},
        "path": {"$type": "Path", "value": "a/b"},
        "pure": {"$type": "PurePath", "value": "c"},
        "set": {"$type": "set", "value": ["a", "b"]},
        "frozen": {"$type": "frozenset", "value": [1, 2]},
        "pair": {"$type": "tuple", "value": [1, "x"]},
        "huge": {"$type": "int", "value": hex(2**70)},
        "nan": {"$type": "float", "value": "nan"},
    },
    {
        "$type": "dict",
        "value": [[1, "one"], ["$type", {"$type": "dict", "value": [["$bytes", "mine"]]}]],
    },
]


def test_export_writes_every_field_as_json_lines(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "duramen.db") as dm:
        one = dm.session("one")
        for number, data in enumerate(EXPORTED):
            one.append("note", data, actor="agent", cause=number or None, key=f"k{number}", subject="ann")
        dm.session("two").append("hello", "x" * 100_000)
        dm.session("two").append("deep", json.loads("[" * 400 + "]" * 400))
        events = [*one.events(), *dm.session("two").events()]
    lines = run("export", cwd=tmp_path).lines
    assert [line["data"] for line in lines] == [*AS_JSON, "x" * 100_000, json.loads("[" * 400 + "]" * 400)]
    for line, event in zip(lines, events, strict=True):
        assert line.pop("data") is not None
        assert line == {
            "session": event.session,
            "origin": event.session,
            "position": event.position,
            "type": event.type,
            "time": event.at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "actor": event.actor,
            "cause": event.cause,
            "key": event.key,
            "subject": event.subject,
            "hash": event.hash.hex(),
            "erased": False,
        }


def test_export_replaces_a_file_only_with_force(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    store = ("--store", folder / "duramen.db")
    first, plain, again = run_each(
        ["export", "trip", *store, "-o", target],
        ["export", "trip", *store],
        ["export", *store, "-o", target],
        cwd=tmp_path,
    )
    assert (first.code, target.read_text()) == (0, plain.out)
    assert len(plain.lines) == 5
    assert target.stat().st_mode & 0o077 == 0
    assert (again.code, "--force" in again.err) == (2, True)
    forced, itself = run_each(
        ["export", *store, "-o", target, "--force"],
        ["export", *store, "-o", folder / "duramen.db", "--force"],
        cwd=tmp_path,
    )
    assert (forced.code, len(target.read_text().splitlines())) == (0, 10)
    assert (itself.code, "belongs to the store" in itself.err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_values_of_user_classes_are_shown_by_their_fields(tmp_path: Path) -> None:
    (tmp_path / "flights.py").write_text(
        "import dataclasses, duramen\n"
        "@duramen.register\n@dataclasses.dataclass\nclass Flight:\n    number: str\n"
        "duramen.open('duramen.db').session('s').append('found', Flight('BA 117'))\n"
    )
    subprocess.run([sys.executable, "flights.py"], cwd=tmp_path, check=True)
    exported, verified, shown = run_each(["export"], ["verify"], ["show", "s"], cwd=tmp_path)
    assert exported.lines[0]["data"] == {"$type": "Flight", "version": 1, "value": {"number": "BA 117"}}
    assert verified.code == 0
    assert "BA 117" in shown.out


def test_a_closed_output_pipe_ends_the_command_quietly(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "duramen.db") as dm:
        dm.session("long").append_all([duramen.Draft("note", {"text": "x" * 200})] * 2000)
    for command in (["export"], ["show", "long"]):
        with running(*command, cwd=tmp_path) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == ""
            assert process.wait(timeout=10) == 141


def test_reading_commands_do_not_change_the_store(folder: Path) -> None:
    def digest() -> str:
        return hashlib.sha256((folder / "duramen.db").read_bytes()).hexdigest()

    before, modified = digest(), (folder / "duramen.db").stat().st_mtime_ns
    commands = (["sessions"], ["show", "trip"], ["tail", "--timeout", 0], ["verify"], ["export"])
    assert [result.code for result in run_each(*commands, cwd=folder)] == [0] * 5
    assert (digest(), (folder / "duramen.db").stat().st_mtime_ns) == (before, modified)


def test_the_commands_work_on_postgres(postgres_url: str, tmp_path: Path) -> None:
    with duramen.open(postgres_url) as dm:
        dm.session("trip").append("note", {"text": "hello"}, actor="agent")
    listed, walked, tailed = run_each(
        ["sessions", "--json"],
        ["verify"],
        ["tail", "--timeout", 0, "--json"],
        cwd=tmp_path,
        DURAMEN_STORE=postgres_url,
    )
    assert [row["session"] for row in listed.lines] == ["trip"]
    assert walked.code == 0
    assert tailed.lines[0]["data"] == {"text": "hello"}
