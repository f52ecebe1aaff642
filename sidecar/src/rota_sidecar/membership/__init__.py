"""The asyncio driver of the member core: coordinator connection, assignment by the leader, strategies, state file."""
