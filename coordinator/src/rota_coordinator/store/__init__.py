"""Durable storage of slot logs: the port that the runtime calls, and its backends SQLite and PostgreSQL."""
