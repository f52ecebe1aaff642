"""
Who may do what with which group, topic or transactional id. The door asks for every request, before anything looks at them.

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


class TopicAction(enum.IntEnum):
    """What is done with a topic. Who may do one of these may do those before it."""

    CONSUME = 1  # describe, fetch, look offsets up
    PRODUCE = 2  # append
    ADMIN = 3  # create and delete it, add partitions, delete records


class GroupPolicy(Protocol):
    """Decides at once: it is asked for every heartbeat."""

    def may(self, principal: Principal, action: Action, group_id: str) -> bool:
        """Whether the principal may do that with the group, existing or not."""
        ...

    def may_topic(self, principal: Principal, action: TopicAction, topic: str) -> bool:
        """The same of a topic."""
        ...

    def may_transact(self, principal: Principal, transactional_id: str) -> bool:
        """Whether the principal may be the producer with this transactional id, and so fence who was before."""
        ...


class AllowAll(GroupPolicy):
    """Everybody who was let in may do everything."""

    @override
    def may(self, principal: Principal, action: Action, group_id: str) -> bool:
        return True

    @override
    def may_topic(self, principal: Principal, action: TopicAction, topic: str) -> bool:
        return True

    @override
    def may_transact(self, principal: Principal, transactional_id: str) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class NameSet:
    """A set of names: each by itself, and by how they begin."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return name in self.names or name.startswith(self.prefixes)


@dataclass(frozen=True, slots=True)
class Grants:
    """What was granted to one principal."""

    groups: Mapping[Action, NameSet]
    topics: Mapping[TopicAction, NameSet]
    transactional_ids: NameSet


class GrantPolicy(GroupPolicy):
    """What was granted to the principal by name; to nobody else anything."""

    def __init__(self, grants_of: Callable[[str], Grants | None]) -> None:
        self._grants_of = grants_of

    @override
    def may(self, principal: Principal, action: Action, group_id: str) -> bool:
        # Looked up each time: what was taken away from a principal is gone for its open streams too.
        grants = self._grants_of(principal.name)
        return grants is not None and group_id in grants.groups[action]

    @override
    def may_topic(self, principal: Principal, action: TopicAction, topic: str) -> bool:
        grants = self._grants_of(principal.name)
        return grants is not None and topic in grants.topics[action]

    @override
    def may_transact(self, principal: Principal, transactional_id: str) -> bool:
        grants = self._grants_of(principal.name)
        return grants is not None and transactional_id in grants.transactional_ids
