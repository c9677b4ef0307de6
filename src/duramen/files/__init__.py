"""Memory as markdown files that people can read and edit.

folder/    the folder on disk: allowed paths, safe opening, atomic writes, listing, watching, git
formats/   the text of the files: memory files and indexes of duramen, and the formats of other programs
sync/      keeps folder and store equal; the only part that uses a store, a journal and an event loop

Start with sync/folder_sync.py, which does one complete sync.
"""
