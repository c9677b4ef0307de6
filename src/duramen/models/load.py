"""Loads a model by its name, from settings or from the environment."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import InvalidInput, shown
from ..journal.redaction import Redactor

if TYPE_CHECKING:
    from ..ports import Model

_NAME = re.compile(r"(?P<provider>anthropic|openai):(?P<model>(?:(?!://)\S)+?)(?:@(?P<base_url>https?://\S*))?")
_HINT = "use a name such as anthropic:claude-haiku-4-5, openai:gpt-5-mini or openai:NAME@http://127.0.0.1:8080/v1"


def load_model(name: str, *, timeout: float = 30.0) -> Model:
    """The model `provider:model`, or `provider:model@URL` for one on your own server.

    The SDK of the provider reads API keys from the environment. Raises `InvalidInput` if the name has another format
    or the SDK of the provider is not installed.
    """
    found = _NAME.fullmatch(name.strip())
    if found is None:
        raise InvalidInput(f"{shown(Redactor().text(name))} is not the name of a model", hint=_HINT)
    model, base_url = found["model"], found["base_url"]
    if found["provider"] == "anthropic":
        from .anthropic import AnthropicModel

        return AnthropicModel(model, base_url=base_url, timeout=timeout)
    from .openai import OpenAIModel

    return OpenAIModel(model, base_url=base_url, timeout=timeout)
