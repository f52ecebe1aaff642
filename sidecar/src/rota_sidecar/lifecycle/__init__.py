"""One sidecar over time: the member and its replacements, drain, readiness."""
