"""Why the coordinator cannot be secured as it was told to; the start of the process fails with it."""


class SecurityError(Exception):
    """One sentence: which file, what is wrong with it, what to do."""
