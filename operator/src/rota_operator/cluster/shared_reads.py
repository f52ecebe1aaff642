"""
Lists of one namespace that several reconciles need at about the same time: one request to the API server for all of them.

Called by `observe`. While many ConsumerGroups are reconciled, as after a start, the API server would otherwise go through all
workloads of the namespace for each of them. HorizontalPodAutoscalers are not watched, so their list is kept for a reconcile that
accepts an older one: one that changes nothing by it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from rota_operator.cluster.api import Api
from rota_operator.cluster.batches import Batches
from rota_operator.cluster.kinds import AUTOSCALER, WORKLOADS, ResourceKind
from rota_operator.reconcile.actions import CLAIM_LABEL
from rota_operator.reconcile.observed import Object

# Seconds that a read waits for those of other reconciles.
WINDOW_S = 0.05
# For which a list of HorizontalPodAutoscalers is kept.
KEPT_S = 10.0


class KnownAutoscalers(NamedTuple):
    """HorizontalPodAutoscalers of a namespace as they were listed last."""

    # When the list was asked for, by the caller's clock in seconds; it was sent after that.
    asked_s: float
    found: Sequence[Object]


class SharedReads:
    """
    Reads for several reconciles; thread-confined to one event loop. Raise ApiError.

    Invariant: a list is sent after it was asked for, unless the caller accepts an older one; kept lists are at most KEPT_S old.
    """

    def __init__(self, api: Api, window_s: float = WINDOW_S) -> None:
        self._api = api
        # By namespace and kind: a right may be missing for one of them.
        self._adopted: Batches[tuple[str, ResourceKind], str, Sequence[Object]] = Batches(
            self._list_adopted, window_s
        )
        self._autoscalers: Batches[str, None, Sequence[Object]] = Batches(self._list_autoscalers, window_s)
        # By namespace, those that were asked for first first.
        self._known: dict[str, KnownAutoscalers] = {}

    async def adopted(self, namespace: str, uid: str) -> tuple[Object, ...]:
        """Read the workloads that carry the label of a ConsumerGroup's claim."""
        found = await asyncio.gather(*(self._adopted.get((namespace, kind), [uid]) for kind in WORKLOADS))
        return tuple(each for by_uid in found for each in by_uid.get(uid, ()))

    async def autoscalers(self, namespace: str, now_s: float, age_s_max: float = 0.0) -> Sequence[Object]:
        """Return all HorizontalPodAutoscalers of a namespace as they were at most `age_s_max` before now, or as they are."""
        known = self._known.get(namespace)
        if known is not None and now_s - known.asked_s < age_s_max:
            return known.found
        found = (await self._autoscalers.get(namespace, [None]))[None]
        self._keep(namespace, KnownAutoscalers(now_s, found))
        return found

    def _keep(self, namespace: str, found: KnownAutoscalers) -> None:
        known = self._known.pop(namespace, found)
        self._known[namespace] = max(known, found, key=lambda each: each.asked_s)
        for each, (asked_s, _) in [*self._known.items()]:
            if found.asked_s - asked_s < KEPT_S:
                return
            del self._known[each]

    async def _list_adopted(
        self, where: tuple[str, ResourceKind], uids: Collection[str]
    ) -> Mapping[str, Sequence[Object]]:
        namespace, kind = where
        found: dict[str, list[Object]] = defaultdict(list)
        selector = f"{CLAIM_LABEL} in ({','.join(sorted(uids))})"
        async for each in self._api.list(kind, namespace, selector):
            found[each["metadata"]["labels"][CLAIM_LABEL]].append(typed(each, kind))
        return found

    async def _list_autoscalers(self, namespace: str, _: Collection[None]) -> Mapping[None, Sequence[Object]]:
        return {None: [each async for each in self._api.list(AUTOSCALER, namespace)]}


def typed(item: Object, kind: ResourceKind) -> Object:
    """Add kind and API version, which the API server leaves out in a list."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, **item}
