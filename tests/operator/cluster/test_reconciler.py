"""One reconcile: what its outcome is, when it is repeated, and what is reported of it."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rota_operator.cluster.api import Api
from rota_operator.cluster.channels import Channels
from rota_operator.cluster.errors import Conflict, Forbidden, Unavailable
from rota_operator.cluster.groups import GroupCallbacks, GroupWatches
from rota_operator.cluster.index import ResourceIndex
from rota_operator.cluster.observe import Surroundings
from rota_operator.cluster.owned_index import OwnedIndex
from rota_operator.cluster.perform import Performer
from rota_operator.cluster.queues import Key
from rota_operator.cluster.reconciler import (
    ATTEMPTS_MAX,
    AUTOSCALED_S,
    CONFLICT_S,
    DELETION_S,
    JITTER,
    LOOK_FIRST_S,
    LOOK_MAX_S,
    Outcome,
    Reconciler,
    Reports,
    look_again_s,
)
from rota_operator.cluster.shared_reads import SharedReads
from rota_operator.reconcile.observed import OperatorSettings
from rota_operator.spec.conditions import Reason
from tests.operator.cluster.api_server import Answer, ApiServer, Sent, run, status, written
from tests.operator.cluster.test_perform import Others, field_conflict

KEY = Key("shop", "orders")
GROUP = "/apis/rota.dev/v1alpha1/namespaces/shop/consumergroups/orders"
TARGET = "/apis/apps/v1/namespaces/shop/deployments/app"
RESYNC_S = 100.0


class Cluster:
    """Objects by path, as much of an API server as a reconcile needs. `refuse` answers a request instead, if it returns one."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {
            GROUP: {
                "metadata": {
                    "namespace": "shop", "name": "orders", "uid": "u-1", "resourceVersion": "1",
                    "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
                },
                "spec": {
                    "bootstrapServers": ["rota://127.0.0.1:1"], "topics": ["orders"],
                    "scaleTargetRef": {"kind": "Deployment", "name": "app"},
                },
            },
            TARGET: {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"namespace": "shop", "name": "app", "uid": "u-2", "resourceVersion": "7"},
                "spec": {
                    "replicas": 1,
                    "selector": {"matchLabels": {"app": "app"}},
                    "template": {
                        "metadata": {"labels": {"app": "app"}},
                        "spec": {"containers": [{"name": "app", "image": "app:1"}], "terminationGracePeriodSeconds": 30},
                    },
                },
            },
        }  # fmt: skip
        self.refuse: Callable[[Sent], Answer | None] = lambda sent: None
        self.server = ApiServer(self.answer)
        self.outcomes: list[Outcome] = []
        self.gone: list[Key] = []

    def answer(self, sent: Sent) -> Answer:
        if (refusal := self.refuse(sent)) is not None:
            return refusal
        if sent.method != "GET":
            return written(sent)
        if sent.path in self.objects:
            return Answer(body=copy.deepcopy(self.objects[sent.path]))
        is_list = sent.path.rpartition("/")[2] in ("deployments", "statefulsets", "horizontalpodautoscalers")
        return Answer(body={"items": []}) if is_list else status(404, "NotFound", "not found")

    @property
    def writes(self) -> list[str]:
        return [each.path for each in self.server.sent if each.method != "GET"]


def play(
    cluster: Cluster, story: Callable[[Reconciler], Awaitable[None]], owned: OwnedIndex | None = None
) -> None:
    owned = owned or OwnedIndex(RESYNC_S)

    async def with_reconciler(api: Api) -> None:
        callbacks = GroupCallbacks(lambda key: None, lambda key: None, lambda key: None, lambda error: None)
        groups = GroupWatches(Channels(lambda: None, insecure=True), callbacks, lambda: 0)
        settings = OperatorSettings(sidecar_image="sidecar:1", fleet_address="fleet:7083", insecure=True)
        reconciler = Reconciler(
            api,
            Surroundings(
                ResourceIndex(), groups, SharedReads(api, window_s=0.0), owned, lambda: settings, (1, 35)
            ),
            Performer(api, groups, Others(), lambda resource, action: None, owned),
            groups,
            Reports(lambda key, outcome: cluster.outcomes.append(outcome), cluster.gone.append),
            RESYNC_S,
        )
        try:
            await story(reconciler)
        finally:
            await groups.close()

    run(cluster.server, with_reconciler)


def test_a_group_is_adopted_and_compared_again_after_the_interval_give_or_take_a_share_of_it() -> None:
    cluster = Cluster()

    async def story(reconciler: Reconciler) -> None:
        again_s = await reconciler.reconcile(KEY)
        assert again_s is not None
        assert RESYNC_S * (1 - JITTER) <= again_s <= RESYNC_S * (1 + JITTER)

    play(cluster, story)
    config_map = "/api/v1/namespaces/shop/configmaps/rota-orders"
    assert cluster.writes == [GROUP, config_map, TARGET]
    [outcome] = cluster.outcomes
    assert (outcome.decision.refusal, outcome.failure) == (None, None)


def test_a_change_by_another_client_is_decided_anew_at_once() -> None:
    cluster = Cluster()
    conflicts = iter([status(409, "Conflict", "the object has been modified")])
    cluster.refuse = lambda sent: (
        next(conflicts, None) if (sent.method, sent.path) == ("PATCH", TARGET) else None
    )

    async def story(reconciler: Reconciler) -> None:
        await reconciler.reconcile(KEY)

    play(cluster, story)
    assert cluster.writes.count(TARGET) == 2
    assert [each.failure for each in cluster.outcomes] == [None]


def test_a_client_that_is_first_each_time_is_given_way_to_after_some_attempts() -> None:
    cluster = Cluster()
    cluster.refuse = lambda sent: (
        status(409, "Conflict", "the object has been modified")
        if (sent.method, sent.path) == ("PATCH", TARGET)
        else None
    )

    async def story(reconciler: Reconciler) -> None:
        assert await reconciler.reconcile(KEY) == CONFLICT_S

    play(cluster, story)
    assert cluster.writes.count(TARGET) == ATTEMPTS_MAX
    [outcome] = cluster.outcomes
    assert outcome.failure is not None
    assert outcome.failure.reason == Reason.UNAVAILABLE


DENIED = 'User "operator" cannot patch resource "deployments" in API group "apps"'


@pytest.mark.parametrize(
    ("answer", "error", "reason", "part"),
    [
        (field_conflict(".spec.template.spec.volumes"), Conflict, Reason.FIELD_CONFLICT, "kubectl manages"),
        (status(403, "Forbidden", DENIED), Forbidden, Reason.FORBIDDEN, "patch deployments"),
    ],
    ids=["field", "right"],
)
def test_a_refused_change_is_reported_with_its_reason_and_tried_once(
    answer: Answer, error: type[Exception], reason: Reason, part: str
) -> None:
    cluster = Cluster()
    cluster.refuse = lambda sent: answer if (sent.method, sent.path) == ("PATCH", TARGET) else None

    async def story(reconciler: Reconciler) -> None:
        with pytest.raises(error):
            await reconciler.reconcile(KEY)

    play(cluster, story)
    assert cluster.writes.count(TARGET) == 1
    [outcome] = cluster.outcomes
    assert outcome.failure is not None
    assert (outcome.failure.reason, part in outcome.failure.message) == (reason, True)


@pytest.mark.parametrize("paths", [{TARGET}, {TARGET, f"{TARGET.rpartition('/')[0]}"}])
def test_a_server_that_fails_while_the_cluster_is_read_is_the_api_servers_error_and_no_bug(
    paths: set[str],
) -> None:
    cluster = Cluster()
    cluster.refuse = lambda sent: status(503, "", "overloaded") if sent.path in paths else None

    async def story(reconciler: Reconciler) -> None:
        with pytest.raises(Unavailable):
            await reconciler.reconcile(KEY)

    play(cluster, story)
    assert cluster.writes == []


def test_a_group_that_rota_scales_is_compared_soon_because_no_watch_reports_other_autoscalers() -> None:
    cluster = Cluster()
    cluster.objects[GROUP]["spec"]["autoscaling"] = {"enabled": True}
    theirs = {
        "metadata": {"name": "theirs"},
        "spec": {"scaleTargetRef": {"kind": "ConsumerGroup", "name": KEY.name}},
    }

    async def story(reconciler: Reconciler) -> None:
        assert await reconciler.reconcile(KEY) == AUTOSCALED_S
        autoscalers = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
        cluster.objects[autoscalers] = {"items": [theirs]}
        cluster.objects[GROUP]["metadata"]["generation"] = 2
        await reconciler.reconcile(KEY)

    play(cluster, story)
    [before, after] = cluster.outcomes
    assert (before.decision.is_autoscaled, after.observed.group_autoscalers) == (True, ("theirs",))
    assert not after.decision.is_autoscaled


def assert_looks(again_s: float | None) -> None:
    """Assert that the next reconcile looks for something that no watch reports."""
    assert again_s is not None
    assert LOOK_FIRST_S <= again_s <= LOOK_MAX_S


def assert_at_rest(again_s: float | None) -> None:
    """Assert that the next reconcile is a resync."""
    assert again_s is not None
    assert again_s > LOOK_MAX_S


@pytest.mark.parametrize(
    ("looked_s", "again_s"), [(0, LOOK_FIRST_S), (0.9, LOOK_FIRST_S), (4, 4), (29, 29), (1_000, LOOK_MAX_S)]
)
def test_what_is_not_watched_is_looked_for_less_and_less_often(looked_s: float, again_s: float) -> None:
    assert look_again_s(looked_s) == again_s


def test_a_missing_workload_is_looked_for_until_it_is_there() -> None:
    cluster = Cluster()
    target = cluster.objects.pop(TARGET)

    async def story(reconciler: Reconciler) -> None:
        assert_looks(await reconciler.reconcile(KEY))
        cluster.objects[TARGET] = target
        assert_at_rest(await reconciler.reconcile(KEY))
        del cluster.objects[TARGET]
        assert_looks(await reconciler.reconcile(KEY))

    play(cluster, story)


def test_a_secret_that_is_reported_missing_late_is_named_and_looked_for_until_the_pod_starts() -> None:
    cluster = Cluster()
    pods, events = "/api/v1/namespaces/shop/pods", "/api/v1/namespaces/shop/events"
    key = {"name": "login", "key": "ca.crt"}
    cluster.objects[GROUP]["spec"] |= {
        "bootstrapServers": ["kafka.example.com:9092"], "auth": {"tls": {"caCertSecret": key}},
    }  # fmt: skip
    pod = {"metadata": {"uid": "u-3"}, "status": {"phase": "Pending"}}
    cluster.objects |= {pods: {"items": [pod]}, events: {"items": []}}

    async def story(reconciler: Reconciler) -> None:
        assert_looks(await reconciler.reconcile(KEY))
        # No watch reports the kubelet's event.
        message = 'MountVolume.SetUp failed for volume "rota-auth" : secret "login" not found'
        cluster.objects[events]["items"] = [{"metadata": {"resourceVersion": "9"}, "message": message}]
        assert_looks(await reconciler.reconcile(KEY))
        pod["status"] = {"phase": "Running"}
        assert_at_rest(await reconciler.reconcile(KEY))

    play(cluster, story)
    refusals = [each.decision.refusal for each in cluster.outcomes]
    assert [None if each is None else each.reason for each in refusals] == [
        None,
        Reason.SECRET_NOT_FOUND,
        None,
    ]


def test_a_stateful_set_that_lacks_pods_is_looked_at_until_its_newest_event_is_a_creation() -> None:
    cluster = Cluster()
    path, events = "/apis/apps/v1/namespaces/shop/statefulsets/app", "/api/v1/namespaces/shop/events"
    target = cluster.objects[path] = cluster.objects.pop(TARGET) | {"kind": "StatefulSet"}
    cluster.objects[GROUP]["spec"]["scaleTargetRef"]["kind"] = "StatefulSet"
    refused = {
        "reason": "FailedCreate", "message": "exceeded quota", "lastTimestamp": "2026-09-21T09:00:02Z",
    }  # fmt: skip
    created = {"reason": "SuccessfulCreate", "message": "created", "lastTimestamp": "2026-09-21T09:00:01Z"}
    other = {"reason": "Unrelated", "message": "later", "lastTimestamp": "2026-09-21T09:00:09Z"}
    items: list[Any] = []
    cluster.objects[events] = {"items": items}

    async def story(reconciler: Reconciler) -> None:
        assert_looks(await reconciler.reconcile(KEY))
        # No watch reports the controller's Event.
        items.extend([created, refused, other])
        assert_looks(await reconciler.reconcile(KEY))
        created["lastTimestamp"] = "2026-09-21T09:00:03Z"
        assert_looks(await reconciler.reconcile(KEY))
        target["status"] = {"replicas": 1}
        assert_at_rest(await reconciler.reconcile(KEY))

    play(cluster, story)
    assert [each.observed.refused_pods for each in cluster.outcomes] == ["", "exceeded quota", "", ""]


def test_a_right_to_read_that_is_missing_is_reported_and_what_is_pinned_stays() -> None:
    cluster = Cluster()
    cluster.objects[GROUP]["status"] = {"groupId": "shop.orders", "sidecarImage": "sidecar:0"}
    denied = 'User "operator" cannot list resource "horizontalpodautoscalers" in API group "autoscaling"'
    cluster.refuse = lambda sent: (
        status(403, "Forbidden", denied) if sent.path.endswith("/horizontalpodautoscalers") else None
    )

    async def story(reconciler: Reconciler) -> None:
        with pytest.raises(Forbidden):
            await reconciler.reconcile(KEY)

    play(cluster, story)
    [outcome] = cluster.outcomes
    assert outcome.failure is not None
    assert outcome.failure.reason == Reason.FORBIDDEN
    assert "may not list horizontalpodautoscalers" in outcome.failure.message
    assert (outcome.decision.group_id, outcome.decision.sidecar_image) == ("shop.orders", "sidecar:0")
    assert cluster.writes == []


def test_a_group_that_is_being_deleted_is_looked_at_until_it_is_gone() -> None:
    cluster = Cluster()
    cluster.objects[GROUP]["metadata"] |= {
        "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["rota.dev/release"],
    }  # fmt: skip

    async def story(reconciler: Reconciler) -> None:
        assert await reconciler.reconcile(KEY) == DELETION_S
        del cluster.objects[GROUP]
        assert await reconciler.reconcile(KEY) is None

    play(cluster, story)
    assert cluster.gone == [KEY]


def test_groups_are_reconciled_side_by_side() -> None:
    cluster = Cluster()

    async def story(reconciler: Reconciler) -> None:
        await asyncio.gather(reconciler.reconcile(KEY), reconciler.reconcile(Key("shop", "missing")))

    play(cluster, story)
    assert cluster.gone == [Key("shop", "missing")]
    assert len(cluster.outcomes) == 1
