"""Which process serves which slot: decided from the shared table, the same way by everybody who reads it."""
