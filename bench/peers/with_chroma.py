"""Chroma: a collection for each conversation, in its own files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .retrieving import LIMIT, Retrieval, embedded, serve


class Chroma(Retrieval):
    """Its persistent client, with the vectors given."""

    def open(self, folder: str) -> str:
        import chromadb  # type: ignore[import-not-found]
        from chromadb.config import Settings  # type: ignore[import-not-found]

        self._client: Any = chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))
        self._kept: dict[str, Any] = {}
        return str(chromadb.__version__)

    def take_in(self, name: str, texts: Sequence[str]) -> None:
        kept = self._client.create_collection(name, embedding_function=None, metadata={"hnsw:space": "cosine"})
        self._kept[name] = kept
        for place, text in enumerate(texts):
            kept.add(ids=[str(place)], documents=[text], embeddings=embedded([text]))

    def search(self, name: str, question: str) -> Sequence[int]:
        found = self._kept[name].query(query_embeddings=embedded([question]), n_results=LIMIT)
        return [int(id) for id in found["ids"][0]]


if __name__ == "__main__":
    serve(Chroma())
