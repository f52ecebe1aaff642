"""Metrics, the event log, and the HTTP page for probes and Prometheus."""
