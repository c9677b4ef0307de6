"""The folder that holds memory files: paths, safe opening, atomic writes, watching, git. Start in boundary.py."""
