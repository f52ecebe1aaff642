"""Errors of commands; `main` prints each as one line and exits with its code."""

from collections.abc import Collection, Sequence
from enum import IntEnum

from rota import errors


class ExitCode(IntEnum):
    """Exit codes of `rota`."""

    DONE = 0
    FAILED = 1
    WRONG_USAGE = 2
    NOT_REACHABLE = 3
    NOT_FOUND = 4
    # 128 plus the number of SIGINT, as in shells.
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.DONE: "success",
    ExitCode.FAILED: "the request was rejected or failed, without a more specific code",
    ExitCode.WRONG_USAGE: "wrong usage: an invalid or missing option or argument",
    ExitCode.NOT_REACHABLE: "the server is unreachable, timed out, or is not ready yet",
    ExitCode.NOT_FOUND: "no such topic, group or file",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C",
}


class Failure(Exception):
    """A request that was rejected or failed. The message says what is wrong, where, and what to do next."""

    exit_code = ExitCode.FAILED


class WrongUsage(Failure):
    """Invalid or contradictory arguments."""

    exit_code = ExitCode.WRONG_USAGE


class NotReachable(Failure):
    """The server is unreachable or not ready."""

    exit_code = ExitCode.NOT_REACHABLE


class NotFound(Failure):
    """The topic, group or file does not exist."""

    exit_code = ExitCode.NOT_FOUND


NOT_REACHABLE = (
    errors.Disconnected,
    errors.TimedOut,
    errors.RequestTimedOut,
    errors.CoordinatorLoadInProgress,
    errors.CoordinatorNotAvailable,
    errors.NotCoordinator,
)
NOT_FOUND = (errors.UnknownTopicOrPartition, errors.UnknownTopicId)


def exit_code_for(error: errors.RotaError) -> ExitCode:
    """Return the exit code of an error."""
    if isinstance(error, NOT_REACHABLE):
        return ExitCode.NOT_REACHABLE
    if isinstance(error, NOT_FOUND):
        return ExitCode.NOT_FOUND
    if isinstance(error, errors.InvalidArgument):
        return ExitCode.WRONG_USAGE
    return ExitCode.FAILED


def unknown_topic(names: Sequence[str], servers: str) -> NotFound:
    """Build the error for topics that do not exist."""
    noun = "topic" if len(names) == 1 else "topics"
    return NotFound(
        f"{noun} {', '.join(names)} not found at {servers}: see `rota topics list`, or create it with "
        "`rota topics create`"
    )


NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC = 68, 69, 86


def unknown_group(group_id: str, servers: str) -> NotFound:
    """Build the error for a group that does not exist."""
    return NotFound(f"group {group_id} not found at {servers}: see `rota groups list`")


def group_not_empty(group_id: str) -> Failure:
    """Build the error for a change that requires a group without members: running members would overwrite it with commits."""
    return Failure(
        f"group {group_id} has members: stop its consumers first, or run the reset in the folder where `rota up` runs them"
    )


def foreign_members(group_id: str, client_ids: Collection[str]) -> Failure:
    """Build the error for a reset by `rota up` of a group that has members of other clients."""
    return Failure(
        f"group {group_id} has members that `rota up` does not run here (client id {', '.join(sorted(client_ids))}): stop them, then retry the reset"
    )


def group_error(code: int, group_id: str, address: str) -> Exception:
    """Build the error of a wire code."""
    if code == NON_EMPTY_GROUP:
        return group_not_empty(group_id)
    if code == GROUP_ID_NOT_FOUND:
        return unknown_group(group_id, address)
    return errors.error_of(code, f"group {group_id} at {address}")
