"""Code that the stores share: group commit, row formats, checksums, SQL files."""
