"""Commands about runs: list, show, change, resume, replay, and the worker. Start reading at `commands.py`."""
