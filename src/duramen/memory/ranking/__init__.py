"""Search: from a request to ranked memories.

Start in `search.py`. It takes candidates from the first source that has any: `retrieval.py` (the store searches, with
`corpus_stats.py` for what it cannot see) or `candidates.py` (the indexes in memory, by vector codes); small corpora are
ranked whole. `rank.py` scores them: words (`bm25.py`), meaning, neighbours, speaker, time, each with its weight from
`weights.py`, measured against the statistics in `measures.py`. `selection.py` has the records that pass between them.
`neighbours.py` answers what memories state about a name.
"""
