"""Other systems that do the same work as duramen, each in its own process and in a separate environment.

Start in `protocol.py`, which describes how the benchmark communicates with the process of a peer.
"""
