"""A session's progress: goal, completed steps, blocker, next action, context.

record         the record and its rules, without I/O; start here
progress_log   the record in the journal, and the sync with PROGRESS.md
progress_file  PROGRESS.md: from a record to text and back, and the file itself
git_commit     commits of the file
"""
