"""A session's progress: goal, completed steps, blocker, next action, context.

record.py         the record and its rules, without I/O: start here
progress_log.py   stores the record in the journal and syncs it with PROGRESS.md
progress_file.py  converts a record to the text of PROGRESS.md and back, and reads and writes the file
git_commit.py     commits PROGRESS.md to git
"""
