"""The error of an invalid security configuration, which ends the start of the process."""


class SecurityError(Exception):
    """A security configuration is invalid; the message names the file, the problem and the remedy."""
