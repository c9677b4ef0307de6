"""Long-term memory: what a workspace remembers, how it is found, and how it is kept right.

Start in `memory_service.py`, which creates every part and connects them. Imports between the folders point down:

- `knowledge/`: what is done with memories: procedures, proposals, consolidation, write-back of finished turns.
- `ranking/`: a search from the request to the ranked result.
- `index/`: what is searched: index entries in the store, indexes in memory, vectors.
- `catalog/`: the memories themselves: events, rows and texts.
- `extraction/`: reading text without a store: words, names, dates, relations, facts worth remembering.

`recollection.py` turns results into one text for a prompt, `tools.py` describes memory as tools for a model, and
`injection.py` finds text that looks like instructions.
"""
