"""Slots, their ownership and the topic log: the shell that performs the cores' effects, in the order of decisions."""
