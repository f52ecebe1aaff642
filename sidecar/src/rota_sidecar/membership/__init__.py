"""The asyncio driver of the member core: coordinator connection, leader's work, strategies, state file."""
