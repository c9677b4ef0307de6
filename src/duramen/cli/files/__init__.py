"""Commands that sync, import and export memory files."""
