"""Memory as files that people can read and edit: where they may lie, what stands in them, and how they are written.

boundary   the folder; every path is decided here, every file is opened here
paths      which paths there are: pure
leaves     one memory as one markdown file
indexes    the lists of leaves
naming     file names from titles
formats/   other people's files
git        commits, for those who want them

Nothing here knows of a store, a journal or an event loop.
"""
