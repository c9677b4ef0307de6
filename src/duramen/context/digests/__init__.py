"""Short digests that replace long tool outputs. Start in digest.py."""
