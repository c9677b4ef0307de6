"""What a task may call: sleep, ask, receive, children, shared state. Start in waits.py."""
