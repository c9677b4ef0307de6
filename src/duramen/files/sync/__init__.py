"""Memories and files kept the same: what the store knows is written, what people changed is taken in.

leafing    a memory as a leaf, and back
manifest   what the last sync left, so that the next one looks only at what changed
reader      files to store: edits, new files, deleted ones
writer     store to files: leaves, indexes, daily logs
engine     one sync
"""
