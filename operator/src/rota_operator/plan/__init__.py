"""
The operator's core: `(spec, observed) -> actions`, as values.

Called by the kopf handlers and by the local runner, which observe and apply. `make check` holds that nothing
here talks to Kubernetes, reads a clock or draws a random number.
"""
