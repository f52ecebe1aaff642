"""
The replicas of one workload where processes stand for pods: which to start, to end and to start again, and when.

A core: `ReplicaSet.step(event, now)` gives actions. Its shell starts processes, sends signals and says what came of it. What
pods do in Kubernetes these do too: a part that ends is started again alone, later and later; who goes finishes its work first,
and only then loses its sidecar.
"""
