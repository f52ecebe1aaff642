"""The coordinator's decisions, without IO, clocks and chance: groups, the topic log, slots and quotas."""
