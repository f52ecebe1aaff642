"""The log contracts, by version."""
