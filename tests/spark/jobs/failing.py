"""A job whose driver fails."""

raise SystemExit("this job always fails")
