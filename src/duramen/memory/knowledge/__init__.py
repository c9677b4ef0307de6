"""What is done with memories, beyond storing and finding them.

Start in `write_back.py`: after a turn it keeps what the rules in `extraction/rules` found, and lets `model_reader.py` ask
a model for more. `promotion.py` stores both. What concerns a person is only proposed (`proposals.py`); `persona.py` holds
what was accepted for profile and persona. `procedures.py` keeps versioned steps with their outcomes (`outcomes.py`).
`consolidation.py` merges duplicates; `contradictions.py` finds and `resolution.py` resolves memories that disagree.
`policies.py` says when a memory is stale.
"""
