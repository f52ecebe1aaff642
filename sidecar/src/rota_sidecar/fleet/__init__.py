"""Client of Fleet: a sidecar reports to the operator or to the local runner, and executes their orders."""
