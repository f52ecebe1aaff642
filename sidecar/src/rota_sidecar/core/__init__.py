"""Decisions of the sidecar, without IO, clocks or random numbers: member, delivery, ledger, assignors, consumer protocol."""
