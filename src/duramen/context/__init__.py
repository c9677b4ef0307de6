"""Context: what the model sees next, and how a session continues where it stopped.

services.py         creates the services that the sessions of a handle share: start here
context_builder.py  builds a context from the journal, and compacts first when compaction is due
section_marker.py   escapes summaries and state for a prompt, and marks what looks like instructions
turn.py             one turn of a conversation: recall, context, model call, save, proposals
session_recall.py   recall for one session, and the memory tools that a model calls
episodes.py         what happened in a session, one line each (episode_policy.py: how many, how long)
handoff.py          what a session passes to the one that continues it (continuation.py: when)
window/             entries of a conversation, rendered and fitted into a budget
compaction/         summaries of older entries, by a model or by extraction
digests/            short digests of long tool outputs
tokens/             token counters
progress/           goal, steps and next action, and PROGRESS.md
"""
