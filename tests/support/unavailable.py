"""The one way to say that a real system cannot be had on this machine; the tier runner prints it."""


class Unavailable(Exception):
    """A system that a tier needs is not here. The message is one line: what is missing, and how to get it."""
