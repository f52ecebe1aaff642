"""Placeholder for Spark applications as members of a consumer group. Not implemented yet: only `--version` works."""
