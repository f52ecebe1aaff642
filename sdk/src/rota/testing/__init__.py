"""A group in memory, for tests of an application's consumers and handlers: no server, no waiting."""

from rota.testing.group import Group
from rota.testing.partition import DeadLetter

__all__ = ["DeadLetter", "Group"]
