"""The public classes for an event loop, and the one implementation behind both APIs. Start in duramen.py."""
