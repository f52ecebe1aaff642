"""`rota groups` where several coordinators share a store: whichever is named, all groups are seen."""

import asyncio
from pathlib import Path

import grpc
import pytest

from rota.offsets import by_topic
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.cli.command import Rota
from tests.coordinator.fleet import Fleet, until

pytestmark = pytest.mark.process

GROUPS = [f"group-{number}" for number in range(6)]
WITHIN_S = 40


def commit(addresses: list[str], group: str) -> str:
    """Commit at the group's coordinator; return that coordinator."""
    request = pb.CommitOffsetsRequest(group_id=group, generation_id=-1, topics=by_topic({("orders", 0): 7}))
    for address in addresses:
        with grpc.insecure_channel(address) as channel:
            answer = CoordinatorStub(channel).CommitOffsets(request, timeout=WITHIN_S)
        if answer.error_code != pb.NOT_COORDINATOR and all(
            each.error_code != pb.NOT_COORDINATOR for topic in answer.topics for each in topic.partitions
        ):
            return address
    raise AssertionError(f"nobody coordinates {group}")


def test_groups_of_all_coordinators_are_listed_and_found_by_any(tmp_path: Path, database: str) -> None:
    with Fleet(tmp_path, database, "ab") as fleet:
        asyncio.run(until(fleet.is_shared_equally))
        addresses = list(fleet.addresses.values())
        owners = {group: commit(addresses, group) for group in GROUPS}
        assert set(owners.values()) == set(addresses), "each coordinates some of them"

        rota = Rota(f"rota://{addresses[0]}", tmp_path)
        assert [each["group"] for each in rota("groups", "list", "-o", "json").data] == GROUPS
        elsewhere = next(group for group, owner in owners.items() if owner == addresses[1])
        found = rota("groups", "describe", elsewhere, "-o", "json").data
        assert (found["state"], found["coordinator"]) == ("Empty", addresses[1])
        assert rota("groups", "offsets", elsewhere, "-o", "json").data[0]["offset"] == 7
        assert rota("groups", "delete", elsewhere, "--yes").code == 0

        without_a_log = rota("topics", "list")
        assert (without_a_log.code, "start the coordinator with --log" in without_a_log.error) == (1, True)
