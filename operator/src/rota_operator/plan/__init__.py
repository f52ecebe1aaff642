"""
Derives from a ConsumerGroup's spec what its sidecars and cluster need, as values.

A core, called by the local runner; `make check` holds that it performs no IO and reads no clock.
"""
