"""The public classes: what a user calls. Start in _async/duramen.py; _sync/ mirrors it for blocking code."""
