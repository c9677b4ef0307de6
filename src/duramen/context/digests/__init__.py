"""Digests: a few lines that replace a long tool output.

digest.py       recognises the output and builds the digest: start here
sketch.py       the pieces of a digest, fitted into a limit
findings.py     exit status, counts and errors in a program's output
documents.py, tables.py, data_shapes.py, binary.py    known formats
long_text.py    fast access to the lines of a long text
"""
