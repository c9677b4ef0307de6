"""Commands about runs: list, show, act on, resume, replay, and the worker."""
