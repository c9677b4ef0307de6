"""Memory as markdown files that people can read and edit.

folder/    the folder on disk: allowed paths, safe opening, atomic writes, walking, watching, git
formats/   the text of the files: our own memory files and indexes, and the formats of other programs
sync/      keeps folder and store equal; the only part that knows a store, a journal and an event loop

Start with sync/folder_sync.py, which does one sync from beginning to end.
"""
