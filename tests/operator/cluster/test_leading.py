"""A leader whose term ends lets go of its sidecars, although its process goes on."""

import argparse
import asyncio
import logging
import time
from typing import Any

import grpc
import grpc.aio
import pytest

from rota_operator.cluster.api import Api
from rota_operator.cluster.config import add_flags, config_of
from rota_operator.cluster.leading import Environment, Leading
from rota_operator.cluster.metrics import Metrics
from rota_operator.cluster.process_clocks import ProcessClocks
from rota_operator.reconcile.actions import CLAIM_LABEL
from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetStub
from rota_service.event_log import EventLog
from rota_service.pod_tokens import POD_NAME, POD_UID
from tests.operator.cluster.api_server import Answer, ApiServer, Sent, serving

pytestmark = pytest.mark.process

WITHIN_S = 90

Json = dict[str, Any]
POD = "orders-0"
UID = "11-22"
GROUP: Json = {
    "apiVersion": "rota.dev/v1alpha1",
    "kind": "ConsumerGroup",
    "metadata": {"name": "orders", "namespace": "shop", "uid": "33-44", "resourceVersion": "1"},
    "spec": {
        "topics": ["orders"],
        "bootstrapServers": "rota://127.0.0.1:1",
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "orders"},
    },
}


# kopf asks which kinds there are; without any it watches none, and runs all the same.
KINDS: dict[str, Json] = {"/api": {"versions": []}, "/apis": {"groups": []}}


def answer(sent: Sent) -> Answer:
    """Answer as an API server with one ConsumerGroup and one pod of it."""
    if sent.path in KINDS:
        return Answer(body=KINDS[sent.path])
    if sent.path == "/version":
        return Answer(body={"major": "1", "minor": "35"})
    if sent.path.endswith("/tokenreviews"):
        user = {
            "username": "system:serviceaccount:shop:default",
            "extra": {POD_NAME: [POD], POD_UID: [UID]},
        }
        audiences = sent.body["spec"]["audiences"]
        return Answer(201, {"status": {"authenticated": True, "audiences": audiences, "user": user}})
    if sent.path.endswith(f"/pods/{POD}"):
        labels = {CLAIM_LABEL: GROUP["metadata"]["uid"]}
        return Answer(body={"metadata": {"name": POD, "uid": UID, "labels": labels}})
    if sent.path.endswith("/consumergroups") and "watch" not in sent.query:
        return Answer(body={"items": [GROUP], "metadata": {"resourceVersion": "1"}})
    if sent.path.endswith("/consumergroups/orders") and sent.method == "GET":
        return Answer(body=GROUP)
    return Answer(404)


def environment(api: Api) -> Environment:
    parser, log = argparse.ArgumentParser(), logging.getLogger("leading")
    add_flags(parser)
    flags = ["--sidecar-image=rota-sidecar:1", "--namespace=shop", "--fleet-listen=127.0.0.1:0", "--insecure"]
    return Environment(
        config_of(parser.parse_args(flags), "", "host-1"),
        api,
        EventLog(log),
        Metrics(),
        ProcessClocks(lambda: time.time_ns() // 1_000_000, asyncio.get_running_loop().time),
        lambda: None,
    )


def test_streams_of_sidecars_end_with_the_term(caplog: pytest.LogCaptureFixture) -> None:
    """The end of kopf's watches cancels what has begun after them, and a stream that is cancelled is never ended."""
    caplog.set_level(logging.INFO)

    server = ApiServer(answer)

    async def story(api: Api) -> None:
        leader = Leading(environment(api), 1)
        leading = asyncio.create_task(leader.run())
        try:
            while not (said := [each.message for each in caplog.records if "fleet on " in each.message]):
                await asyncio.sleep(0)
                assert not leading.done(), leading.result()
            async with grpc.aio.insecure_channel(said[0].removeprefix("fleet on ")) as channel:
                stream = FleetStub(channel).Connect(metadata=(("authorization", "Bearer token"),))
                await stream.write(pb.SidecarReport(sidecar=POD, group_id="shop.orders"))
                while not (
                    leader._fleet.server.connected and {each.path for each in server.sent} >= KINDS.keys()
                ):
                    await asyncio.sleep(0)
                leading.cancel()
                assert await stream.code() is grpc.StatusCode.UNAVAILABLE
        finally:
            # A second cancellation would interrupt its end, and leave kopf's connections open.
            if not leading.cancelling():
                leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)

    async def bounded() -> None:
        async with asyncio.timeout(WITHIN_S), serving(server) as api:
            await story(api)

    asyncio.run(bounded())
