"""The sidecar's decisions, without IO, clocks and chance: member, delivery, ledger, assignors, consumer protocol."""
