"""The folder that holds memory files. Start with boundary.py: every file is opened there.

paths       which paths the layout allows: one function decides, without touching the disk
names       file and folder names from titles and workspaces
boundary    `Folder`: reads, writes, removes and walks files
safe_open   opens files relative to an open folder, never through a link
temp_file   temporary files, and the sweep of those that killed writers left
walk        lists all files with their signatures
watcher     reports whether anything changed, for a watch
git         commits
"""
