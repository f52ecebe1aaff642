"""
Lifecycle of one workload's replicas, where processes stand for pods: which to start, drain, stop and restart, and when.

A core: `ReplicaSet.step(event, now)` returns actions; its shell performs them and reports the results as events. As in
Kubernetes, a process that exits is restarted alone, with exponential backoff; a replica that is stopped drains first, then
the application stops, then the sidecar.
"""
