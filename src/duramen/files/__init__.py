"""Memory as files that people can read and edit: where they may lie, what stands in them, and how they are written.

paths      which paths there are: one function decides, and touches no disk
boundary   the folder: every file is opened here
guarding   opening what is beside an open folder, never through a link
drafts     temporary files, and what killed writers leave of them
walking    what is in the folder
leaves     one memory as one markdown file (its front matter, its lists: frontmatter, items)
indexes    the lists of leaves
naming     file names from titles
formats/   other people's files
git        commits, for those who want them

Nothing here knows of a store, a journal or an event loop.
"""
