"""Compaction: summaries that replace older entries, by a model or by extraction.

compaction.py   what is summarised, when, and by whom: start here
extract.py      a summary without a model, from lines.py, scores.py and sentences.py
trim.py         text made safe and short
"""
