"""A Fleet stream that is rejected in a cluster is a structured log record, and many of them are few records."""

import argparse
import asyncio
import io
import json
import time

import grpc
import grpc.aio
import pytest

from rota_operator.cluster.api import Api
from rota_operator.cluster.channels import Channels
from rota_operator.cluster.config import add_flags, config_of
from rota_operator.cluster.groups import GroupCallbacks, GroupWatches
from rota_operator.cluster.index import ResourceIndex
from rota_operator.cluster.process_clocks import ProcessClocks
from rota_operator.cluster.rejection_limit import RECORDS_MAX
from rota_operator.cluster.sidecars import ClusterFleet, FleetEnvironment
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetStub
from rota_service.event_log import open_event_log
from tests.operator.cluster.api_server import Answer, ApiServer, run

pytestmark = pytest.mark.process


def on_exception(error: Exception) -> None:
    raise AssertionError from error


def test_a_rejected_stream_is_one_record_and_a_flood_of_them_is_not() -> None:
    log = io.StringIO()
    parser = argparse.ArgumentParser()
    add_flags(parser)
    config = config_of(parser.parse_args(["--fleet-listen=127.0.0.1:0"]), "rota", "host")

    async def story(api: Api) -> None:
        clocks = ProcessClocks(lambda: time.time_ns() // 1_000_000, asyncio.get_running_loop().time)
        groups = GroupWatches(
            Channels(lambda: None, insecure=True),
            GroupCallbacks(lambda _: None, lambda _: None, lambda _: None, on_exception),
            clocks.wall_ms,
        )
        event_log = open_event_log("rota-operator", "json", log)
        fleet = ClusterFleet(
            FleetEnvironment(api, ResourceIndex(), groups, clocks, event_log),
            1,
            lambda _: None,
            lambda _: False,
        )
        async with fleet.serve(config) as address, grpc.aio.insecure_channel(address) as channel:
            for _ in range(RECORDS_MAX + 5):
                assert await FleetStub(channel).Connect().code() == grpc.StatusCode.UNAUTHENTICATED
        await groups.close()

    run(ApiServer(lambda _: Answer(404)), story)
    records = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(each["level"], each["event"], each.get("suppressed")) for each in records] == [
        ("warning", "fleet_rejection", 0)
    ] * RECORDS_MAX
    first = records[0]
    assert first["peer"].startswith("ipv4:127.0.0.1:")
    assert first["reason"].startswith("the call has no token")
    assert first["message"] == f"rejected a sidecar at {first['peer']}: {first['reason']}"
