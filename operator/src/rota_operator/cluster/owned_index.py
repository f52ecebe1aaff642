"""
Index of the objects that ConsumerGroups own, so that a reconcile without changes reads none of them from the API server.

A direct read of a ConsumerGroup's objects fills it (`begin`, `fill`), kopf's watches and the answers to our own writes keep it up to
date (`take`, `remove`). `observe` asks it first (`open`); the reconciler trusts it again once a reconcile has succeeded (`settle`).

The index only ever answers that there is nothing to do: a decision that changes something is made anew on objects that are read for
it. So an outdated index delays a change, and causes none. The delay is bounded, because the index does not answer for a
ConsumerGroup

* whose objects have not been read in this term, or that a reconcile has failed for since;
* after a watch has listed anew, since objects that vanished meanwhile are not reported;
* for longer than `trust_s` after its objects were read.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rota_operator.cluster.kinds import CONFIG_MAP, DISRUPTION_BUDGET, WORKLOADS, ResourceKind
from rota_operator.cluster.queues import Key
from rota_operator.cluster.seen_versions import order_of
from rota_operator.reconcile.actions import CLAIM_LABEL
from rota_operator.reconcile.observed import Object

OWNED_KINDS = (*WORKLOADS, CONFIG_MAP, DISRUPTION_BUDGET)
# Parts of an object that decisions depend on. Of an adopted workload that is its name: what is changed of it is read first.
PARTS = {CONFIG_MAP: ("data",), DISRUPTION_BUDGET: ("spec",)}
METADATA = ("namespace", "name", "resourceVersion", "ownerReferences")


class Owned(NamedTuple):
    """Objects of a ConsumerGroup; None: it does not exist."""

    # Workloads that carry the label of its claim.
    adopted: tuple[Object, ...]
    config_map: Object | None
    disruption_budget: Object | None


class Entry(NamedTuple):
    """An object, or the deletion of one."""

    version: str
    # Number of the event, write or read that it comes from.
    number: int
    # None: it was deleted in this version.
    body: Object | None


@dataclass(slots=True)
class Record:
    """The objects of a ConsumerGroup, by kind and name."""

    key: Key
    # When their last direct read began: by the caller's clock in seconds, and as the number of an event.
    read_s: float
    read_number: int
    # The last reconcile has succeeded, and none runs.
    is_settled: bool = False
    entries: dict[tuple[ResourceKind, str], Entry] = field(default_factory=dict)


class OwnedIndex:
    """
    Objects by ConsumerGroup; thread-confined. Times are seconds of one clock of the caller's.

    Invariant: no object is older than the newest version of it that was read, written or watched. A deletion is known until the next
    direct read begins; after that, events from before it may bring the object back, until the watch reports its deletion, which asks
    for a reconcile.
    """

    def __init__(self, trust_s: float) -> None:
        self._trust_s = trust_s
        self._numbers = itertools.count(1)
        # When a watch listed last.
        self._listed = 0
        # By uid of the ConsumerGroup.
        self._records: dict[str, Record] = {}
        self._uids: dict[Key, str] = {}
        # By kind, namespace and name of an object: the uid of the ConsumerGroup whose record has it.
        self._holders: dict[tuple[ResourceKind, str, str], str] = {}

    def open(self, key: Key, uid: str, now_s: float) -> Owned | None:
        """
        Return the objects of a ConsumerGroup; None: they have to be read.

        From now on they have to be read, until `settle`: a reconcile that fails, or is cancelled, leaves no trust behind.
        """
        record = self._records.get(uid)
        if record is None or record.key != key:
            return None
        is_trusted = (
            record.is_settled and record.read_number > self._listed and now_s - record.read_s <= self._trust_s
        )
        record.is_settled = False
        return _owned(record) if is_trusted else None

    def begin(self, key: Key, uid: str, now_s: float) -> None:
        """Begin a direct read: what the watch shows from now on may be newer than what the read returns."""
        if self._uids.get(key) not in (None, uid):
            # It was deleted and created again.
            self.forget(key)
        record = self._records.setdefault(uid, Record(key, now_s, 0))
        record.is_settled, record.read_s, record.read_number = False, now_s, next(self._numbers)
        self._uids[key] = uid

    def fill(self, key: Key, found: Owned) -> None:
        """Take over the result of the direct read that has begun last. What the watch does not show is not kept, such as an object of another owner."""
        if (uid := self._uids.get(key)) is None:
            return
        record = self._records[uid]
        meanwhile = {
            where: entry for where, entry in record.entries.items() if entry.number > record.read_number
        }
        self._clear(uid, record)
        for kind, body in _bodies(found):
            if _claim(body) == uid:
                self._put(uid, record, kind, body)
        for where, entry in meanwhile.items():
            self._replace(uid, record, where, entry)

    def settle(self, key: Key) -> None:
        """Trust the objects of a ConsumerGroup: a reconcile has succeeded on them."""
        if (uid := self._uids.get(key)) is not None:
            self._records[uid].is_settled = True

    def take(self, kind: ResourceKind, body: Object) -> None:
        """Take over an object that a watch shows, or that the API server has answered a write with. An older one changes nothing."""
        metadata, uid = body["metadata"], _claim(body)
        holder = self._holders.get((kind, metadata["namespace"], metadata["name"]))
        if holder is not None and holder != uid:
            # It carries the label of another claim by now, or none.
            self.remove(kind, body)
        record = self._records.get(uid)
        if record is not None and _belongs(record.key, kind, body):
            self._put(uid, record, kind, body)

    def remove(self, kind: ResourceKind, body: Object) -> None:
        """Remove an object that was deleted, or lost its label, in this version; no-op if a newer one has its name by now."""
        metadata = body["metadata"]
        namespace, name, version = metadata["namespace"], metadata["name"], metadata["resourceVersion"]
        uid = self._holders.get((kind, namespace, name), _claim(body))
        record = self._records.get(uid)
        if record is not None and _belongs(record.key, kind, body):
            self._replace(uid, record, (kind, name), Entry(version, next(self._numbers), None))

    def listed(self) -> None:
        """Trust no object that was read before now: a watch has listed anew."""
        self._listed = next(self._numbers)

    def forget(self, key: Key) -> None:
        """Forget the objects of a ConsumerGroup."""
        if (uid := self._uids.pop(key, None)) is not None:
            self._clear(uid, self._records.pop(uid))

    def _clear(self, uid: str, record: Record) -> None:
        for kind, name in record.entries:
            where = (kind, record.key.namespace, name)
            # It may carry the label of another claim by now.
            if self._holders.get(where) == uid:
                del self._holders[where]
        record.entries.clear()

    def _put(self, uid: str, record: Record, kind: ResourceKind, body: Object) -> None:
        metadata = body["metadata"]
        kept = {name: metadata[name] for name in METADATA if name in metadata}
        parts = {name: body[name] for name in PARTS.get(kind, ()) if name in body}
        entry = Entry(
            metadata["resourceVersion"],
            next(self._numbers),
            {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": kept, **parts},
        )
        self._replace(uid, record, (kind, metadata["name"]), entry)

    def _replace(self, uid: str, record: Record, where: tuple[ResourceKind, str], entry: Entry) -> None:
        was = record.entries.get(where)
        if was is None or order_of(was.version) <= order_of(entry.version):
            kind, name = where
            record.entries[where] = entry
            self._holders[kind, record.key.namespace, name] = uid


def objects_name(key: Key) -> str:
    """Return the name of the ConfigMap and of the PodDisruptionBudget that belong to a ConsumerGroup."""
    return f"rota-{key.name}"


def _belongs(key: Key, kind: ResourceKind, body: Object) -> bool:
    """Return whether decisions depend on an object with the label of a claim: plans of resets and instances carry it too."""
    metadata = body["metadata"]
    return metadata["namespace"] == key.namespace and (
        kind in WORKLOADS or metadata["name"] == objects_name(key)
    )


def _claim(body: Object) -> str:
    """Return the uid of the ConsumerGroup whose label an object carries; empty: it has none."""
    return str((body["metadata"].get("labels") or {}).get(CLAIM_LABEL, ""))


def _bodies(found: Owned) -> Iterator[tuple[ResourceKind, Object]]:
    """Yield what exists, with its kind."""
    for each in found.adopted:
        yield next(kind for kind in WORKLOADS if kind.kind == each["kind"]), each
    if found.config_map is not None:
        yield CONFIG_MAP, found.config_map
    if found.disruption_budget is not None:
        yield DISRUPTION_BUDGET, found.disruption_budget


def _owned(record: Record) -> Owned:
    """Return the objects of a record that exist."""
    bodies = {where: entry.body for where, entry in record.entries.items() if entry.body is not None}
    name = objects_name(record.key)
    return Owned(
        tuple(body for (kind, _), body in sorted(bodies.items()) if kind in WORKLOADS),
        bodies.get((CONFIG_MAP, name)),
        bodies.get((DISRUPTION_BUDGET, name)),
    )
