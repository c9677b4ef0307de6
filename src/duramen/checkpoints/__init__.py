"""Checkpoints: a session's state as of an event, stored as a manifest of shared chunks.

- checkpoints.py: save, load, list, pin and drop checkpoints. Start here.
- state.py: the state of an agent as a checkpoint, and its expiry.
- writer.py: stores states. write_batcher.py batches those of one session into one append.
- delta.py: encodes a state against what is already stored. persistent_list.py makes comparisons fast.
- manifest.py: which stored bodies a state consists of.
- chunks.py: seals and reads chunks and manifests.
- removal.py: removes checkpoints and the bytes that only they need.
- kv_items.py: key-value items with a time to live.
"""
