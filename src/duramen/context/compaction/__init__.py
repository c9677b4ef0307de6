"""Compaction: summaries that replace older entries, by a model or by extraction.

compaction.py   which entries are summarised, when, and by what: start here
extract.py      a summary without a model, built with lines.py, scores.py and sentences.py
trim.py         removes control characters and shortens text to a token limit
"""
