"""
The web page of groups: its files, and their state as JSON and as server-sent events.

Served by the local runner, with buttons to scale, and by the operator in a cluster, read-only and to callers whose token was reviewed.
Both hand in a `PageSource`, which decides what a reader sees.
"""
