"""The public classes for an event loop. Both APIs use this implementation. Start in duramen.py."""
