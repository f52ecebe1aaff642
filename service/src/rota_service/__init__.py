"""Servers' common ground, imported by all parts: HTTP server, event log, request validation, private files and sockets, loopback addresses."""
