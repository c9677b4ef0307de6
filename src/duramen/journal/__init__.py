"""Events, codec, hash chain, sealing and redaction. This package does no I/O of its own: it uses `duramen.ports`.

Start with `journal` (append, follow, fork, erase) and `reader` (verified reads).
"""
