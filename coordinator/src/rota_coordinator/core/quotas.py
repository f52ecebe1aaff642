"""
Quotas per principal: how much of the coordinator each may use, and how much each uses now.

The creator of a group or topic is charged for it, with its members and what they send, or its partitions and their records. The
slots and the embedded log report the size of each group and partition after each decision; the service, and the log's decisions,
ask whether what a request adds still fits. Pure: counts in, a sentence out.
"""

from collections.abc import Callable, Hashable
from operator import add, sub
from typing import NamedTuple

UNLIMITED = -1
MIB = 1024 * 1024


class Usage(NamedTuple):
    """The usage charged to a principal, or the growth that a request adds."""

    groups: int = 0
    # With the member ids that were given out and not used yet.
    members: int = 0
    # Of the metadata that members offer, and of what is written of their groups: metadata and assignments.
    group_bytes: int = 0
    topics: int = 0
    partitions: int = 0
    # Of rows of the embedded log, see `stored_bytes`.
    log_bytes: int = 0

    def plus(self, other: "Usage") -> "Usage":
        """The sum of both."""
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
# Field -> its name in flags and in the tokens file, and what it counts.
QUOTAS: dict[str, tuple[str, str]] = {
    "groups": ("groups", "groups"),
    "members": ("members", "group members"),
    "group_bytes": ("group-bytes", "bytes of group metadata and assignments"),
    "topics": ("topics", "topics"),
    "partitions": ("partitions", "partitions"),
    "log_bytes": ("log-bytes", "bytes of the log"),
}


def exceeded(principal: str, quota: Quota, used: Usage, more: Usage) -> str:
    """Names the first quota that `more` exceeds; empty when all of it fits. What does not grow fits always."""
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

    What was created before quotas were counted has no principal, and is charged to none.
    """

    def __init__(self, quota_of: Callable[[str], Quota] = lambda principal: Quota()) -> None:
        self._quota_of = quota_of
        self._charges: dict[Hashable, Charge] = {}
        self._used: dict[str, Usage] = {}

    def used(self, principal: str) -> Usage:
        """Return the usage charged to the principal now."""
        return self._used.get(principal, NOTHING)

    def charge(self, key: Hashable, principal: str, usage: Usage) -> None:
        """Charge the principal for something, in place of what was charged for it before."""
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
        """Return why the principal may not use that much more; empty when it may."""
        if not principal:
            return ""
        return exceeded(principal, self._quota_of(principal), self.used(principal), more)


# Uses more of a principal's quota; the sentence with which that is refused, empty when it is not.
Reserve = Callable[[str, Usage], str]


def reserve_unlimited(principal: str, more: Usage) -> str:
    """Refuses nothing: for what has no quotas."""
    return ""


class Budget:
    """Adds up what the parts of one request use before they are charged, and refuses those that exceed a quota."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._reserved: dict[str, Usage] = {}

    def reserve(self, principal: str, more: Usage) -> str:
        """Use so much more; what is refused is not counted. See `Reserve`."""
        before = self._reserved.get(principal)
        together = more if before is None else before.plus(more)
        refusal = self._quotas.refusal(principal, together)
        if not refusal:
            self._reserved[principal] = together
        return refusal
