"""The command line: look at a journal without being able to change it."""
