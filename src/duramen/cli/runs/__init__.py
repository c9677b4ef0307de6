"""Commands about runs: list, show, change, resume and replay them, and the worker. Start reading at `commands.py`."""
