"""Executes runs.

engine.py        starts, claims and executes runs, and waits for their results. Start here.
execution.py     one execution, from the claim to the end or the next wait; runs the branches of async tasks.
run_context.py   the state of a run during an execution: the next step, its waits, the steps to undo.
run_journal.py   writes the events of a run.
history.py       computes from the events which steps are done, failed, waiting or in doubt.
heartbeat.py     renews leases and syncs outcomes.
run_control.py   operations from outside: signals, answers, verdicts, cancellation, forks and replays.
run_info.py      the public view of a run, and the changes to its row.
run_listing.py   lists of runs.
run_outline.py   the steps of a successful run, for procedures.
owner.py         identifies the process that holds a lease, and tells whether it is alive.
control_flow.py  exceptions that leave a task's code without an error.
"""
