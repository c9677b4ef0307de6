"""Search: retrieval of candidates and one ranking over words, meaning and time. Start in search.py."""
