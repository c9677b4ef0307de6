"""Keeps memory files and the store equal. Start with folder_sync.py: one sync from beginning to end.

folder_sync      one sync: read what people changed, write what the store knows, commit
folder_reader    files to store: edited, new and deleted files
folder_writer    store to files: memory files
index_pages      indexes and daily logs
runtime_files    pending proposals and open runs as volatile files
memory_mapping   a memory as a memory file, its path, and back
known_memories   looks up stored memories
journal_edit     journals what a person wrote
memory_edit      one memory as text, for `dm.memory.file_text()` and `edit()`
sync_manifest    what the last sync saw and wrote
manifest_file    the manifest on disk, and the lock of the folder
git_commits      changes as commits
import_export    files of other programs into the store, and back
report           what a sync did
"""
