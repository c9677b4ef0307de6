"""How a run is executed.

engine.py        starts, claims and executes runs, and waits for their results. Start here.
execution.py     one execution, from the claim to the end or the next wait; runs the branches of async tasks.
run_context.py   the run while it is executed: which step comes next, what it waits for, what there is to undo.
run_journal.py   writes the events of the run, intents and outcomes.
history.py       what the events say: which steps are done, failed, waiting or in doubt.
heartbeat.py     renews leases and syncs outcomes.
run_control.py   signals, answers, verdicts, cancellation, forks and replays, from outside.
run_info.py      runs as people see them, and the changes of their rows.
run_outline.py   the steps of a run that succeeded, for procedures.
owner.py         who holds a lease, and whether that process is alive.
"""
