"""Workers, queues and schedules. Start in worker.py."""
