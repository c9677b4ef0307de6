"""Reading text: what it states, and what of it is worth remembering. Nothing here writes.

Who decides what:

- `admission.py` decides about one message of a user, sentence by sentence, with plain patterns: what people say of
  themselves or ask to be remembered. `session.turn` proposes it to them.
- `rules/` decides about a finished turn, with the turns before it: facts, procedures that worked, commands, repeated
  denials. Start in `rules/rule_set.py`. `knowledge/write_back.py` stores what they keep.
- `rules/model_check.py` decides about what a model found in turns: each candidate needs the user's own words.
- `extract.py` reads a text on request (`dm.memory.extract`): with a model whose answer is checked, or by admission.

The rest reads single things: `words.py` (terms), `names.py`, `dates.py`, `entities.py` with `relations.py` (who is related
to whom), `claims.py` with `places.py` (what can contradict), `expiry.py` (how long a statement holds).
`json_question.py` asks a model for JSON.
"""
