"""A Kubernetes cluster with real nodes and real pods on this machine, for tests and for people."""
