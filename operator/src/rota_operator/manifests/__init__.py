"""
Reads manifests as `kubectl apply` takes them, for local processes.

`documents` parses YAML and keeps the line of each value, so that errors name file, line and field; `workloads` declares the
supported part of Kubernetes' own kinds; `resources` collects all resources and checks references between them. Called by the
local runner.
"""
