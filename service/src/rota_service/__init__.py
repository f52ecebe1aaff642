"""Servers' common ground, imported by all parts: HTTP server, private files and sockets, loopback addresses."""
