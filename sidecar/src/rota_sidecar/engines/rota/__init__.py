"""Rota's own servers: the group's coordinator on a Session stream, and the topics of the embedded log."""
