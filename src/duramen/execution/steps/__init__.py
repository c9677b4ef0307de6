"""Steps and tasks.

definitions.py   `step`, `task` and their options. Start here.
step_runner.py   executes one step call: intent, effect, outcome, retries; also undoes steps.
settle.py        resolves a step in doubt.
step_scope.py    one attempt of a step: output, progress, transaction, timeout.
error_data.py    converts errors to plain data and back.
branches.py      the concurrent branches of an async task, and how their steps are numbered.
"""
