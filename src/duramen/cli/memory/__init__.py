"""Commands about memories, proposals and the embedding model. Start reading at `commands.py`."""
