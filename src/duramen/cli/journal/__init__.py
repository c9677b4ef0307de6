"""Commands about the journal: sessions, show, tail, verify, export."""
