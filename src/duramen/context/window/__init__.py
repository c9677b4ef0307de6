"""The context window: which entries of a conversation the model sees, and in which form.

conversation.py         the events of a conversation and the entries they form: start here
conversation_reader.py  reads those events, those of forked sessions included
entries.py              renders an entry, whole or masked
fit.py                  fits rendered entries into the budget
context.py              the result, as Anthropic and OpenAI take it
content_blocks.py       content blocks and plain data as text
fetch.py                the whole of what was masked
settings.py             `Window`
"""
