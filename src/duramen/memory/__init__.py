"""Long-term memory: stores memories, searches them, and keeps them correct.

Start in `memory_service.py`, which creates every part and connects them. A folder imports only from folders below it
in this list:

- `knowledge/`: procedures, proposals, consolidation, write-back of finished turns.
- `ranking/`: search, from the request to the ranked result.
- `index/`: index entries in the store, indexes in memory, vectors.
- `catalog/`: the memories themselves: events, rows and texts.
- `extraction/`: reads text without a store: words, names, dates, relations, facts worth remembering.

`recollection.py` turns results into one text for a prompt, and `tools.py` describes memory as tools for a model.
`injection.py` finds text that looks like instructions (`injection_patterns.py`: by which patterns; `folded_text.py`:
how texts are compared). `delimiters.py` keeps text inside its element.
"""
