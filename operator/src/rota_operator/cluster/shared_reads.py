"""
Lists of one namespace that several reconciles need at about the same time: one request to the API server for all of them.

Called by `observe`. While many ConsumerGroups are reconciled, as after a start, the API server would otherwise go through all
workloads of the namespace for each of them.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from rota_operator.cluster.api import Api
from rota_operator.cluster.batches import Batches
from rota_operator.cluster.kinds import AUTOSCALER, WORKLOADS, ResourceKind
from rota_operator.reconcile.actions import CLAIM_LABEL
from rota_operator.reconcile.observed import Object

# Seconds that a read waits for those of other reconciles.
WINDOW_S = 0.05


class SharedReads:
    """Reads for several reconciles; thread-confined to one event loop. Raise ApiError."""

    def __init__(self, api: Api, window_s: float = WINDOW_S) -> None:
        self._api = api
        # By namespace and kind: a right may be missing for one of them.
        self._adopted: Batches[tuple[str, ResourceKind], str, Sequence[Object]] = Batches(
            self._list_adopted, window_s
        )
        self._autoscalers: Batches[str, None, Sequence[Object]] = Batches(self._list_autoscalers, window_s)

    async def adopted(self, namespace: str, uid: str) -> tuple[Object, ...]:
        """Read the workloads that carry the label of a ConsumerGroup's claim."""
        found = await asyncio.gather(*(self._adopted.get((namespace, kind), [uid]) for kind in WORKLOADS))
        return tuple(each for by_uid in found for each in by_uid.get(uid, ()))

    async def autoscalers(self, namespace: str) -> Sequence[Object]:
        """Read all HorizontalPodAutoscalers of a namespace."""
        return (await self._autoscalers.get(namespace, [None]))[None]

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
