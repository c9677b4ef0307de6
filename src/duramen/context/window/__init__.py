"""The context window: which entries of a conversation the model sees. Start in working_memory.py."""
