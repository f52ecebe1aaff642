"""
A program: Fleet in a cluster rejects streams without a token, one after the other; the event log goes to standard output.

Run by `test_fleet_rejections`. An event log has the records of all libraries of its process, and what other tests have left behind is
collected at any time.
"""

import argparse
import asyncio
import sys
import time

import grpc
import grpc.aio

from rota_operator.cluster.api import Api
from rota_operator.cluster.channels import Channels
from rota_operator.cluster.config import add_flags, config_of
from rota_operator.cluster.groups import GroupCallbacks, GroupWatches
from rota_operator.cluster.index import ResourceIndex
from rota_operator.cluster.process_clocks import ProcessClocks
from rota_operator.cluster.sidecars import ClusterFleet, FleetEnvironment
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetStub
from rota_service.event_log import open_event_log
from tests.operator.cluster.api_server import Answer, ApiServer, run


def on_exception(error: Exception) -> None:
    raise AssertionError from error


def main(streams: int) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    config = config_of(parser.parse_args(["--fleet-listen=127.0.0.1:0"]), "rota", "host")
    event_log = open_event_log("rota-operator", "json", sys.stdout)

    async def story(api: Api) -> None:
        clocks = ProcessClocks(lambda: time.time_ns() // 1_000_000, asyncio.get_running_loop().time)
        groups = GroupWatches(
            Channels(lambda: None, insecure=True),
            GroupCallbacks(lambda _: None, lambda _: None, lambda _: None, on_exception),
            clocks.wall_ms,
        )
        fleet = ClusterFleet(
            FleetEnvironment(api, ResourceIndex(), groups, clocks, event_log),
            1,
            lambda _: None,
            lambda _: False,
            lambda _: None,
        )
        async with fleet.serve(config) as address, grpc.aio.insecure_channel(address) as channel:
            for _ in range(streams):
                assert await FleetStub(channel).Connect().code() == grpc.StatusCode.UNAUTHENTICATED
        await groups.close()

    run(ApiServer(lambda _: Answer(404)), story)


if __name__ == "__main__":
    main(int(sys.argv[1]))
