"""Helpers for tests of duramen, of stores and of programs that use duramen.

store_contract.py    the test suite that every store must pass. Start here to write a store; the other *_contract.py
                     files are parts of it.
both_apis.py         runs a test on the sync and on the async API.
clock.py             a clock and ids under the control of a test.
crash.py             kills the process at a named crash point.
power_loss.py        a disk for SQLite that can lose power.
postgres.py          starts a real PostgreSQL server.
local_model.py       starts a real language model.
"""
