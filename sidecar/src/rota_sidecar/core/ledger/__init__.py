"""
What an application has in its hands of one partition, and how far it is done: the core behind every commit.

Called by `rota_sidecar.core.delivery`, which holds one ledger for each partition and tenure. Pure.
"""
