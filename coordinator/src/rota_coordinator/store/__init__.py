"""Where a slot's records live: the port that the runtime calls, and its engines."""
