"""Extraction: reads what a text states, and decides what is worth remembering. Nothing here writes to the store.

Start with the module that makes the decision you look for:

- `admission.py`: sentences of one user message, by patterns. It admits what people say about themselves or ask to be
  remembered. `session.turn` proposes the result to the user.
- `rules/`: a finished turn and the turns before it. The rules find facts, procedures that worked, commands, and
  repeated denials. Start in `rules/rule_set.py`. `knowledge/write_back.py` stores what they keep.
- `rules/model_check.py`: candidates that a model found in turns. Each needs the user's own words as evidence.
- `extract.py`: a text on request (`dm.memory.extract`), by a model whose answer is checked, or by `admission.py`.

The other modules read one kind of information each: `words.py` (terms), `names.py`, `dates.py`, `entities.py` with
`relations.py` (who is related to whom), `claims.py` with `places.py` (statements that can contradict each other),
`expiry.py` (how long a statement holds). `json_question.py` asks a model for JSON.
"""
