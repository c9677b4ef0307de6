"""The context window: which entries of a conversation the model sees, and in which form.

conversation.py         the events of a conversation and the entries they form: start here
conversation_reader.py  reads those events, also from the sessions that a session was forked from
entries.py              renders an entry, whole or masked
fit.py                  fits rendered entries into the budget
context.py              the result, in the formats of Anthropic and OpenAI
content_blocks.py       content blocks and plain data as text
fetch.py                returns the full text of a masked entry
settings.py             the settings, `Window`
"""
