"""The public classes.

Start in _async/duramen.py. `open.py` opens a store from an address and settings. `options.py` holds the keyword
options. _async/ is written by hand; tools/generate_sync.py writes _sync/ from it.
"""
