"""Slots, their ownership and the topic log: perform what the core decides, in the order of decisions."""
