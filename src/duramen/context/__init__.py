"""Context: what the model sees next, and how a session continues where it stopped.

services.py         the services of a handle, wired together: start here
context_builder.py  builds a context from the journal; compacts first if that is due
episodes.py         what happened in a session, one line each (episode_policy.py: how many, how long)
handoff.py          what a session passes to the one that continues it
window/             entries of a conversation, rendered and fitted into a budget
compaction/         summaries of older entries, by a model or by extraction
digests/            short digests of long tool outputs
tokens/             token counters
progress/           goal, steps and next action, and PROGRESS.md
"""
