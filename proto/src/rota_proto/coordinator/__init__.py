"""The coordinator contracts, by version."""
