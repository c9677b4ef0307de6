"""Summaries that replace older entries, by a model or by extraction. Start in compaction.py."""
