"""Requests of one reconcile: two reads where nothing is to be done, all of them before a change and where the index is not trusted."""

import asyncio
import copy
from collections.abc import Awaitable, Callable

import pytest
from typing_extensions import override

from rota_operator.cluster.errors import Unavailable
from rota_operator.cluster.handlers import DELETED, Handlers
from rota_operator.cluster.index import ResourceIndex
from rota_operator.cluster.kinds import CONFIG_MAP, DEPLOYMENT, ResourceKind
from rota_operator.cluster.owned_index import OwnedIndex
from rota_operator.cluster.reconciler import Reconciler
from rota_operator.reconcile.actions import CLAIM_LABEL
from tests.operator.cluster.api_server import Answer, Sent, status
from tests.operator.cluster.test_reconciler import GROUP, KEY, RESYNC_S, TARGET, Cluster, play
from tests.operator.reconcile.api_server import Stored

SHOP = "/api/v1/namespaces/shop"
APPS = "/apis/apps/v1/namespaces/shop"
CONFIG = f"{SHOP}/configmaps/rota-orders"
BUDGET = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/rota-orders"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
AT_REST = sorted([GROUP, TARGET])
ALL = sorted([GROUP, TARGET, CONFIG, BUDGET, AUTOSCALERS, f"{APPS}/deployments", f"{APPS}/statefulsets"])
FIRST_WRITES = [GROUP, CONFIG, TARGET]


class AppliedCluster(Cluster):
    """A cluster that keeps what is written to it. `handlers` are those of the watches, which show nothing unless a test calls them."""

    def __init__(self, trust_s: float = RESYNC_S) -> None:
        super().__init__()
        self.owned = OwnedIndex(trust_s)
        target = self.objects[TARGET]
        # Long enough to be left as it is.
        target["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 300
        self._target = Stored(target)
        self.objects[TARGET] = self._target.live
        # So that an object that is created again is newer than before.
        self._version = 100
        self._handlers = Handlers(
            ResourceIndex(), lambda key, *, is_own: True, lambda _kind, _version: None, lambda _: None, self.owned
        )  # fmt: skip

    @override
    def answer(self, sent: Sent) -> Answer:
        if sent.method == "GET" and sent.path == f"{APPS}/deployments":
            labels = self.objects[TARGET]["metadata"].get("labels", {})
            return Answer(body={"items": [self.objects[TARGET]] if CLAIM_LABEL in labels else []})
        if sent.method == "GET":
            return super().answer(sent)
        if (refusal := self.refuse(sent)) is not None:
            return refusal
        if sent.method == "DELETE":
            del self.objects[sent.path]
            return Answer()
        self._version += 1
        if sent.path == TARGET:
            self._target.apply(sent.body)
            self.objects[TARGET] = self._target.live
        else:
            was = self.objects.get(sent.path, {"metadata": {}})
            metadata = {**was["metadata"], **sent.body["metadata"], "resourceVersion": str(self._version)}
            self.objects[sent.path] = {**was, **sent.body, "metadata": metadata}
        return Answer(body=copy.deepcopy(self.objects[sent.path]))

    def take_requests(self) -> tuple[list[str], list[str]]:
        """Paths of reads and of writes since the last call."""
        sent, self.server.sent = self.server.sent, []
        return (
            sorted(each.path for each in sent if each.method == "GET"),
            [each.path for each in sent if each.method != "GET"],
        )

    async def show(self, kind: ResourceKind, path: str, type_: str | None = "MODIFIED") -> None:
        """Let a watch show an object as it is."""
        await self._handlers.on_owned(kind, type_, copy.deepcopy(self.objects[path]))


def played(story: Callable[[AppliedCluster, Reconciler], Awaitable[None]], trust_s: float = RESYNC_S) -> None:
    """Play a story after the first reconcile, which has read and written everything."""
    cluster = AppliedCluster(trust_s)

    async def after_the_first(reconciler: Reconciler) -> None:
        await reconciler.reconcile(KEY)
        assert cluster.take_requests() == (ALL, FIRST_WRITES)
        await story(cluster, reconciler)

    play(cluster, after_the_first, cluster.owned)
    assert [each.failure for each in cluster.outcomes if each.failure is not None] == []


async def requests(cluster: AppliedCluster, reconciler: Reconciler) -> tuple[list[str], list[str]]:
    await reconciler.reconcile(KEY)
    return cluster.take_requests()


def test_an_event_that_changes_nothing_costs_two_reads_also_right_after_our_own_writes() -> None:
    async def story(cluster: AppliedCluster, reconciler: Reconciler) -> None:
        assert await requests(cluster, reconciler) == (AT_REST, [])
        await cluster.show(DEPLOYMENT, TARGET)
        await cluster.show(CONFIG_MAP, CONFIG, "ADDED")
        assert await requests(cluster, reconciler) == (AT_REST, [])

    played(story)


def test_a_reconcile_that_time_has_caused_reads_everything() -> None:
    async def story(cluster: AppliedCluster, reconciler: Reconciler) -> None:
        assert await requests(cluster, reconciler) == (ALL, [])

    played(story, trust_s=0.0)


def test_a_listing_lets_the_next_reconcile_read_everything() -> None:
    async def story(cluster: AppliedCluster, reconciler: Reconciler) -> None:
        await cluster.show(CONFIG_MAP, CONFIG, None)
        assert await requests(cluster, reconciler) == (ALL, [])
        assert await requests(cluster, reconciler) == (AT_REST, [])

    played(story)


def test_a_change_of_the_spec_is_decided_on_what_is_read_for_it() -> None:
    async def story(cluster: AppliedCluster, reconciler: Reconciler) -> None:
        cluster.objects[GROUP]["spec"]["podDisruptionBudget"] = {"maxUnavailable": 1}
        # The index is asked first, and its answer leads to a change.
        before_a_change = sorted([*ALL, TARGET])
        assert await requests(cluster, reconciler) == (before_a_change, [BUDGET])
        assert await requests(cluster, reconciler) == (AT_REST, [])
        del cluster.objects[GROUP]["spec"]["podDisruptionBudget"]
        assert await requests(cluster, reconciler) == (before_a_change, [BUDGET])
        # The answer to a deletion has no version.
        assert await requests(cluster, reconciler) == (ALL, [])
        assert await requests(cluster, reconciler) == (AT_REST, [])

    played(story)


def test_nothing_is_written_on_the_word_of_an_index_that_lags() -> None:
    async def story(cluster: AppliedCluster, reconciler: Reconciler) -> None:
        # The watch has shown the deletion, and not yet that another client has created it again.
        config = cluster.objects[CONFIG]
        config["metadata"]["resourceVersion"] = "150"
        await cluster.show(CONFIG_MAP, CONFIG, DELETED)
        config["metadata"]["resourceVersion"] = "151"
        assert await requests(cluster, reconciler) == (sorted([*ALL, TARGET]), [])
        assert await requests(cluster, reconciler) == (AT_REST, [])

    played(story)


def test_what_the_watch_shows_to_be_changed_or_deleted_is_put_back() -> None:
    async def story(cluster: AppliedCluster, reconciler: Reconciler) -> None:
        wanted = cluster.objects[CONFIG]["data"]
        cluster.objects[CONFIG] |= {"data": {}}
        cluster.objects[CONFIG]["metadata"]["resourceVersion"] = "150"
        cluster._version = 150
        await cluster.show(CONFIG_MAP, CONFIG)
        assert (await requests(cluster, reconciler))[1] == [CONFIG]
        assert cluster.objects[CONFIG]["data"] == wanted
        cluster.objects[CONFIG]["metadata"]["resourceVersion"] = "160"
        cluster._version = 160
        await cluster.show(CONFIG_MAP, CONFIG, DELETED)
        del cluster.objects[CONFIG]
        assert (await requests(cluster, reconciler))[1] == [CONFIG]
        assert await requests(cluster, reconciler) == (AT_REST, [])

    played(story)


def test_an_object_of_another_owner_is_named_although_no_watch_shows_it() -> None:
    async def story(cluster: AppliedCluster, reconciler: Reconciler) -> None:
        cluster.objects[CONFIG]["metadata"]["resourceVersion"] = "150"
        await cluster.show(CONFIG_MAP, CONFIG, DELETED)
        cluster.objects[CONFIG] = {
            "metadata": {"namespace": "shop", "name": "rota-orders", "resourceVersion": "151"}
        }
        assert (await requests(cluster, reconciler))[1] == []
        refusal = cluster.outcomes[-1].decision.refusal
        assert refusal is not None
        assert "ConfigMap rota-orders belongs to another owner" in refusal.message

    played(story)


@pytest.mark.parametrize("path", [GROUP, TARGET])
def test_a_reconcile_after_one_that_has_failed_reads_everything(path: str) -> None:
    async def story(cluster: AppliedCluster, reconciler: Reconciler) -> None:
        cluster.refuse = lambda sent: status(503, "", "overloaded") if sent.path == path else None
        with pytest.raises(Unavailable):
            await reconciler.reconcile(KEY)
        cluster.refuse = lambda sent: None
        cluster.take_requests()
        # The ConsumerGroup is read before the index is asked.
        assert await requests(cluster, reconciler) == (AT_REST if path == GROUP else ALL, [])

    played(story)


def test_a_reconcile_after_one_that_was_cancelled_reads_everything() -> None:
    async def story(cluster: AppliedCluster, reconciler: Reconciler) -> None:
        task = asyncio.create_task(reconciler.reconcile(KEY))
        while TARGET not in (each.path for each in cluster.server.sent):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        cluster.take_requests()
        assert await requests(cluster, reconciler) == (ALL, [])

    played(story)


def test_a_conflict_is_decided_anew_on_what_is_read_for_it() -> None:
    async def story(cluster: AppliedCluster, reconciler: Reconciler) -> None:
        conflicts = iter([status(409, "Conflict", "the object has been modified")])
        cluster.refuse = lambda sent: next(conflicts, None) if sent.method == "PATCH" else None
        cluster.objects[GROUP]["spec"]["podDisruptionBudget"] = {"maxUnavailable": 1}
        reads, _ = await requests(cluster, reconciler)
        assert reads == sorted([*ALL, TARGET, *ALL])

    played(story)


def test_a_group_that_is_being_deleted_reads_everything() -> None:
    async def story(cluster: AppliedCluster, reconciler: Reconciler) -> None:
        cluster.objects[GROUP]["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
        cluster.objects[GROUP]["spec"]["deletionPolicy"] = "DeleteGroup"
        reads, writes = await requests(cluster, reconciler)
        assert writes == [TARGET]
        # A release looks its workload up.
        assert reads == sorted([*ALL, TARGET])
        assert await requests(cluster, reconciler) == (ALL, [])

    played(story)
