"""The command line: look into a journal, go on with its runs, and tell them what they wait for."""
