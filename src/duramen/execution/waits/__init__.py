"""The functions that a task may call: sleep, ask, receive, child runs, checkpointed state. Start in waits.py."""
