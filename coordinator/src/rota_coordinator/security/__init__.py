"""Who may speak to the coordinator, over which connections, and about which groups. Only shells import it."""
