"""Search indexes over memories: entries, vectors, segments, the in-memory cache. Start in index_cache.py."""
