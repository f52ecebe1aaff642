"""
The coordinator's decisions as deterministic code without I/O, clocks or randomness: groups, topic log, slots, quotas.
"""
