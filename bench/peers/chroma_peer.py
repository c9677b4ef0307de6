"""Chroma: one collection per conversation, in its own files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .minilm import MODELS, embedded, exported
from .retrieval_system import LIMIT, RetrievalSystem, run_peer


class Chroma(RetrievalSystem):
    """Chroma's persistent client."""

    def open(self, folder: str) -> str:
        import chromadb  # type: ignore[import-not-found]
        from chromadb.config import Settings  # type: ignore[import-not-found]

        self._client: Any = chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))
        self._collections: dict[str, Any] = {}
        self._function = self._default_function() if self.own_runtime else None
        return str(chromadb.__version__)

    def _default_function(self) -> Any:
        """Chroma's default embedding function. It is created once, because by default each call loads the model
        again."""
        import httpx
        from chromadb.utils.embedding_functions import ONNXMiniLM_L6_V2  # type: ignore[import-not-found]

        ONNXMiniLM_L6_V2.DOWNLOAD_PATH = MODELS / "chroma"
        function = ONNXMiniLM_L6_V2()
        try:
            function._download_model_if_not_exists()
        except (httpx.HTTPError, OSError, ValueError) as error:
            ONNXMiniLM_L6_V2.DOWNLOAD_PATH = exported()
            self.remarks.append(f"model.onnx could not be downloaded ({error}); exported it from the same weights")
        return function

    def embed(self, text: str) -> Sequence[float]:
        vector: list[float] = self._function([text])[0].tolist() if self._function else embedded([text])[0]
        return vector

    def add_texts(self, name: str, texts: Sequence[str]) -> None:
        space = {"hnsw:space": "cosine"}
        self._collections[name] = collection = self._client.create_collection(
            name, embedding_function=self._function, metadata=space
        )
        for place, text in enumerate(texts):
            collection.add(
                ids=[str(place)], documents=[text], **({} if self._function else {"embeddings": embedded([text])})
            )

    def search(self, name: str, question: str) -> Sequence[int]:
        asked = {"query_texts": [question]} if self._function else {"query_embeddings": embedded([question])}
        found = self._collections[name].query(n_results=LIMIT, **asked)
        return [int(id) for id in found["ids"][0]]


if __name__ == "__main__":
    run_peer(Chroma())
