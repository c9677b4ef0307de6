"""Token counters: exact ones by library or provider (counters.py), and an estimate that needs neither (estimate.py)."""
