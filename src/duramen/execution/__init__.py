"""Durable execution: runs that continue where they stopped.

engine/   starts, claims and executes runs; their journal, history, heartbeat and control. Start in engine.py,
          then execution.py.
steps/    the declaration of steps and tasks, and the execution of one step call. Start in step_runner.py.
waits/    the functions that a task may call: sleep, ask, receive, child runs, shared state.
workers/  workers, queues and schedules.
"""
