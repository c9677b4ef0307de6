"""Durable execution: runs that continue where they stopped.

engine/   starting, claiming and executing runs; their journal, history, heartbeat and control. Start in engine.py,
          then execution.py.
steps/    steps and tasks as they are declared, and how one call of a step is executed. Start in step_runner.py.
waits/    what a task's code may call: sleep, ask, receive, child runs, shared state.
workers/  workers, queues and schedules.
"""
