"""One sidecar process: start, listeners, HTTP page, commands to it, stop."""
