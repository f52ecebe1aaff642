"""
Manifests, as `kubectl apply` takes them, for whoever plays Kubernetes on a laptop.

`documents` makes values of their text and remembers where each stood, so that what is wrong can be said with file, line and
field; `workloads` knows what of Kubernetes' own kinds means something to a process; `resources` looks at all together. Called
by the local runner.
"""
