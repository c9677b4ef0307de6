"""Search: from a request to ranked memories.

Start in `search.py`. It ranks a small corpus whole. For a large one, it takes candidates from the first source that has
any: `retrieval.py` (the store searches; `corpus_stats.py` estimates statistics of the corpus) or `candidates.py` (the
indexes in memory, by vector codes). `rank.py` scores them by words (`bm25.py`), meaning, neighbours, speaker and time.
Each part has a weight (`weights.py`) and is measured against the statistics in `measures.py`. `selection.py` has the
records that these modules share. `neighbours.py` finds what memories state about a name.
"""
