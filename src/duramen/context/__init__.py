"""Working memory: what the model sees next, and how a session goes on from where it stood."""
