"""The index: what is searched of memories.

Start in `index_worker.py`, the background thread. It lets `index_builder.py` make an index entry (`index_entry.py`: term
statistics and a vector) for each new memory, and `segment_writer.py` pack entries into segments (`segment_format.py`).
`index_codec.py` seals and opens both. For a search, `index_cache.py` loads them into one `audience_index.py` per
audience, which is made of `columns.py` and `postings.py`. `workspace_embedder.py` loads the embedder and checks that it
made the stored vectors.
"""
