"""mem0 without a language model (`infer=False`), with its default vector store: Qdrant in local files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .minilm import embedded, folder
from .protocol import SPACY_MODEL
from .retrieval_system import LIMIT, RetrievalSystem, run_peer


class Embedding:
    """duramen's embedder with the interface of mem0."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """The vector of a text."""
        return embedded([text])[0]

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[list[float]]:
        """The vectors of several texts."""
        return embedded(texts)


class Mem0(RetrievalSystem):
    """mem0 with one user per conversation, embeddings by sentence-transformers and keyword search."""

    def open(self, place: str) -> str:
        os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": place, "OPENAI_API_KEY": "not used"}
        from mem0 import Memory  # type: ignore[import-not-found]

        store = {"path": f"{place}/qdrant", "on_disk": True, "embedding_model_dims": 384}
        config: dict[str, Any] = {
            "vector_store": {"provider": "qdrant", "config": store},
            "history_db_path": f"{place}/history.db",
        }
        if self.own_runtime:
            os.environ["HF_HUB_OFFLINE"] = "1"  # the model is in a folder
            model = {"model": str(folder()), "embedding_dims": 384}
            config["embedder"] = {"provider": "huggingface", "config": model}
        self._memory: Any = Memory.from_config(config)
        if not self.own_runtime:
            self._memory.embedding_model = Embedding(self._memory.embedding_model.config)
        self._by_keywords(Path(place))
        self._by_entities()
        return version("mem0ai")

    def _by_keywords(self, place: Path) -> None:
        """Set the encoder for keyword search. mem0's own one downloads stop words from the hub at every start."""
        from fastembed import SparseTextEmbedding  # type: ignore[import-not-found]
        from spacy.lang.en.stop_words import STOP_WORDS  # type: ignore[import-not-found]

        encoder = SparseTextEmbedding("Qdrant/bm25", specific_model_path=str(place), stopwords=set(STOP_WORDS))
        self._memory.vector_store._bm25_encoder = encoder
        assert self._memory.vector_store._has_bm25_slot
        self.remarks.append("keyword search is on, with spaCy's English stop words")

    def _by_entities(self) -> None:
        """Load the spaCy pipeline for lemmas and entities, from a folder or by mem0's own download. Without it, mem0
        works without lemmas and entities."""
        from mem0.utils import spacy_models  # type: ignore[import-not-found]

        if place := os.environ.get(SPACY_MODEL):
            import spacy  # type: ignore[import-not-found]

            spacy_models._nlp_full = spacy.load(place)
            spacy_models._nlp_lemma = spacy.load(place, disable=["ner", "parser"])  # as mem0 does
            self.remarks.append(f"lemmas and entities by {spacy_models._nlp_full.meta['name']}")
            return
        with suppress(SystemExit):  # spaCy calls sys.exit() if its download with pip fails
            if spacy_models.get_nlp_full() and spacy_models.get_nlp_lemma():
                return
        spacy_models._load_failed_full = spacy_models._load_failed_lemma = True
        self.remarks.append("en_core_web_sm is not available: mem0 uses no lemmas and entities, which makes it faster")

    def embed(self, text: str) -> Sequence[float]:
        vector: list[float] = self._memory.embedding_model.embed(text, "search")
        return vector

    def add_texts(self, name: str, texts: Sequence[str]) -> None:
        for place, text in enumerate(texts):
            self._memory.add(text, user_id=name, infer=False, metadata={"place": place})

    def search(self, name: str, question: str) -> Sequence[int]:
        found = self._memory.search(question, filters={"user_id": name}, top_k=LIMIT, threshold=0.0)
        return [int(one["metadata"]["place"]) for one in found["results"]]


if __name__ == "__main__":
    run_peer(Mem0())
