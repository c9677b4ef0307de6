"""Models by name, as command lines and the environment give them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import InvalidInput
from ..journal.redaction import Redactor

if TYPE_CHECKING:
    from ..ports import Model

_NAMED = re.compile(r"(?P<provider>anthropic|openai):(?P<model>(?:(?!://)\S)+?)(?:@(?P<base_url>https?://\S*))?")
_HINT = "such as anthropic:claude-haiku-4-5, openai:gpt-5-mini or openai:NAME@http://127.0.0.1:8080/v1"


def load(text: str, *, timeout: float = 30.0) -> Model:
    """The model that `provider:name` stands for, or `provider:name@URL` for one on a server of your own.

    Keys come from the environment, as the provider's SDK reads them. Raises `InvalidInput` for a text of another form
    and for a provider whose SDK is not installed.
    """
    found = _NAMED.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(f"{Redactor().text(text)!r} names no model", hint=_HINT)
    model, base_url = found["model"], found["base_url"]
    if found["provider"] == "anthropic":
        from .anthropic import AnthropicModel

        return AnthropicModel(model, base_url=base_url, timeout=timeout)
    from .openai import OpenAIModel

    return OpenAIModel(model, base_url=base_url, timeout=timeout)
