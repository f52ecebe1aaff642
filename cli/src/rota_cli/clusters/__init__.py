"""Where topics and groups are: the port that commands use, and one backend for each kind of cluster."""
