"""Checkpoints: a session's state as of an event, stored as a manifest of shared chunks. Start in checkpoints.py."""
