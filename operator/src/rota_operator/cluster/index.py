"""
Index of all ConsumerGroups that the operator watches, as they were seen last.

Filled from one list at the start, then by kopf's watch. Reconciles read other groups' claims here instead of listing them, and
handlers find out which ConsumerGroup a workload belongs to, and whether an event changes anything.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rota_operator.cluster.queues import Key
from rota_operator.cluster.seen_versions import order_of
from rota_operator.reconcile.group import claim_of
from rota_operator.reconcile.observed import Claim, Object


class Entry(NamedTuple):
    """A ConsumerGroup."""

    claim: Claim
    # All but status and the API server's bookkeeping: a change of it asks for a reconcile.
    essence: object
    generation: int
    # Resource version; a body of an older one is ignored.
    version: str


class ResourceIndex:
    """ConsumerGroups by key and by uid. Invariant: both maps hold the same groups, each with the newest body that was seen."""

    def __init__(self) -> None:
        self._entries: dict[Key, Entry] = {}
        self._by_uid: dict[str, Key] = {}

    def update(self, body: Object) -> bool:
        """Add or replace a ConsumerGroup; returns whether anything but its status has changed. An older body changes nothing."""
        key, entry = key_of(body), entry_of(body)
        was = self._entries.get(key)
        if was is not None and order_of(entry.version) < order_of(was.version):
            return False
        if was is not None and was.claim.uid != entry.claim.uid:
            self._by_uid.pop(was.claim.uid, None)
        self._entries[key] = entry
        self._by_uid[entry.claim.uid] = key
        return was is None or was.essence != entry.essence

    def refresh(self, body: Object) -> None:
        """
        Take over a version that a reconcile has decided on or written, so that the watch reports no change with it.

        No-op for a ConsumerGroup that is not in the index, or that claims something else by now: the watch has to report that.
        """
        entry = self._entries.get(key_of(body))
        if entry is not None and entry.claim == claim_of(body):
            self.update(body)

    def remove(self, body: Object) -> None:
        """Remove a ConsumerGroup, unless another one has its name by now."""
        key = key_of(body)
        entry = self._entries.get(key)
        if entry is not None and entry.claim.uid == body["metadata"]["uid"]:
            del self._entries[key]
            del self._by_uid[entry.claim.uid]

    def drop(self, key: Key) -> Claim | None:
        """Remove a ConsumerGroup that does not exist any more, as a read of it says; returns what it had claimed."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        del self._by_uid[entry.claim.uid]
        return entry.claim

    def key_of_uid(self, uid: str) -> Key | None:
        """Return the ConsumerGroup with this uid."""
        return self._by_uid.get(uid)

    def keys(self) -> tuple[Key, ...]:
        """Return all ConsumerGroups."""
        return tuple(self._entries)

    def rivals(self, own: Claim) -> tuple[Claim, ...]:
        """Return the claims of others to the same workload or the same group id."""
        return tuple(self._rivals(own))

    def claim(self, key: Key) -> Claim | None:
        """Return the claim of a ConsumerGroup."""
        entry = self._entries.get(key)
        return None if entry is None else entry.claim

    def _rivals(self, own: Claim) -> Iterator[Claim]:
        for entry in self._entries.values():
            other = entry.claim
            if other.uid == own.uid:
                continue
            same_target = (
                own.target is not None and other.target == own.target and other.namespace == own.namespace
            )
            if same_target or other.group_id == own.group_id:
                yield other


def key_of(body: Object) -> Key:
    """Return the key of a ConsumerGroup."""
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])


def entry_of(body: Object) -> Entry:
    """Return what the index keeps of a ConsumerGroup."""
    metadata = body["metadata"]
    essence = (
        metadata["uid"],
        metadata.get("generation"),
        metadata.get("deletionTimestamp"),
        tuple(metadata.get("finalizers") or ()),
        dict(metadata.get("annotations") or {}),
        dict(metadata.get("labels") or {}),
    )
    version = str(metadata.get("resourceVersion") or "")
    return Entry(claim_of(body), essence, int(metadata.get("generation") or 0), version)
