"""The progress record and its PROGRESS.md file. Start in record.py, then progress_log.py."""
