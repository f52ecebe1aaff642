"""Groups of Rota's coordinators, through `rota.coordinator.v1.Admin`."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import grpc
from typing_extensions import override

from rota import errors
from rota.offsets import by_topic
from rota.records import TopicPartition
from rota_cli.clusters.model import CLASSIC, Check, CheckStatus, Committed, Group, ListedGroup, Member
from rota_cli.clusters.port import Groups, GroupSnapshot, Offsets, subscribed_topics
from rota_cli.clusters.rota.consumer_protocol import decode_assignment, decode_subscription
from rota_cli.clusters.rota.server import RotaServer
from rota_cli.errors import ExitCode, Failure, group_error
from rota_cli.output.units import by_topic as partitions_by_topic
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub

# Kafka's names.
STATES = {
    admin.GROUP_STATE_EMPTY: "Empty",
    admin.GROUP_STATE_PREPARING_REBALANCE: "PreparingRebalance",
    admin.GROUP_STATE_COMPLETING_REBALANCE: "CompletingRebalance",
    admin.GROUP_STATE_STABLE: "Stable",
    admin.GROUP_STATE_DEAD: "Dead",
}


MOVED_CODES = (pb.NOT_COORDINATOR, pb.COORDINATOR_LOAD_IN_PROGRESS, pb.COORDINATOR_NOT_AVAILABLE)


class RotaGroups(Groups):
    """The groups of one coordinator, or of all coordinators that share its store."""

    def __init__(self, server: RotaServer) -> None:
        self._server = server

    @override
    def list_all(self) -> Sequence[ListedGroup]:
        found = [group for address in self._coordinator_addresses() for group in self._list_groups(address)]
        return sorted(
            (
                ListedGroup(each.group_id, STATES.get(each.state, "Unknown"), each.protocol_type, CLASSIC)
                for each in found
            ),
            key=lambda group: group.group,
        )

    def _coordinator_addresses(self) -> list[str]:
        """Return all coordinators; a single one by the given address, since its advertised one may not be reachable."""
        request = admin.DescribeSlotsRequest()
        slots = self._server.ask(lambda channel: AdminStub(channel).DescribeSlots, request).slots
        owners = sorted({slot.owner_address for slot in slots if slot.owner_address})
        return owners if len(owners) > 1 else [self._server.address]

    def _list_groups(self, address: str) -> Iterable[admin.ListedGroup]:
        answer = self._server.ask(
            lambda channel: AdminStub(channel).ListGroups, admin.ListGroupsRequest(), address
        )
        if answer.error_code:
            raise errors.error_of(answer.error_code, address)
        return answer.groups

    @override
    def describe(self, group_id: str) -> Group:
        address, answer = self._server.ask_coordinator(
            group_id,
            lambda channel: AdminStub(channel).DescribeGroups,
            admin.DescribeGroupsRequest(group_ids=[group_id]),
            lambda answer: answer.groups[0].error_code,
        )
        found = answer.groups[0]
        if found.error_code:
            raise group_error(found.error_code, group_id, address)
        return to_group(found, address)

    @override
    def offsets(self, group_id: str) -> dict[TopicPartition, Committed]:
        address, answer = self._server.ask_coordinator(
            group_id,
            lambda channel: CoordinatorStub(channel).FetchOffsets,
            pb.FetchOffsetsRequest(group_id=group_id, all=True),
            lambda answer: answer.error_code,
        )
        if answer.error_code:
            raise group_error(answer.error_code, group_id, address)
        return {
            TopicPartition(topic.name, each.index): Committed(each.offset, each.metadata)
            for topic in answer.topics
            for each in topic.partitions
            if each.offset >= 0
        }

    @override
    def alter(self, group_id: str, offsets: Offsets) -> None:
        address, answer = self._server.ask_coordinator(
            group_id,
            lambda channel: AdminStub(channel).AlterOffsets,
            admin.AlterOffsetsRequest(group_id=group_id, topics=by_topic(offsets)),
            lambda answer: answer.error_code,
        )
        if answer.error_code:
            raise group_error(answer.error_code, group_id, address)
        refused = [
            f"{topic.name}[{each.index}]: {pb.ErrorCode.Name(each.error_code)}"
            for topic in answer.topics
            for each in topic.partitions
            if each.error_code
        ]
        if refused:
            raise Failure(
                f"group {group_id} at {address}: some offsets were rejected ({', '.join(refused)}): see `rota groups offsets`, "
                "then reset the rest with --topic"
            )

    @override
    def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[str]:
        named = [
            pb.TopicPartitions(name=topic, partitions=numbers)
            for topic, numbers in partitions_by_topic(partitions).items()
        ]
        address, answer = self._server.ask_coordinator(
            group_id,
            lambda channel: AdminStub(channel).DeleteOffsets,
            admin.DeleteOffsetsRequest(group_id=group_id, topics=named),
            lambda answer: answer.error_code,
        )
        if answer.error_code:
            raise group_error(answer.error_code, group_id, address)
        codes = {
            TopicPartition(topic.name, each.index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }
        return subscribed_topics(codes, group_id, address)

    @override
    def delete(self, group_id: str) -> None:
        address, answer = self._server.ask_coordinator(
            group_id,
            lambda channel: AdminStub(channel).DeleteGroups,
            admin.DeleteGroupsRequest(group_ids=[group_id]),
            lambda answer: answer.groups[0].error_code,
        )
        if answer.groups[0].error_code:
            raise group_error(answer.groups[0].error_code, group_id, address)

    @override
    def watch(self, group_id: str, *, every_s: float) -> Iterator[GroupSnapshot]:
        while True:
            # Find the coordinator again if the group has moved.
            address, _ = self._server.ask_coordinator(
                group_id,
                lambda channel: AdminStub(channel).DescribeGroups,
                admin.DescribeGroupsRequest(group_ids=[group_id]),
                lambda answer: answer.groups[0].error_code,
            )
            yield from self._watched(group_id, address)

    def _watched(self, group_id: str, address: str) -> Iterator[GroupSnapshot]:
        """Stream snapshots until the group moves to another coordinator."""
        server = self._server
        request = admin.WatchGroupRequest(group_id=group_id)
        stream = AdminStub(server.channel(address)).WatchGroup(request, metadata=server.metadata())
        try:
            for event in stream:
                code = event.group.error_code
                if code in MOVED_CODES:
                    return
                if code:
                    raise group_error(code, group_id, address)
                yield GroupSnapshot(to_group(event.group, address), event.timestamp_ms, event.reason)
        except grpc.RpcError as error:
            raise server.translate_error(error, address) from None
        finally:
            stream.cancel()

    @override
    def health(self) -> Iterator[Check]:
        request = admin.DescribeSlotsRequest()
        slots = self._server.ask(lambda channel: AdminStub(channel).DescribeSlots, request).slots
        owners = {slot.owner_address for slot in slots if slot.owner_address}
        vacant = [slot.slot for slot in slots if not slot.owner_address]
        reading = [slot.slot for slot in slots if slot.state == admin.SLOT_STATE_CATCH_UP]
        if vacant:
            says = f"{len(vacant)} of {len(slots)} slots have no coordinator (first: slot {vacant[0]})"
            yield Check(
                "coordinator",
                CheckStatus.FAILED,
                f"{says}: start one, or wait until the lease of the previous one expires",
                ExitCode.NOT_REACHABLE,
            )
        elif reading:
            says = f"{len(reading)} of {len(slots)} slots are still loading (first: slot {reading[0]})"
            yield Check(
                "coordinator",
                CheckStatus.WARNING,
                f"{says}: check again in a moment, or see the coordinator's log and /readyz",
            )
        else:
            several = f"{len(owners)} coordinators serve" if len(owners) > 1 else "one coordinator serves"
            yield Check("coordinator", CheckStatus.OK, f"{several} all {len(slots)} slots")

    @property
    @override
    def rebalance_reason_hint(self) -> str:
        return (
            "this coordinator took over the group after its last rebalance; see the last `rebalance` event of this group in the "
            "log of the previous coordinator"
        )

    @override
    def close(self) -> None:
        self._server.close()


def to_group(found: admin.DescribedGroup, address: str) -> Group:
    """Convert a description from the coordinator at `address`."""
    return Group(
        group=found.group_id,
        state=STATES.get(found.state, "Unknown"),
        protocol_type=found.protocol_type,
        strategy=found.protocol_name,
        members=[_member(each) for each in found.members],
        generation=found.generation_id,
        incarnation=found.incarnation,
        leader=found.leader,
        coordinator=address,
        group_type=None if found.state == admin.GROUP_STATE_DEAD else CLASSIC,
    )


def _member(found: admin.DescribedMember) -> Member:
    return Member(
        member_id=found.member_id,
        instance_id=found.group_instance_id,
        client_id=found.client_id,
        host=found.client_host,
        partitions=decode_assignment(found.assignment),
        subscription=decode_subscription(found.metadata) if found.metadata else None,
    )
