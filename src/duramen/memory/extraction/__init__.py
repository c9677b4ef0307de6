"""What a text states: rule-based extraction, model extraction, entities, dates. Start in extract.py."""
