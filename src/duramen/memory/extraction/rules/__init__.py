"""Rules that decide what of a finished turn is kept, each decision with its reason.

Start in `rule_set.py`, which applies all of them: `facts.py`, `recipes.py` (procedures described step by step), `commands.py`
and `denials.py`. They read a `TurnRecord` (`turns.py`), which `turn_reader.py` loads from the journal, sentence by
sentence (`sentences.py`), and return a `Finding`. `model_check.py` applies the same standards to a model's candidates.
"""
