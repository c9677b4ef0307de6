"""Commands about the journal: sessions, show (in timeline.py), tail, verify and export."""
