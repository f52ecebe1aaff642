"""The distribution of slots over processes: computed from the shared table, identically by every process."""
