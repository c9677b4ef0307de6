"""Helpers for tests of duramen and of programs that use it.

`store_contract` is the test suite of every store; the other contracts are its parts. `clock`, `crash` and `power_loss`
control time, kills and power cuts. `postgres` and `local_model` start real servers.
"""
