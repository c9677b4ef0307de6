"""The catalog: which memories exist, their texts and their history. Start in catalog.py."""
