"""Rules that decide what to keep from a finished turn, with a reason for each decision.

Start in `rule_set.py`, which applies all rules: `facts.py`, `recipes.py` (procedures described step by step),
`commands.py` and `denials.py`. `turn_reader.py` loads a `TurnRecord` (`turns.py`) from the journal. The rules read its
sentences (`sentences.py`) and return `Finding`s. `model_check.py` applies the same standards to a model's candidates.
"""
