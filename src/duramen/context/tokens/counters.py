"""Token counters: the estimate, tokenizer libraries, and count calls of a provider.

A library is imported when its counter is created. None of them is a requirement of duramen.
"""

from __future__ import annotations

import importlib
import inspect
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import Any

import msgspec

from ...errors import InvalidInput, shown
from ...ports.world import TokenCounter
from .estimate import Estimate

IMAGE_TOKENS = 1600
"""The tokens of an image of any size: about the price of one with 1.2 megapixels."""

_TEXTS = frozenset(["text", "input_text", "output_text"])
_IMAGES = frozenset(["image", "image_url", "input_image"])
_MOST_SKIPPED = 1024
_CHOICES = (
    'give "estimate", "tiktoken:o200k_base", "tokenizers:/path/to/tokenizer.json", a function that takes a text and '
    "returns a number, or an object with `name` and `count(text)`"
)

Count = Callable[[str], int]


class TiktokenCounter:
    """Counts the exact tokens of OpenAI models. Takes the name of an encoding (`o200k_base`) or of a model (`gpt-4o`).

    tiktoken downloads an encoding once and caches it. Without a network, put it into `TIKTOKEN_CACHE_DIR` before.
    """

    def __init__(self, encoding_or_model: str) -> None:
        tiktoken = _library("tiktoken", "tiktoken")
        try:
            known = encoding_or_model in tiktoken.list_encoding_names()
            find = tiktoken.get_encoding if known else tiktoken.encoding_for_model
            self._encoding = find(encoding_or_model)
        except KeyError as error:
            raise InvalidInput(
                f"tiktoken has no encoding or model {shown(encoding_or_model)}",
                hint=f"valid: {', '.join(tiktoken.list_encoding_names())}, and the names of OpenAI models",
            ) from error
        except (OSError, ValueError) as error:
            raise InvalidInput(
                f"tiktoken could not load {shown(encoding_or_model)}: {error}",
                hint="connect to the network once, so that tiktoken can download it, or set TIKTOKEN_CACHE_DIR",
            ) from error
        self.name = f"tiktoken:{self._encoding.name}"

    def count(self, text: str) -> int:
        """The tokens of the text. Text that looks like a special token is counted as plain text."""
        return len(self._encoding.encode_ordinary(text))


class TokenizersCounter:
    """Counts the exact tokens of an open model with its `tokenizer.json`. `name` depends only on the content of the
    file, not on its path."""

    def __init__(self, path: str | Path) -> None:
        tokenizers = _library("tokenizers", "tokenizers")
        try:
            content = Path(path).read_bytes()
            self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
        except OSError as error:
            raise InvalidInput(f"cannot read {path}: {error.strerror}", hint="give the path of a file") from error
        except ValueError as error:
            raise InvalidInput(
                f"{path} is not a tokenizer: {error}", hint="give the tokenizer.json next to the weights of a model"
            ) from error
        # Some files configure truncation or padding to the model's window, which would change the count.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self.name = f"tokenizers:{blake2b(content, digest_size=6).hexdigest()}"

    def count(self, text: str) -> int:
        """The tokens of the text. Text that looks like a special token is counted as plain text."""
        return len(self._tokenizer.encode(_sound(text), add_special_tokens=False))


class ProviderCounter:
    """Counts with a function, such as the count call of a provider, and caches the last `remembered` results.

    If the call fails, the text is estimated, so that a context can always be built. `failures` counts the failed calls,
    `last_error` is the last error. After a failure the next two texts are estimated without a call, after a second
    failure in a row four, and so on, so that an unreachable server does not delay every count. Estimates are not
    cached. `count` raises `InvalidInput` if the function does not return a whole number from 0. Thread-safe.
    """

    def __init__(self, count: Count, *, name: str, remembered: int = 4096) -> None:
        if not callable(count) or inspect.iscoroutinefunction(count):
            raise InvalidInput(
                f"{shown(count)} cannot count tokens",
                hint="give a function, not async, that takes a text and returns a number",
            )
        self.name = name
        self.failures = 0
        self.last_error: Exception | None = None
        self._count = count
        self._estimate = Estimate()
        self._remembered = remembered
        self._known: OrderedDict[bytes, int] = OrderedDict()
        self._in_a_row = 0
        self._skip = 0
        self._lock = threading.Lock()

    def count(self, text: str) -> int:
        """The cached or new result of the function, or the estimate if it fails. 0 for an empty text."""
        if not text:
            return 0
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
            asking, self._skip = self._skip == 0, max(self._skip - 1, 0)
        return self._ask(key, text) if asking else self._estimate.count(text)

    def _ask(self, key: bytes, text: str) -> int:
        try:
            tokens = self._count(text)
        except Exception as error:  # noqa: BLE001 - any failure falls back to the estimate
            with self._lock:
                self.failures += 1
                self.last_error = error
                self._in_a_row += 1
                self._skip = min(2**self._in_a_row, _MOST_SKIPPED)
            return self._estimate.count(text)
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
            raise InvalidInput(
                f"{self.name} returned {shown(tokens)}, which is not a number of tokens",
                hint="return a whole number from 0",
            )
        with self._lock:
            self._in_a_row = 0
            self._known[key] = tokens
            if len(self._known) > self._remembered:
                self._known.popitem(last=False)
        return tokens


def anthropic_counter(client: Any, model: str, *, timeout: float = 5.0) -> ProviderCounter:
    """A counter that uses Anthropic's count call. `client` is an `anthropic.Anthropic`. A call fails after `timeout`
    seconds. Each text is counted as a user message of its own, which takes a few tokens more than the same text inside
    a longer message."""
    try:
        call = client.with_options(timeout=timeout, max_retries=0).messages.count_tokens
    except AttributeError:
        call = None
    if call is None or inspect.iscoroutinefunction(call):
        raise InvalidInput(
            f"{type(client).__name__} has no synchronous messages.count_tokens",
            hint="give an anthropic.Anthropic(), not an AsyncAnthropic()",
        )
    estimate = Estimate()

    def count(text: str) -> int:
        if text.isspace():
            return estimate.count(text)  # the provider refuses a blank message
        return int(call(model=model, messages=[{"role": "user", "content": _sound(text)}]).input_tokens)

    return ProviderCounter(count, name=f"anthropic:{model}")


def counter_for(counter: str | TokenCounter | Count | None = None) -> TokenCounter:
    """The counter for an argument: None or "estimate", "tiktoken:o200k_base", "tokenizers:/path/to/tokenizer.json", a
    function that counts a text, or a counter, which is returned unchanged. Raises `InvalidInput` for anything else."""
    if counter is None or counter == "estimate":
        return Estimate()
    if isinstance(counter, str):
        kind, _, which = counter.partition(":")
        if kind == "tiktoken" and which:
            return TiktokenCounter(which)
        if kind == "tokenizers" and which:
            return TokenizersCounter(which)
    elif not isinstance(counter, type):
        if callable(getattr(counter, "count", None)) and isinstance(getattr(counter, "name", None), str):
            return counter  # type: ignore[return-value]
        if callable(counter):
            return ProviderCounter(counter, name=getattr(counter, "__qualname__", type(counter).__qualname__))
    raise InvalidInput(f"`counter` cannot be {shown(counter)}", hint=_CHOICES)


def count_value(counter: TokenCounter, value: Any) -> int:
    """The tokens of a message's content: a text, a content block, or a list of blocks.

    A text block counts as its text. An image counts as `IMAGE_TOKENS`, at any depth. Everything else counts as compact
    JSON. None and an empty list count as 0. Raises `InvalidInput` for a value that cannot be written as JSON.
    """
    if isinstance(value, str):
        return counter.count(value)
    if value is None:
        return 0
    blocks = isinstance(value, list | tuple) and all(_type_of(one) is not None for one in value)
    tokens, rest = 0, []
    for one in value if blocks else [value]:
        if _type_of(one) in _TEXTS and isinstance(one.get("text"), str):
            tokens += counter.count(one["text"])
        else:
            rest.append(one)
    return tokens + _count_json(counter, rest if blocks else rest[0]) if rest else tokens


def _count_json(counter: TokenCounter, value: Any) -> int:
    text = _json(value)
    if not any(f'"type":"{kind}"' in text for kind in _IMAGES):
        return counter.count(text)
    images: list[Any] = []
    return counter.count(_json(_without_images(value, images))) + len(images) * IMAGE_TOKENS


def _without_images(value: Any, images: list[Any]) -> Any:
    if _type_of(value) in _IMAGES:
        images.append(value)
        return None
    if isinstance(value, dict):
        return {key: _without_images(one, images) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_images(one, images) for one in value]
    return value


def _type_of(value: Any) -> str | None:
    found = value.get("type") if isinstance(value, dict) else None
    return found if isinstance(found, str) else None


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"cannot count the tokens of the content: {error}", hint="give text, or plain data"
        ) from error


def _plain(value: Any) -> Any:
    """Convert a value that JSON does not support to one that it does."""
    if isinstance(value, set | frozenset):
        return sorted(value, key=_json)  # the order of a set differs between processes
    if isinstance(value, PurePath):
        return str(value)
    return msgspec.to_builtins(value, order="deterministic")


def _sound(text: str) -> str:
    """The text with lone surrogates replaced, which libraries do not accept."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _library(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InvalidInput(f"the package {package} is not installed", hint=f"pip install {package}") from error
