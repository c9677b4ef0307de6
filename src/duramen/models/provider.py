"""One question to a provider through its SDK: one deadline, one second try, a short reason when nothing comes.

The SDKs of Anthropic and OpenAI name their errors alike, so one translation serves both. Their own retries stay off:
they sleep for as long as a server's Retry-After asks, and whoever waits for the answer would rather do without.
"""

from __future__ import annotations

import http
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from ..errors import EmbedderFailed, InvalidInput, ModelFailed
from ..journal.redaction import REDACTED, Redactor

_CONNECT_SECONDS = 5.0
_PAUSE_SECONDS = 0.25
_LONGEST_ANSWER = 4 * 1024 * 1024
_LONGEST_REASON = 160
_SHORTEST_SECRET = 8
_PASSING = frozenset([408, 409, 425, 429])
_REDACTOR = Redactor()

Form = TypeVar("Form")


class Reply(Protocol):
    """An answer whose body is still under way."""

    def iter_bytes(self) -> Iterator[bytes]: ...


Send = Callable[[Any], AbstractContextManager[Reply]]
"""Sends the question, to be answered within the `Timeout` it is given."""


class Trouble(NamedTuple):
    """Why there is no answer, and what to do about it."""

    reason: str
    hint: str
    pause: float | None = None
    """Seconds after which a second try may help; None where it would not."""


REFUSED = Trouble("refused", "another model may answer, or rephrase the prompt")
NO_TEXT = Trouble("no text in the answer", "another model may answer")
CUT_OFF = Trouble(
    "cut off before any text", "give it more max_tokens; let a model that reasons do less of it, through extra="
)


class Provider:
    """A server behind an SDK: the SDK's module and the client that reaches the server.

    `ask` gives up after `timeout` seconds; only a server that begins to answer and then falls silent can make it twice
    that. Neither its errors nor their causes hold the client's key, even if the server repeats it.
    """

    def __init__(
        self,
        name: str,
        sdk: ModuleType,
        client: Any,
        timeout: float,
        *,
        failure: type[ModelFailed | EmbedderFailed] = ModelFailed,
        longest_answer: int = _LONGEST_ANSWER,
    ) -> None:
        if not 0 < timeout < float("inf"):
            raise InvalidInput(f"a timeout of {timeout} s", hint="give the seconds to wait for an answer, such as 30.0")
        self._name = name
        self._sdk = sdk
        self._client = client
        self._timeout = timeout
        self._failure = failure
        self._longest_answer = longest_answer
        # httpx2 now, httpx in older releases: what goes wrong while the body arrives is raised by it, not by the SDK.
        self._http = sys.modules[type(client.base_url).__module__.partition(".")[0]]

    def ask(self, send: Send, form: type[Form]) -> Form:
        """The server's answer, read as `form`. Raises the provider's `failure`."""
        deadline = time.monotonic() + self._timeout
        body = self._attempt(send, deadline)
        # A second try needs time to be answered in, or it only makes the wait longer.
        if isinstance(body, Trouble) and body.pause is not None and body.pause < (deadline - time.monotonic()) / 2:
            time.sleep(body.pause)
            body = self._attempt(send, deadline)
        answer = body if isinstance(body, Trouble) else _read_as(body, form)
        if isinstance(answer, Trouble):
            raise self.failed(answer)
        return answer

    def failed(self, trouble: Trouble) -> ModelFailed | EmbedderFailed:
        """The error that says so."""
        return self._failure(self._name, trouble.reason, hint=trouble.hint)

    def _attempt(self, send: Send, deadline: float) -> bytes | Trouble:
        seconds = max(deadline - time.monotonic(), 0.001)
        try:
            with send(self._sdk.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))) as reply:
                return self._body(reply, deadline)
        except (_root_of(self._sdk), self._http.HTTPError) as error:
            # Told, not raised: the SDK's errors repeat what the server said, which may be the key.
            return self._translate(error)

    def _body(self, reply: Reply, deadline: float) -> bytes | Trouble:
        """What the server sent. A server that keeps the line alive byte by byte is held to the deadline as well."""
        body = bytearray()
        for chunk in reply.iter_bytes():
            body += chunk
            if time.monotonic() > deadline:
                return self._late()
            if len(body) > self._longest_answer:
                return Trouble(
                    f"more than {self._longest_answer >> 20} MiB of answer", "check what listens at base_url"
                )
        return bytes(body)

    def _translate(self, error: Exception) -> Trouble:
        cause = error.__cause__ or error
        if isinstance(cause, self._http.ConnectTimeout):
            within = min(self._timeout, _CONNECT_SECONDS)
            return Trouble(f"no connection within {within:g} s", "check base_url and the network")
        if isinstance(error, (self._sdk.APITimeoutError, self._http.TimeoutException)):
            return self._late()
        if isinstance(error, self._sdk.APIStatusError):
            status = error.status_code
            reason = f"status {status}: {self._tell(_said_in(error.body)) or _phrase(status)}"
            return Trouble(reason, _status_hint(status), _pause_after(status, error.response.headers))
        if isinstance(error, (self._sdk.APIConnectionError, self._http.HTTPError)):
            hint = "check that a server listens at base_url, and the network"
            return Trouble(f"connection failed: {self._tell(cause) or type(cause).__name__}", hint, _PAUSE_SECONDS)
        return Trouble(self._tell(error), "check the client's credentials")

    def _late(self) -> Trouble:
        return Trouble(f"timeout after {self._timeout:g} s", "raise timeout=, or take a quicker model")

    def _tell(self, what: object) -> str:
        """What somebody else said: short, on one line, without keys."""
        text = "".join(character if character.isprintable() else " " for character in str(what))
        for attribute in ("api_key", "auth_token"):
            secret = getattr(self._client, attribute, None)
            if isinstance(secret, str) and len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, REDACTED)
        text = " ".join(_REDACTOR.text(text).split())
        return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "…"


def check_address(base_url: str | None) -> None:
    """Raise `InvalidInput` unless it is None or the address of a server, without a password in it."""
    if base_url is None:
        return
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidInput(
            "the address of a model's server is no http or https URL", hint="such as http://127.0.0.1:8080/v1"
        )
    if parts.username is not None or parts.password is not None:
        # Addresses are shown and logged; a key given as api_key is not.
        raise InvalidInput("the address of a model's server holds a user or a password", hint="give it as api_key=")


def check_key(key: object) -> None:
    """Raise `InvalidInput` if a header cannot carry the key."""
    if isinstance(key, str) and not (key.isascii() and key.isprintable()):
        raise InvalidInput(
            "the API key has characters that no key has", hint="look for line breaks and quotes copied along with it"
        )


def check_limit(max_tokens: int) -> None:
    """Raise `InvalidInput` unless an answer may have at least one token."""
    if max_tokens < 1:
        raise InvalidInput(f"an answer of at most {max_tokens} tokens", hint="give max_tokens=1 or more")


def sendable(text: str) -> str:
    """The text with lone surrogates, which no request can carry, as question marks."""
    return text.encode("utf-8", "replace").decode()


def _root_of(sdk: ModuleType) -> type[Exception]:
    """The class that all errors of the SDK derive from: the parent of `APIError`."""
    root: type[Exception] = sdk.APIError.__base__
    return root


def _read_as(body: bytes, form: type[Form]) -> Form | Trouble:
    try:
        return msgspec.json.decode(body, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        told = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        return Trouble(f"malformed answer: {told}", "check what listens at base_url")


def _said_in(body: object) -> str:
    match body:
        case {"error": {"message": str(text)}} | {"error": str(text)} | {"message": str(text)}:
            return text
        case str(text) if not text.lstrip().startswith("<"):  # a proxy's page of HTML says less than the status
            return text
    return ""


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def _status_hint(status: int) -> str:
    if status in (401, 403):
        return "check the API key and what it may use"
    if status == 404:
        return "check the model's name and base_url"
    if status in _PASSING or status >= 500:
        return "the server is busy or broken: try again later, or take another model"
    return "check the model's name and the length of the prompt"


def _pause_after(status: int, headers: Any) -> float | None:
    """How long the server wants us to wait, if another try can help at all."""
    if status not in _PASSING and status < 500:
        return None
    try:
        asked = float(headers.get("retry-after", ""))
    except ValueError:
        return _PAUSE_SECONDS
    return asked if asked >= 0 else _PAUSE_SECONDS
