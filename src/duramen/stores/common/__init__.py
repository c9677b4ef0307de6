"""Code that the stores share: group commit, row formats, checksums, the integrity check, SQL files."""
