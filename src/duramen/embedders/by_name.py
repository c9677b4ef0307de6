"""Loads an embedder by the name that settings or the environment give."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from ..errors import InvalidInput
from ..journal.redaction import Redactor
from ..ports import Embedder
from .adapters import CallableEmbedder, OpenAIEmbedder, SentenceTransformersEmbedder
from .minilm import MiniLM

_OPENAI = re.compile(r"openai:(?P<model>(?:(?!://)\S)+?)(?:@(?P<base_url>https?://\S*))?")
_SENTENCE_TRANSFORMERS = re.compile(r"sentence-transformers:(?P<model>\S+)")
_HINT = (
    'use "minilm", "openai:NAME@http://127.0.0.1:8080/v1", "sentence-transformers:NAME", "none" to search by words '
    "only, or a function that takes a list of texts and returns a vector for each"
)


def load_embedder(
    spec: str | Embedder | Callable[[list[str]], Any] | None = "minilm", *, timeout: float = 30.0, fetch: bool = True
) -> Embedder | None:
    """The embedder that `spec` names; None if it is "none" or None.

    - "minilm": the default model. If its weights are not in the cache, they are downloaded, unless `fetch=False`.
      Raises `WeightsUnavailable` if they cannot be loaded.
    - "openai:NAME", "openai:NAME@URL": a model on a server. The first request is sent when vectors are needed. Each
      request takes at most `timeout` seconds.
    - "sentence-transformers:NAME": needs the package sentence-transformers.
    - A function: its module and name identify it.
    - An embedder: returned unchanged.

    Raises `InvalidInput` for anything else.
    """
    if spec is None or isinstance(spec, str):
        return _named("none" if spec is None else spec.strip(), timeout, fetch)
    if not isinstance(spec, type) and hasattr(spec, "embed"):
        return cast(Embedder, spec)
    if callable(spec):
        return CallableEmbedder(spec, name=_name_of(spec))
    raise InvalidInput(f"the embedder has the wrong type: {type(spec).__name__}", hint=_HINT)


def _named(text: str, timeout: float, fetch: bool) -> Embedder | None:
    if text == "none":
        return None
    if text == "minilm":
        return MiniLM.load(fetch=fetch)
    if found := _OPENAI.fullmatch(text):
        return OpenAIEmbedder(found["model"], base_url=found["base_url"], timeout=timeout)
    if found := _SENTENCE_TRANSFORMERS.fullmatch(text):
        return SentenceTransformersEmbedder(found["model"])
    raise InvalidInput(f"unknown embedder {repr(Redactor().text(text))[:200]}", hint=_HINT)


def _name_of(function: Callable[..., Any]) -> str:
    """The module and name of a function, which identify it in the next process. Raises `InvalidInput` for a lambda or a
    nested function: its name does not identify it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    if not module or "<" in name:
        raise InvalidInput(
            "an embedder function needs a name that identifies it, and this one has none",
            hint="use duramen.embedders.CallableEmbedder(function, name=...)",
        )
    return f"{module}.{name}"
