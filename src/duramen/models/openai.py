"""OpenAI's models, and those of every server that speaks its chat completions, behind the `Model` port. Needs the extra
`openai`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import InvalidInput
from .provider import CUT_OFF, NO_TEXT, REFUSED, Provider, check_address, check_key, check_limit, sendable

if TYPE_CHECKING:
    import openai

__all__ = ["OpenAIModel"]

_NEWER_API = ("openai.com", "azure.com")


class OpenAIModel:
    """A model reached through the `openai` SDK.

    The key is `api_key`, or `OPENAI_API_KEY`; a server of your own at `base_url` needs none. `client` brings the SDK's
    client instead, for instance one for Azure. `timeout` is in seconds and holds for the whole answer, the second try
    included. `extra` goes into each request as it is: models that reason before they answer want
    `{"reasoning_effort": "minimal"}`, or their thoughts take all the tokens.
    """

    def __init__(
        self,
        model: str,
        *,
        client: openai.OpenAI | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 30.0,
        name: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        sdk = openai_sdk()
        self.name = name or f"openai:{model}"
        self.form = "openai"
        self._model = model
        self._extra = dict(extra or {})
        self._client: Any = (client or openai_client(sdk, base_url, api_key)).with_options(max_retries=0)
        self._provider = Provider(self.name, sdk, self._client, timeout)
        # OpenAI's newer models refuse the old name of the limit; most other servers know only that one.
        newer = self._client.base_url.host.endswith(_NEWER_API)
        self._limit = "max_completion_tokens" if newer else "max_tokens"

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 512) -> str:
        """The answer's text. Raises `ModelFailed` if there is none."""
        messages = [{"role": "system", "content": sendable(system)}] if system else []
        messages.append({"role": "user", "content": sendable(prompt)})
        return self.reply({"messages": messages}, max_tokens=max_tokens)

    def reply(self, said: Mapping[str, Any], *, max_tokens: int = 1024) -> str:
        """The text that answers a conversation, given as `context.openai()` gives it. Raises `ModelFailed`."""
        check_limit(max_tokens)
        request: dict[str, Any] = {"model": self._model, **said, self._limit: max_tokens}
        create = self._client.chat.completions.with_streaming_response.create
        answer = self._provider.ask(
            lambda timeout: create(**request, extra_body=self._extra, timeout=timeout), _Completion
        )
        if not answer.choices:
            raise self._provider.failed(NO_TEXT)
        choice = answer.choices[0]
        if choice.message.refusal or choice.finish_reason == "content_filter":
            raise self._provider.failed(REFUSED)
        text = choice.message.content or ""
        if not text.strip():
            raise self._provider.failed(CUT_OFF if choice.finish_reason == "length" else NO_TEXT)
        return text

    def __repr__(self) -> str:
        return f"OpenAIModel({self._model!r}, name={self.name!r})"


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct, frozen=True):
    choices: list[_Choice]


def openai_sdk() -> ModuleType:
    """The SDK's module. Raises `InvalidInput` where it is not installed."""
    try:
        import openai
    except ImportError:
        raise InvalidInput("the package openai is not installed", hint="pip install 'duramen[openai]'") from None
    return openai


def openai_client(sdk: ModuleType, base_url: str | None, api_key: str | None) -> Any:
    """The SDK's client for OpenAI, or for the server at `base_url`. Raises `InvalidInput` for want of a key."""
    check_address(base_url)
    if base_url is not None and not (api_key or os.environ.get("OPENAI_API_KEY")):
        api_key = "no-key-needed"
    try:
        client = sdk.OpenAI(api_key=api_key, base_url=base_url)
    except sdk.OpenAIError:
        raise InvalidInput("no key for OpenAI's API", hint="set OPENAI_API_KEY, or give api_key=") from None
    check_key(client.api_key)
    return client
