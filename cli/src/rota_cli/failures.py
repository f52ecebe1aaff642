"""How a command ends that cannot do what it was told: raised everywhere, made a sentence and an exit code by `main`."""

from enum import IntEnum


class Exit(IntEnum):
    """What the shell is told."""

    DONE = 0
    FAILED = 1
    WRONG_USAGE = 2
    NOT_REACHABLE = 3
    NOT_FOUND = 4
    # 128 and the number of SIGINT, as shells have it.
    INTERRUPTED = 130


MEANINGS = {
    Exit.DONE: "done",
    Exit.FAILED: "refused, or failed; nothing else fits",
    Exit.WRONG_USAGE: "wrong usage: an option or an argument that cannot be, or one that is missing",
    Exit.NOT_REACHABLE: "the server cannot be reached, did not answer in time, or is not ready yet",
    Exit.NOT_FOUND: "there is no topic, group or file of that name",
    Exit.INTERRUPTED: "interrupted with Ctrl-C, before it was done",
}


class Failure(Exception):
    """Refused or failed. The text is one sentence: what is wrong, where, and what to do next."""

    exit = Exit.FAILED


class WrongUsage(Failure):
    """What was asked for cannot be meant."""

    exit = Exit.WRONG_USAGE


class NotReachable(Failure):
    """Nobody answers, or not yet."""

    exit = Exit.NOT_REACHABLE


class NotFound(Failure):
    """There is no such thing."""

    exit = Exit.NOT_FOUND
