"""What a coordinator means by the error that it gives for a group, in words of the command line."""

from collections.abc import Collection

from rota import errors
from rota_cli.failures import Failure, NotFound

NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND = 68, 69


def no_group(group_id: str, servers: str) -> NotFound:
    """There is none of that name."""
    return NotFound(f"there is no group {group_id} at {servers}: see `rota groups list`")


def in_use(group_id: str) -> Failure:
    """Members would not notice, and commit over what was changed."""
    return Failure(
        f"group {group_id} has members: stop its consumers first, or do it in the folder where `rota up` runs them"
    )


def partly_in_use(group_id: str, client_ids: Collection[str]) -> Failure:
    """Refuse a reset by `rota up` of a group with members of other clients, which take no orders from it."""
    return Failure(
        f"group {group_id} has members that `rota up` does not run here (client id {', '.join(sorted(client_ids))}): stop "
        "them, and reset it then"
    )


def group_refusal(code: int, group_id: str, address: str) -> Exception:
    """The error of a number."""
    if code == NON_EMPTY_GROUP:
        return in_use(group_id)
    if code == GROUP_ID_NOT_FOUND:
        return no_group(group_id, address)
    return errors.error_of(code, f"group {group_id} at {address}")
