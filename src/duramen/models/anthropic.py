"""Claude and other servers with Anthropic's Messages API, behind the `Model` port. Needs the extra `anthropic`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import InvalidInput
from .provider import CUT_OFF, NO_TEXT, REFUSED, Provider, check_base_url, check_key, check_max_tokens, encodable

if TYPE_CHECKING:
    import anthropic

__all__ = ["AnthropicModel"]

_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_KEY_HINT = "set ANTHROPIC_API_KEY, or give api_key="


class AnthropicModel:
    """A model reached through the `anthropic` SDK.

    Args:
        model: the name of the model.
        client: a client of the SDK to use, for instance one for Bedrock or Vertex. Default: a new client.
        base_url: the address of your own server, which needs no key.
        api_key: the API key. Default: what the SDK finds, such as the environment variable ANTHROPIC_API_KEY.
        timeout: seconds for the whole answer, including a retry.
        name: the name in errors and logs. Default: "anthropic:" and `model`.
        extra: added to each request.
    """

    def __init__(
        self,
        model: str,
        *,
        client: anthropic.Anthropic | anthropic.AnthropicBedrock | anthropic.AnthropicVertex | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 30.0,
        name: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        sdk = _sdk()
        self.name = name or f"anthropic:{model}"
        self.protocol = "anthropic"
        self._model = model
        self._extra = dict(extra or {})
        self._client: Any = (client or _client(sdk, base_url, api_key)).with_options(max_retries=0)
        self._provider = Provider(self.name, sdk, self._client, timeout)

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 512) -> str:
        """Return the text of the answer. Raises `ModelFailed` if there is none."""
        conversation: dict[str, Any] = {"messages": [{"role": "user", "content": encodable(prompt)}]}
        if system:
            conversation["system"] = encodable(system)
        return self.reply(conversation, max_tokens=max_tokens)

    def reply(self, conversation: Mapping[str, Any], *, max_tokens: int = 1024) -> str:
        """Return the answer to a conversation in the format of `context.anthropic()`. Raises `ModelFailed`."""
        check_max_tokens(max_tokens)
        request = {"model": self._model, **conversation, "max_tokens": max_tokens, "extra_body": self._extra}
        create = self._client.messages.with_streaming_response.create
        answer = self._provider.request(lambda timeout: create(**request, timeout=timeout), _Message)
        if answer.stop_reason == "refusal":
            raise self._provider.failed(REFUSED)
        text = "".join(block.text or "" for block in answer.content if block.type == "text")
        if not text.strip():
            raise self._provider.failed(CUT_OFF if answer.stop_reason == "max_tokens" else NO_TEXT)
        return text

    def __repr__(self) -> str:
        return f"AnthropicModel({self._model!r}, name={self.name!r})"


class _Block(msgspec.Struct, frozen=True):
    type: str
    text: str | None = None


class _Message(msgspec.Struct, frozen=True):
    content: list[_Block]
    stop_reason: str | None = None


def _sdk() -> ModuleType:
    try:
        import anthropic
    except ImportError:
        hint = "run: pip install 'duramen[anthropic]'"
        raise InvalidInput("the package anthropic is not installed", hint=hint) from None
    return anthropic


def _client(sdk: ModuleType, base_url: str | None, api_key: str | None) -> Any:
    check_base_url(base_url)
    if base_url is not None and not (api_key or any(map(os.environ.get, _KEYS))):
        api_key = "no-key-needed"
    try:
        client = sdk.Anthropic(api_key=api_key, base_url=base_url)
    except sdk.AnthropicError as error:  # a profile on disk that cannot be used
        raise InvalidInput(f"there is no key for Anthropic's API: {error}", hint=_KEY_HINT) from None
    if not any(getattr(client, source, None) for source in ("api_key", "auth_token", "credentials")):
        raise InvalidInput("there is no key for Anthropic's API", hint=_KEY_HINT)
    check_key(client.api_key)
    return client
