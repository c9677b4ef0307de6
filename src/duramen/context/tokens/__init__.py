"""Token counters.

counters.py     exact counters that use a library or a provider, and `counter_for`: start here
estimate.py     an estimate that needs neither, with the pieces in vocabulary.txt
"""
