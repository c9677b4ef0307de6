"""Commands about the journal: sessions, show, tail, verify, export. One module each; `timeline` is `show`."""
