"""Digests: a few lines that replace a long tool output.

digest.py       recognises the output and builds the digest: start here
sketch.py       the pieces of a digest, and how they are fitted into a token limit
findings.py     exit status, counts and errors in the output of a program
documents.py, tables.py, data_shapes.py, binary.py    known formats
long_text.py    fast access to the lines of a long text
"""
