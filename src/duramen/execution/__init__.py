"""Runs that go on where they stopped: tasks, steps, doubt, waits, workers."""
