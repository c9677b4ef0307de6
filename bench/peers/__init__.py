"""Other systems that do the same work as duramen, each in its own process and in a separate environment.

Start reading at `protocol.py`: how the benchmark talks to the process of a peer.
"""
