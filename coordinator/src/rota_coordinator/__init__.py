"""Group coordinator and embedded topic log: one server that members and administrators call."""
