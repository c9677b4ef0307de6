"""Requests to a provider through its SDK, with one deadline, at most one retry, and a short reason on failure.

The SDKs of Anthropic and OpenAI use the same names for their errors, so one translation serves both. The retries of
the SDKs are disabled: they sleep as long as the Retry-After header of the server asks, which may exceed the deadline.
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

from ..errors import EmbedderFailed, InvalidInput, ModelFailed, shown
from ..journal.redaction import REDACTED, Redactor

_CONNECT_SECONDS = 5.0
_PAUSE_SECONDS = 0.25
_LONGEST_ANSWER = 4 * 1024 * 1024
_LONGEST_REASON = 160
_SHORTEST_SECRET = 8
_TEMPORARY = frozenset([408, 409, 425, 429])
_REDACTOR = Redactor()

T = TypeVar("T")


class Response(Protocol):
    """A response whose body is streamed."""

    def iter_bytes(self) -> Iterator[bytes]: ...


Send = Callable[[Any], AbstractContextManager[Response]]
"""A function that sends the request with a `Timeout` of the SDK."""


class Failure(NamedTuple):
    """Why there is no answer, and what to do."""

    reason: str
    hint: str
    pause: float | None = None
    """Seconds after which a retry may help; None if it would not."""


REFUSED = Failure("refused", "rephrase the prompt, or use another model")
NO_TEXT = Failure("no text in the answer", "use another model")
CUT_OFF = Failure("cut off before any text", "raise max_tokens; for a reasoning model, reduce reasoning with extra=")


class Provider:
    """A server behind an SDK: the module of the SDK and its client.

    `request` fails after `timeout` seconds. A server that begins to answer and then stalls can double that time. The
    errors and their causes never contain the key of the client, even if the server repeats it.
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
            raise InvalidInput(f"`timeout` cannot be {shown(timeout)}", hint="give seconds above 0, such as 30.0")
        self._name = name
        self._sdk = sdk
        self._client = client
        self._timeout = timeout
        self._failure = failure
        self._longest_answer = longest_answer
        # The HTTP package of the SDK: httpx2, or httpx in older releases. It raises the errors while the body arrives.
        self._http = sys.modules[type(client.base_url).__module__.partition(".")[0]]

    def request(self, send: Send, body_type: type[T]) -> T:
        """Return the answer of the server, decoded as `body_type`. Raises the `failure` class of the provider."""
        deadline = time.monotonic() + self._timeout
        body = self._attempt(send, deadline)
        # A retry that leaves no time for an answer would only prolong the wait.
        if isinstance(body, Failure) and body.pause is not None and body.pause < (deadline - time.monotonic()) / 2:
            time.sleep(body.pause)
            body = self._attempt(send, deadline)
        answer = body if isinstance(body, Failure) else _decode(body, body_type)
        if isinstance(answer, Failure):
            raise self.failed(answer)
        return answer

    def failed(self, failure: Failure) -> ModelFailed | EmbedderFailed:
        """The error to raise for a failure."""
        return self._failure(self._name, failure.reason, hint=failure.hint)

    def _attempt(self, send: Send, deadline: float) -> bytes | Failure:
        seconds = max(deadline - time.monotonic(), 0.001)
        try:
            with send(self._sdk.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))) as response:
                return self._body(response, deadline)
        except (_base_error(self._sdk), self._http.HTTPError) as error:
            # Returned, not raised from here: the error of the SDK repeats the text of the server, which may contain the
            # key, and must not become the cause.
            return self._translate(error)

    def _body(self, response: Response, deadline: float) -> bytes | Failure:
        """The body of the response. The deadline also applies to a server that sends single bytes slowly."""
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if time.monotonic() > deadline:
                return self._timed_out()
            if len(body) > self._longest_answer:
                return Failure(
                    f"the answer has more than {self._longest_answer >> 20} MiB", "check which server is at base_url"
                )
        return bytes(body)

    def _translate(self, error: Exception) -> Failure:
        cause = error.__cause__ or error
        if isinstance(cause, self._http.ConnectTimeout):
            within = min(self._timeout, _CONNECT_SECONDS)
            return Failure(f"no connection within {within:g} s", "check base_url and the network")
        if isinstance(error, (self._sdk.APITimeoutError, self._http.TimeoutException)):
            return self._timed_out()
        if isinstance(error, self._sdk.APIStatusError):
            status = error.status_code
            reason = f"status {status}: {self._safe_text(_error_message(error.body)) or _status_phrase(status)}"
            return Failure(reason, _status_hint(status), _pause_after(status, error.response.headers))
        if isinstance(error, (self._sdk.APIConnectionError, self._http.HTTPError)):
            hint = "check that a server listens at base_url, and check the network"
            return Failure(f"connection failed: {self._safe_text(cause) or type(cause).__name__}", hint, _PAUSE_SECONDS)
        return Failure(self._safe_text(error), "check the client's credentials")

    def _timed_out(self) -> Failure:
        return Failure(f"timeout after {self._timeout:g} s", "raise timeout=, or use a faster model")

    def _safe_text(self, message: object) -> str:
        """A message from outside, shortened, on one line, without keys."""
        text = "".join(character if character.isprintable() else " " for character in str(message))
        for attribute in ("api_key", "auth_token"):
            secret = getattr(self._client, attribute, None)
            if isinstance(secret, str) and len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, REDACTED)
        text = " ".join(_REDACTOR.text(text).split())
        return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "…"


def check_base_url(base_url: str | None) -> None:
    """Raise `InvalidInput` unless it is None or the address of a server without a password."""
    if base_url is None:
        return
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidInput(
            "base_url is not an http or https URL", hint="use an address such as http://127.0.0.1:8080/v1"
        )
    if parts.username is not None or parts.password is not None:
        # Addresses are shown and logged. The value of api_key is not.
        raise InvalidInput("base_url contains a user name or a password", hint="give the password as api_key=")


def check_key(key: object) -> None:
    """Raise `InvalidInput` if a header cannot carry the key."""
    if isinstance(key, str) and not (key.isascii() and key.isprintable()):
        raise InvalidInput(
            "the API key has characters that cannot be part of a key", hint="remove line breaks and quotation marks"
        )


def check_max_tokens(max_tokens: int) -> None:
    """Raise `InvalidInput` if the limit is below one token."""
    if max_tokens < 1:
        raise InvalidInput(f"`max_tokens` cannot be {shown(max_tokens)}", hint="give a whole number from 1")


def encodable(text: str) -> str:
    """The text with lone surrogates, which no request can carry, replaced by question marks."""
    return text.encode("utf-8", "replace").decode()


def _base_error(sdk: ModuleType) -> type[Exception]:
    """The class that all errors of the SDK derive from: the parent of `APIError`."""
    root: type[Exception] = sdk.APIError.__base__
    return root


def _decode(body: bytes, body_type: type[T]) -> T | Failure:
    try:
        return msgspec.json.decode(body, type=body_type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        cause = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        return Failure(f"malformed answer: {cause}", "check which server is at base_url")


def _error_message(body: object) -> str:
    match body:
        case {"error": {"message": str(text)}} | {"error": str(text)} | {"message": str(text)}:
            return text
        case str(text) if not text.lstrip().startswith("<"):  # the status says more than the HTML page of a proxy
            return text
    return ""


def _status_phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def _status_hint(status: int) -> str:
    if status in (401, 403):
        return "check the API key and its permissions"
    if status == 404:
        return "check the name of the model and base_url"
    if status in _TEMPORARY or status >= 500:
        return "the server is busy or out of order: try again later, or use another model"
    return "check the name of the model and the length of the prompt"


def _pause_after(status: int, headers: Any) -> float | None:
    """Seconds to wait before a retry, as the server asks; None if a retry cannot help."""
    if status not in _TEMPORARY and status < 500:
        return None
    try:
        asked = float(headers.get("retry-after", ""))
    except ValueError:
        return _PAUSE_SECONDS
    return asked if asked >= 0 else _PAUSE_SECONDS
