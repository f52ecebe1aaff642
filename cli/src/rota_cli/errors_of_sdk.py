"""What the SDK's errors are to a command line: the sentence is theirs, the exit code is ours."""

from rota import errors
from rota_cli.failures import Exit

NOT_REACHABLE = (
    errors.Disconnected,
    errors.TimedOut,
    errors.RequestTimedOut,
    errors.CoordinatorLoadInProgress,
    errors.CoordinatorNotAvailable,
    errors.NotCoordinator,
)
NOT_FOUND = (errors.UnknownTopicOrPartition, errors.UnknownTopicId)


def exit_of(error: errors.RotaError) -> Exit:
    """The code for the shell."""
    if isinstance(error, NOT_REACHABLE):
        return Exit.NOT_REACHABLE
    if isinstance(error, NOT_FOUND):
        return Exit.NOT_FOUND
    if isinstance(error, errors.InvalidArgument):
        return Exit.WRONG_USAGE
    return Exit.FAILED
