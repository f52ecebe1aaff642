"""Group coordinator and embedded topic log: the gRPC server of group members, producers and administrators."""
