"""Commands about memories, proposals and the embedding model."""
