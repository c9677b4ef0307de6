"""Steps.

definitions.py   `step`, `task` and their options. Start here.
step_runner.py   one call of a step: intent, effect, outcome, retries; undoing.
settle.py        what happens to a step that may have happened.
step_scope.py    one attempt while it acts: output, progress, transaction, timeout.
error_data.py    errors as plain data, and back.
branches.py      concurrent branches of an async task, and how their steps are numbered.
"""
