"""
Quotas per principal: the limits of each principal, and its present usage.

The creator of a group or topic is charged for it: a group with its members, metadata and assignments, a topic with its
partitions and records. The slots and the embedded log report each size after each decision; the router and the log's
decisions check the growth by a request before they carry it out. Pure: usage comes in, an error message goes out.
"""

from collections.abc import Callable, Hashable
from operator import add, sub
from typing import NamedTuple

UNLIMITED = -1
MIB = 1024 * 1024


class Usage(NamedTuple):
    """The usage charged to a principal, or the growth that a request adds."""

    groups: int = 0
    # Members, assigned but unused member ids included.
    members: int = 0
    # Bytes of the metadata that members offer, and of the metadata and assignments in the groups' records.
    group_bytes: int = 0
    topics: int = 0
    partitions: int = 0
    # Bytes of rows of the embedded log, see `stored_bytes`.
    log_bytes: int = 0

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum of both."""
        return Usage._make(map(add, self, other))

    def minus(self, other: "Usage") -> "Usage":
        """Return the difference of both."""
        return Usage._make(map(sub, self, other))


class Quota(NamedTuple):
    """The most that one principal may use, field by field as in `Usage`; UNLIMITED for no quota."""

    groups: int = 2_000
    members: int = 20_000
    group_bytes: int = 64 * MIB
    topics: int = 2_000
    partitions: int = 20_000
    log_bytes: int = 64 * 1024 * MIB


NOTHING = Usage()
# Field -> its name in flags and in the tokens file, and its unit in messages.
QUOTAS: dict[str, tuple[str, str]] = {
    "groups": ("groups", "groups"),
    "members": ("members", "group members"),
    "group_bytes": ("group-bytes", "bytes of group metadata and assignments"),
    "topics": ("topics", "topics"),
    "partitions": ("partitions", "partitions"),
    "log_bytes": ("log-bytes", "bytes of the log"),
}


def exceeded(principal: str, quota: Quota, used: Usage, more: Usage) -> str:
    """
    Return a message about the first quota that `more` exceeds; empty: all fits. A field that does not grow always fits.
    """
    for field, limit, has, grows in zip(Usage._fields, quota, used, more, strict=True):
        if grows > 0 and limit != UNLIMITED and has + grows > limit:
            name, what = QUOTAS[field]
            return (
                f"principal {principal} has {has} {what} and would have {has + grows}, but its quota is {limit}; free some, "
                f"or raise the quota with --quota-{name}, or for this principal with quota:{name}=N in the tokens file"
            )
    return ""


class Charge(NamedTuple):
    """The usage of one group, topic or log, and the principal that it is charged to."""

    principal: str
    usage: Usage


class Quotas:
    """
    The usage of every principal. Invariant: it is the sum of the principal's charges.

    Groups and topics created by a version without quotas have no principal and are charged to none.
    """

    def __init__(self, quota_of: Callable[[str], Quota] = lambda principal: Quota()) -> None:
        self._quota_of = quota_of
        self._charges: dict[Hashable, Charge] = {}
        self._used: dict[str, Usage] = {}

    def used(self, principal: str) -> Usage:
        """Return the usage charged to the principal now."""
        return self._used.get(principal, NOTHING)

    def charge(self, key: Hashable, principal: str, usage: Usage) -> None:
        """Set the charge for the key; an earlier charge for the same key is replaced."""
        before = self._charges.get(key)
        if before is not None and before.principal == principal:
            if before.usage != usage:
                self._charges[key] = Charge(principal, usage)
                self._used[principal] = self._used[principal].plus(usage.minus(before.usage))
            return
        self.discharge(key)
        if principal:
            self._charges[key] = Charge(principal, usage)
            self._used[principal] = self.used(principal).plus(usage)

    def discharge(self, key: Hashable) -> None:
        """Remove the charge for the key."""
        before = self._charges.pop(key, None)
        if before is None:
            return
        left = self.used(before.principal).minus(before.usage)
        if any(left):
            self._used[before.principal] = left
        else:
            del self._used[before.principal]

    def refusal(self, principal: str, more: Usage) -> str:
        """Return the message that rejects this growth of the principal's usage; empty: it is within the quota."""
        if not principal:
            return ""
        return exceeded(principal, self._quota_of(principal), self.used(principal), more)


# Reserves growth of a principal's usage; returns the message of a rejection, empty on success.
Reserve = Callable[[str, Usage], str]


def reserve_unlimited(principal: str, more: Usage) -> str:
    """Accept any growth; used where no quotas apply."""
    return ""


class Budget:
    """Reservations of one request: adds up the growth by its parts, and rejects parts that exceed a quota."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._reserved: dict[str, Usage] = {}

    def reserve(self, principal: str, more: Usage) -> str:
        """Reserve growth; a rejected reservation is not counted. See `Reserve`."""
        before = self._reserved.get(principal)
        together = more if before is None else before.plus(more)
        refusal = self._quotas.refusal(principal, together)
        if not refusal:
            self._reserved[principal] = together
        return refusal
