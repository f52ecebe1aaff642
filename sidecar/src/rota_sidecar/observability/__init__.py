"""Counters, metrics, end offsets, partition status and the event log of a sidecar."""
