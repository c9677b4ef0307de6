"""The index: the term statistics and vectors by which memories are searched.

Start in `index_worker.py`, the background thread. It calls `index_builder.py`, which makes an index entry
(`index_entry.py`: term statistics and a vector) for each new memory, and `segment_writer.py`, which packs entries into
segments (`segment_format.py`). `index_codec.py` seals and opens both. For a search, `index_cache.py` loads them into
one `AudienceIndex` per audience (`audience_index.py`), which consists of columns (`columns.py`) and postings
(`postings.py`). `workspace_embedder.py` loads the embedder and checks that it made the stored vectors.
"""
