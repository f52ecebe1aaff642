"""
Decides what to change in a Kubernetes cluster for one ConsumerGroup.

A core: the shell in `cluster` reads the cluster into an `Observed`, `plan` returns actions in the order in which they are
performed, and the shell performs them. Equal inputs give equal plans, so a plan that was performed half can be made again.
"""
