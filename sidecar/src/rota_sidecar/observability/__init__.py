"""Counters, metrics, end offsets, partition status and the event log: what a sidecar shows of itself."""
