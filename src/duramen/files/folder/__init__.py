"""The folder that contains memory files.

boundary.py    `Folder`: reads, writes, removes and lists files; every file is opened here: start here
paths.py       which paths the layout allows; one function decides, without access to the disk
names.py       file and folder names from titles and workspaces
safe_open.py   opens files relative to an open folder, never through a link
temp_file.py   temporary files, and the removal of those that killed writers left
walk.py        lists all files with their signatures
watcher.py     reports whether anything changed, for `files.watch()`
git.py         commits
"""
