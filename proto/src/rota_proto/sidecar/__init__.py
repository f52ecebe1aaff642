"""The sidecar contracts, by version."""
