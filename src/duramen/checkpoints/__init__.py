"""Checkpoints: a session's state as of an event, stored as a manifest of shared chunks.

checkpoints.py      save, load, list, pin and drop checkpoints: start here
state.py            the state of an agent as a checkpoint, and its expiry
writer.py           stores states (write_batcher.py: several of a session in one append)
delta.py            encodes a state against what is stored already (persistent_list.py helps to compare)
manifest.py         which stored bodies a state consists of
chunks.py           chunks and manifests, sealed and read back
removal.py          removes checkpoints and the bytes that only they need
kv_items.py         key-value items with a time to live
"""
