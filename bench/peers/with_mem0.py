"""mem0 without a language model (`infer=False`), on its default vector store: Qdrant in its own files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from .retrieving import LIMIT, Retrieval, embedded, serve


class Embedding:
    """Our embedder as mem0 asks for one."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """The vector of a text."""
        return embedded([text])[0]

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[list[float]]:
        """Of several."""
        return embedded(texts)


class Mem0(Retrieval):
    """A user for each conversation."""

    def open(self, folder: str) -> str:
        os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": folder, "OPENAI_API_KEY": "not used"}
        from mem0 import Memory  # type: ignore[import-not-found]

        store = {"path": f"{folder}/qdrant", "on_disk": True, "embedding_model_dims": 384}
        config = {"vector_store": {"provider": "qdrant", "config": store}, "history_db_path": f"{folder}/history.db"}
        self._memory: Any = Memory.from_config(config)
        self._memory.embedding_model = Embedding(self._memory.embedding_model.config)
        return version("mem0ai")

    def take_in(self, name: str, texts: Sequence[str]) -> None:
        for place, text in enumerate(texts):
            self._memory.add(text, user_id=name, infer=False, metadata={"place": place})

    def search(self, name: str, question: str) -> Sequence[int]:
        found = self._memory.search(question, filters={"user_id": name}, top_k=LIMIT, threshold=0.0)
        return [int(one["metadata"]["place"]) for one in found["results"]]


if __name__ == "__main__":
    serve(Mem0())
