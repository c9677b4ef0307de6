"""OpenAI and other servers with its Chat Completions API, behind the `Model` port. Needs the extra `openai`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import InvalidInput
from .provider import CUT_OFF, NO_TEXT, REFUSED, Provider, check_base_url, check_key, check_max_tokens, encodable

if TYPE_CHECKING:
    import openai

__all__ = ["OpenAIModel"]

_NEW_API_HOSTS = ("openai.com", "azure.com")


class OpenAIModel:
    """A model reached through the `openai` SDK.

    Args:
        model: the name of the model.
        client: a client of the SDK to use, for instance one for Azure. Default: a new client.
        base_url: the address of your own server, which needs no key.
        api_key: the API key. Default: the environment variable OPENAI_API_KEY.
        timeout: seconds for the whole answer, including a retry.
        name: the name in errors and logs. Default: "openai:" and `model`.
        extra: added to each request. Reasoning models need `{"reasoning_effort": "minimal"}`, because reasoning could
            use up all tokens.
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
        self.protocol = "openai"
        self._model = model
        self._extra = dict(extra or {})
        self._client: Any = (client or openai_client(sdk, base_url, api_key)).with_options(max_retries=0)
        self._provider = Provider(self.name, sdk, self._client, timeout)
        # OpenAI's newer models refuse the old name of the limit. Most other servers know only the old name.
        newer = self._client.base_url.host.endswith(_NEW_API_HOSTS)
        self._limit = "max_completion_tokens" if newer else "max_tokens"

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 512) -> str:
        """Return the text of the answer. Raises `ModelFailed` if there is none."""
        messages = [{"role": "system", "content": encodable(system)}] if system else []
        messages.append({"role": "user", "content": encodable(prompt)})
        return self.reply({"messages": messages}, max_tokens=max_tokens)

    def reply(self, conversation: Mapping[str, Any], *, max_tokens: int = 1024) -> str:
        """Return the answer to a conversation in the format of `context.openai()`. Raises `ModelFailed`."""
        check_max_tokens(max_tokens)
        request: dict[str, Any] = {"model": self._model, **conversation, self._limit: max_tokens}
        create = self._client.chat.completions.with_streaming_response.create
        answer = self._provider.request(
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
    """The module of the SDK. Raises `InvalidInput` if it is not installed."""
    try:
        import openai
    except ImportError:
        raise InvalidInput("the package openai is not installed", hint="run: pip install 'duramen[openai]'") from None
    return openai


def openai_client(sdk: ModuleType, base_url: str | None, api_key: str | None) -> Any:
    """The client of the SDK for OpenAI, or for the server at `base_url`. Raises `InvalidInput` if there is no key."""
    check_base_url(base_url)
    if base_url is not None and not (api_key or os.environ.get("OPENAI_API_KEY")):
        api_key = "no-key-needed"
    try:
        client = sdk.OpenAI(api_key=api_key, base_url=base_url)
    except sdk.OpenAIError:
        raise InvalidInput("there is no key for OpenAI's API", hint="set OPENAI_API_KEY, or give api_key=") from None
    check_key(client.api_key)
    return client
