"""Lists that several reconciles need: one request for those of a namespace, and a missing right concerns its namespace alone."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from rota_operator.cluster.api import Api
from rota_operator.cluster.batches import Batches
from rota_operator.cluster.errors import Forbidden
from rota_operator.cluster.shared_reads import KEPT_S, SharedReads
from rota_operator.reconcile.actions import CLAIM_LABEL
from tests.operator.cluster.api_server import Answer, ApiServer, Sent, run, status

APPS = "/apis/apps/v1/namespaces"
DENIED = 'User "operator" cannot list resource "deployments" in API group "apps"'


def workload(name: str, uid: str) -> Mapping[str, Any]:
    return {"metadata": {"name": name, "labels": {CLAIM_LABEL: uid}}}


def answer(sent: Sent) -> Answer:
    if sent.path == f"{APPS}/closed/deployments":
        return status(403, "Forbidden", DENIED)
    items = {
        f"{APPS}/shop/deployments": [workload("a", "u-1"), workload("b", "u-2"), workload("c", "u-2")],
        "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers": [{"metadata": {"name": "foreign"}}],
    }
    return Answer(body={"items": items.get(sent.path, [])})


def test_reconciles_at_the_same_time_share_a_list_and_each_gets_its_own_workloads() -> None:
    server = ApiServer(answer)

    async def story(api: Api) -> None:
        reads = SharedReads(api)
        found = await asyncio.gather(*(reads.adopted("shop", uid) for uid in ("u-1", "u-2", "u-3")))
        names = [[each["metadata"]["name"] for each in some] for some in found]
        assert names == [["a"], ["b", "c"], []]
        assert {each["kind"] for some in found for each in some} == {"Deployment"}

    run(server, story)
    selector = f"{CLAIM_LABEL} in (u-1,u-2,u-3)"
    lists = {(each.path, each.query["labelSelector"]) for each in server.sent}
    assert lists == {(f"{APPS}/shop/{plural}", selector) for plural in ("deployments", "statefulsets")}
    assert len(server.sent) == 2


def test_autoscalers_are_listed_once_for_all_who_wait_and_again_for_those_who_come_later() -> None:
    server = ApiServer(answer)

    async def story(api: Api) -> None:
        reads = SharedReads(api)
        found = await asyncio.gather(reads.autoscalers("shop", 0.0), reads.autoscalers("shop", 0.0))
        assert [[each["metadata"]["name"] for each in some] for some in found] == [["foreign"], ["foreign"]]
        assert len(server.sent) == 1
        assert list(await reads.autoscalers("other", 0.0)) == []
        await reads.autoscalers("shop", 0.0)

    run(server, story)
    assert len(server.sent) == 3


def test_autoscalers_are_not_listed_again_for_a_caller_that_accepts_an_older_list() -> None:
    server = ApiServer(answer)

    async def story(api: Api) -> None:
        reads = SharedReads(api)
        listed = {name: await reads.autoscalers(name, 100.0) for name in ("shop", "other")}
        for name, found in listed.items():
            assert await reads.autoscalers(name, 100.0 + KEPT_S - 0.1, KEPT_S) is found
        assert len(server.sent) == 2
        await reads.autoscalers("shop", 100.0 + KEPT_S, KEPT_S)
        assert len(server.sent) == 3
        # Kept lists end with their time.
        await reads.autoscalers("other", 100.0 + KEPT_S, 2 * KEPT_S)
        assert len(server.sent) == 4

    run(server, story)


def test_a_right_that_is_missing_in_one_namespace_fails_the_reads_there_alone() -> None:
    async def story(api: Api) -> None:
        reads = SharedReads(api)
        there, here = await asyncio.gather(
            reads.adopted("closed", "u-1"), reads.adopted("shop", "u-1"), return_exceptions=True
        )
        assert isinstance(there, Forbidden)
        assert isinstance(here, tuple)
        assert [each["metadata"]["name"] for each in here] == ["a"]

    run(ApiServer(answer), story)


def test_a_request_that_fails_fails_for_those_that_wait_for_it_and_its_task_does_not() -> None:
    """kopf ends with the error of any task that goes on when it ends."""
    requests: list[asyncio.Task[Any] | None] = []

    async def refuse(_: str, asked: Collection[str]) -> Mapping[str, str]:
        requests.append(asyncio.current_task())
        raise Forbidden(DENIED, "list", "deployments")

    async def story() -> None:
        batches = Batches(refuse, 0.0)
        waiting = [batches.get("shop", [uid]) for uid in ("u-1", "u-2")]
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in found] == [Forbidden, Forbidden]
        [request] = requests
        assert request is not None
        assert request.done()
        assert request.exception() is None

    asyncio.run(story())
