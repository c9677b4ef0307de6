"""Adapters for other embedders: any function, a server with OpenAI's API, and sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..errors import EmbedderFailed, InvalidInput, shown
from ..models.openai import openai_client, openai_sdk
from ..models.provider import Provider, encodable
from ..ports import EmbedderIdentity, Vectors

if TYPE_CHECKING:
    import openai

__all__ = ["CallableEmbedder", "OpenAIEmbedder", "SentenceTransformersEmbedder"]

_PROBE = "duramen"
_LONGEST_ANSWER = 64 * 1024 * 1024


class CallableEmbedder:
    """Any function that takes a list of texts and returns a vector for each. A vector must not be all zeros.

    A store identifies the embedder by `name`, `dims` and `checksum`. Change the name or the checksum if the function
    returns different vectors. Without `dims`, the function is called once to find the number of dimensions. The
    function must be thread-safe.
    """

    def __init__(
        self, function: Callable[[list[str]], Any], *, name: str, dims: int | None = None, checksum: str = ""
    ) -> None:
        if not name or (dims is not None and dims < 1):
            raise InvalidInput(
                "an embedder needs a name and at least one dimension", hint='give a name, such as name="mine-2"'
            )
        self.name = name
        self._function = function
        self._checksum = checksum
        if dims is not None:
            self.__dict__["dims"] = dims

    @cached_property
    def dims(self) -> int:
        """The number of dimensions. Raises `EmbedderFailed` if it must call the function and that fails."""
        return int(self._rows([_PROBE]).shape[1])

    @cached_property
    def identity(self) -> EmbedderIdentity:
        """The identity by which a store recognizes this embedder. Raises `EmbedderFailed`, as `dims` does."""
        return EmbedderIdentity(self.name, self.dims, checksum=self._checksum)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row of length 1 for each text, in order. Raises `EmbedderFailed` if the function raises any error or
        returns invalid vectors."""
        check_texts(texts)
        if not texts:
            return np.empty((0, self.dims), dtype=np.float32)
        rows = self._rows(list(texts))
        if rows.shape[1] != self.dims:
            raise EmbedderFailed(self.name, f"it returned {rows.shape[1]} dimensions instead of {self.dims}")
        return rows

    def _rows(self, texts: list[str]) -> Vectors:
        try:
            rows = np.asarray(self._function(texts), dtype=np.float32)
        except EmbedderFailed:
            raise
        except Exception as error:  # the user's code may raise anything, and recall must continue with words alone
            raise EmbedderFailed(self.name, str(error) or type(error).__name__) from error
        if rows.ndim != 2 or len(rows) != len(texts) or not rows.shape[1]:
            shape = " x ".join(map(str, rows.shape)) or "one number"
            raise EmbedderFailed(self.name, f"it returned {shape} instead of a vector for each of {len(texts)} texts")
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        if not np.isfinite(lengths).all() or not lengths.all():
            raise EmbedderFailed(self.name, "it returned a vector that is all zeros or not finite")
        unit: Vectors = rows / lengths
        return unit

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


class OpenAIEmbedder(CallableEmbedder):
    """A model behind the `openai` SDK, at OpenAI or on your own server. Needs the extra `openai`.

    The key is `api_key` or `OPENAI_API_KEY`. Your own server at `base_url` needs no key. `client` is an SDK client to
    use instead of a new one. A request has at most `batch` texts and takes at most `timeout` seconds, including its
    retry. A server computes texts together and may round differently each time, so the same text gives nearly the same
    vector.
    """

    def __init__(
        self,
        model: str,
        *,
        client: openai.OpenAI | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        dims: int | None = None,
        timeout: float = 30.0,
        batch: int = 64,
    ) -> None:
        super().__init__(self._ask_all, name=f"openai:{model}", dims=dims)
        if batch < 1:
            raise InvalidInput(f"`batch` cannot be {shown(batch)}", hint="give batch=1 or more")
        sdk = openai_sdk()
        self._model, self._batch = model, batch
        self._client: Any = (client or openai_client(sdk, base_url, api_key)).with_options(max_retries=0)
        self._provider = Provider(
            self.name, sdk, self._client, timeout, failure=EmbedderFailed, longest_answer=_LONGEST_ANSWER
        )

    def _ask_all(self, texts: list[str]) -> list[list[float]]:
        starts = range(0, len(texts), self._batch)
        return [row for start in starts for row in self._ask(texts[start : start + self._batch])]

    def _ask(self, texts: list[str]) -> list[list[float]]:
        # Servers refuse an empty text.
        wanted = [encodable(text) or " " for text in texts]
        create = self._client.embeddings.with_streaming_response.create
        answer = self._provider.request(
            lambda timeout: create(model=self._model, input=wanted, encoding_format="float", timeout=timeout), _Answer
        )
        # A server may answer out of order. Each row has the index of its text.
        rows = sorted(answer.data, key=lambda row: row.index)
        if [row.index for row in rows] != list(range(len(texts))):
            raise EmbedderFailed(
                self.name,
                f"it returned {len(rows)} vectors for {len(texts)} texts",
                hint="check which server listens at base_url",
            )
        return [row.embedding for row in rows]


class _Row(msgspec.Struct, frozen=True):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct, frozen=True):
    data: list[_Row]


class SentenceTransformersEmbedder(CallableEmbedder):
    """A sentence-transformers model, given as a loaded model or by name. A name needs the package
    sentence-transformers, which installs torch."""

    def __init__(self, model: Any, *, name: str | None = None, checksum: str = "") -> None:
        if isinstance(model, str):
            name = name or model
            model = _loaded(model)
        if name is None:
            raise InvalidInput(
                "a loaded model needs a name", hint='use SentenceTransformersEmbedder(model, name="...")'
            )

        # Encode one text at a time: padding changes the last bits, and the same text must give the same vector.
        def one_by_one(texts: list[str]) -> list[Any]:
            return [model.encode([text], convert_to_numpy=True, show_progress_bar=False)[0] for text in texts]

        super().__init__(one_by_one, name=f"sentence-transformers:{name}", checksum=checksum)


def _loaded(name: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise InvalidInput(
            "the package sentence-transformers is not installed", hint="run `pip install sentence-transformers`"
        ) from None
    try:
        return SentenceTransformer(name)
    except Exception as error:  # unknown model, no network, damaged file: the package has no common error class
        raise EmbedderFailed(f"sentence-transformers:{name}", str(error) or type(error).__name__) from error


def check_texts(texts: Sequence[str]) -> None:
    """Raise `InvalidInput` unless they are a sequence of texts."""
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise InvalidInput("an embedder takes a sequence of texts", hint="use embed([text]) for a single text")
