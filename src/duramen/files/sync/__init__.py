"""Keeps memory files and the store equal.

folder_sync.py      one complete sync: read edits, write changed memories, commit: start here
folder_reader.py    files to store: edited, new and deleted files
folder_writer.py    store to files: memory files
index_pages.py      indexes and daily logs
runtime_files.py    pending proposals and open runs as files that are never read back
memory_mapping.py   converts a memory to a memory file and back, and gives its path
known_memories.py   looks up stored memories
journal_edit.py     journals the edits of a person
memory_edit.py      one memory as text, for `dm.memory.file_text()` and `edit()`
sync_manifest.py    what the last sync saw and wrote
manifest_file.py    the manifest on disk
state_folder.py     the folder of the manifest, and the lock of a sync
intent_file.py      what a sync is about to write, for the one after a killed sync
git_commits.py      commits the changes to git
import_export.py    imports files of other programs, and exports to their formats
report.py           the result of a sync
"""
