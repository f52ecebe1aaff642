"""To whom a sidecar reports, and from whom it takes orders: the operator, or the local runner."""
