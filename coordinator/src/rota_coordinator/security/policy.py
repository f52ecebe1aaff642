"""
Who may do what with which group. The door asks for every request, before anything looks at the group.

The operator brings its own policy: namespaces own groups.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from typing_extensions import override

from rota_coordinator.security.authenticator import Principal


class Action(enum.IntEnum):
    """What is done with a group. Who may do one of these may do those before it."""

    READ = 1  # find, list, describe, watch; fetch offsets
    MEMBER = 2  # join, heartbeat, leave, commit
    ADMIN = 3  # change it from outside: delete it, delete or set its offsets


class GroupPolicy(Protocol):
    """Decides at once: it is asked for every heartbeat."""

    def may(self, principal: Principal, action: Action, group_id: str) -> bool:
        """Whether the principal may do that with the group, existing or not."""
        ...


class AllowAll(GroupPolicy):
    """Everybody who was let in may do everything."""

    @override
    def may(self, principal: Principal, action: Action, group_id: str) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Groups:
    """A set of groups: by name, and by how their names begin."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def __contains__(self, group_id: str) -> bool:
        return group_id in self.names or group_id.startswith(self.prefixes)


Grants = Mapping[Action, Groups]


class Granted(GroupPolicy):
    """What was granted to the principal by name; to nobody else anything."""

    def __init__(self, grants_of: Callable[[str], Grants | None]) -> None:
        self._grants_of = grants_of

    @override
    def may(self, principal: Principal, action: Action, group_id: str) -> bool:
        # Looked up each time: what was taken away from a principal is gone for its open streams too.
        grants = self._grants_of(principal.name)
        return grants is not None and group_id in grants[action]
