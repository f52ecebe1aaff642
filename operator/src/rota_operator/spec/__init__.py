"""
The ConsumerGroup resource: fields, defaults, bounds, and rules between fields.

`model` declares them once; `validation` parses manifests; `crd` generates the API server's schema from the same declaration.
Called by the operator and by the local runner.
"""
