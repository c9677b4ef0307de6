"""Knowledge: learns from finished turns, and keeps memories correct over time.

Start in `write_back.py`. After a turn it stores what the rules in `extraction/rules` keep, and calls `model_reader.py`,
which asks a model for more. `promotion.py` has what both need to store findings. Statements about a person are only
proposed (`proposals.py`). `persona.py` holds the accepted profile fields and the persona. `procedures.py` stores
versioned steps with their outcomes (`outcomes.py`). `consolidation.py` merges duplicates. `contradictions.py` finds
memories that disagree, and `resolution.py` resolves them. `policies.py` decides when a memory is stale.
"""
