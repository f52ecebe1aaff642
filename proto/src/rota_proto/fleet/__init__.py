"""The fleet contracts, by version."""
