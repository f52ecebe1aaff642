"""
Authorization of principals for groups, topics and transactional ids. Called by `access_control` for every request.

`GrantPolicy` knows the grants of the tokens file only; with `PodPolicy` namespaces own groups, topics and transactional ids too.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from typing_extensions import override

from rota_coordinator.security.authenticator import Principal
from rota_coordinator.security.service_accounts import subjects_of


class Action(enum.IntEnum):
    """Actions on a group. The right to one includes those before it."""

    READ = 1  # find, list, describe, watch; fetch offsets
    MEMBER = 2  # join, heartbeat, leave, commit
    ADMIN = 3  # delete the group, delete or alter its offsets


class TopicAction(enum.IntEnum):
    """Actions on a topic. The right to one includes those before it."""

    CONSUME = 1  # describe, fetch, look offsets up
    PRODUCE = 2  # append
    ADMIN = 3  # create and delete it, add partitions, delete records


class GroupPolicy(Protocol):
    """Decides synchronously and without waiting, because every heartbeat is authorized."""

    def may(self, principal: Principal, action: Action, group_id: str) -> bool:
        """Return whether the principal may perform the action on the group, existing or not."""
        ...

    def is_group_of(self, namespace: str, group_id: str) -> bool:
        """Return whether pods of the namespace may be members of the group; True where no namespace is known."""
        ...

    def may_topic(self, principal: Principal, action: TopicAction, topic: str) -> bool:
        """Return whether the principal may perform the action on the topic, existing or not."""
        ...

    def may_transact(self, principal: Principal, transactional_id: str) -> bool:
        """Return whether the principal may use this transactional id, and so fence its previous producer."""
        ...


class AllowAll(GroupPolicy):
    """Allows every authenticated principal everything."""

    @override
    def may(self, principal: Principal, action: Action, group_id: str) -> bool:
        return True

    @override
    def is_group_of(self, namespace: str, group_id: str) -> bool:
        return True

    @override
    def may_topic(self, principal: Principal, action: TopicAction, topic: str) -> bool:
        return True

    @override
    def may_transact(self, principal: Principal, transactional_id: str) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class NameSet:
    """A set of names, given as full names and as prefixes."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return name in self.names or name.startswith(self.prefixes)


@dataclass(frozen=True, slots=True)
class Grants:
    """The grants of one principal."""

    groups: Mapping[Action, NameSet]
    topics: Mapping[TopicAction, NameSet]
    transactional_ids: NameSet


class GrantPolicy(GroupPolicy):
    """Allows each principal what its grants contain; a principal without grants is denied everything."""

    def __init__(self, grants_of: Callable[[str], Grants | None]) -> None:
        self._grants_of = grants_of

    @override
    def may(self, principal: Principal, action: Action, group_id: str) -> bool:
        # Looked up for each request, so that a revoked grant also applies to open streams.
        grants = self._grants_of(principal.name)
        return grants is not None and group_id in grants.groups[action]

    @override
    def is_group_of(self, namespace: str, group_id: str) -> bool:
        return True

    @override
    def may_topic(self, principal: Principal, action: TopicAction, topic: str) -> bool:
        grants = self._grants_of(principal.name)
        return grants is not None and topic in grants.topics[action]

    @override
    def may_transact(self, principal: Principal, transactional_id: str) -> bool:
        grants = self._grants_of(principal.name)
        return grants is not None and transactional_id in grants.transactional_ids


class PodPolicy(GroupPolicy):
    """
    Allows a pod to be a member of the groups of its namespace, named `<namespace>.*`, and to use the topics and transactional ids of
    that form; else what the tokens file grants to its service account, to those of its namespace, or to all. Other principals: as
    `GrantPolicy`.
    """

    def __init__(
        self,
        grants_of: Callable[[str], Grants | None],
        grants_of_pods: Callable[[str], Grants | None],
        grants_in: Callable[[str], Iterable[Grants]],
    ) -> None:
        """
        `grants_of_pods` returns the grants of a service account, or of a group of them; `grants_in` those of all service accounts
        of a namespace.
        """
        self._others = GrantPolicy(grants_of)
        self._grants_of_pods = grants_of_pods
        self._grants_in = grants_in

    @override
    def may(self, principal: Principal, action: Action, group_id: str) -> bool:
        if principal.pod is None:
            return self._others.may(principal, action, group_id)
        owns = action <= Action.MEMBER and group_id.startswith(_own_prefix(principal.pod.namespace))
        return owns or any(group_id in grants.groups[action] for grants in self._grants(principal))

    @override
    def is_group_of(self, namespace: str, group_id: str) -> bool:
        return group_id.startswith(_own_prefix(namespace)) or any(
            group_id in grants.groups[Action.MEMBER] for grants in self._grants_in(namespace)
        )

    @override
    def may_topic(self, principal: Principal, action: TopicAction, topic: str) -> bool:
        if principal.pod is None:
            return self._others.may_topic(principal, action, topic)
        owns = topic.startswith(_own_prefix(principal.pod.namespace))
        return owns or any(topic in grants.topics[action] for grants in self._grants(principal))

    @override
    def may_transact(self, principal: Principal, transactional_id: str) -> bool:
        if principal.pod is None:
            return self._others.may_transact(principal, transactional_id)
        owns = transactional_id.startswith(_own_prefix(principal.pod.namespace))
        return owns or any(transactional_id in grants.transactional_ids for grants in self._grants(principal))

    def _grants(self, principal: Principal) -> Iterator[Grants]:
        for subject in subjects_of(principal.name):
            if (grants := self._grants_of_pods(subject)) is not None:
                yield grants


def _own_prefix(namespace: str) -> str:
    """Return the prefix of a namespace's names; names of namespaces contain no dot, so no namespace owns those of another."""
    return f"{namespace}."
