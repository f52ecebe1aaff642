"""Builds the member's requests to its coordinator."""

from collections.abc import Mapping, Sequence

from rota_proto.consumer_protocol import PROTOCOL_TYPE
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.consumer_protocol.offers import STICKY, JoinOffer, metadata_for
from rota_sidecar.core.member.config import MemberConfig
from rota_sidecar.core.member.identity import Identity
from rota_sidecar.core.member.owned_partitions import OwnedPartitions
from rota_sidecar.core.member.partitions import Offset, Partition, by_topic
from rota_sidecar.core.member.subscription_state import SubscriptionState

REASON_LENGTH_MAX = 255


class Requests:
    """Request builder of one member."""

    def __init__(self, config: MemberConfig) -> None:
        self._config = config

    def join(
        self, identity: Identity, subscription: SubscriptionState, owned: OwnedPartitions, reason: str
    ) -> pb.JoinGroupRequest:
        """Build JoinGroup, with one subscription for each offered strategy."""
        config = self._config
        return pb.JoinGroupRequest(
            group_id=config.group_id,
            member_id=identity.member_id,
            group_instance_id=config.instance_id,
            client_id=config.client_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                pb.Protocol(name=each.name, metadata=self._metadata(each.name, subscription, owned))
                for each in subscription.strategies
            ],
            reason=reason[:REASON_LENGTH_MAX],
        )

    def _metadata(self, strategy: str, subscription: SubscriptionState, owned: OwnedPartitions) -> bytes:
        # `sticky` claims its last assignment, whatever happened since; Kafka's leaders compare the generations.
        sticky = strategy == STICKY
        offer = JoinOffer(
            topics=subscription.topics,
            owned=by_topic(owned.last_assigned if sticky else owned.held.keys()),
            generation=owned.last_assigned_generation if sticky else owned.owned_generation,
            incarnation=owned.incarnation,
            rates=owned.rates,
            rack=self._config.rack,
        )
        return metadata_for(strategy, offer)

    def sync(self, identity: Identity, assignments: Sequence[pb.Assignment]) -> pb.SyncGroupRequest:
        """Build SyncGroup; `assignments` is empty unless the member leads."""
        return pb.SyncGroupRequest(
            group_id=self._config.group_id,
            generation_id=identity.generation,
            member_id=identity.member_id,
            group_instance_id=self._config.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=identity.strategy,
            assignments=assignments,
        )

    def heartbeat(self, identity: Identity) -> pb.HeartbeatRequest:
        """Build Heartbeat."""
        return pb.HeartbeatRequest(
            group_id=self._config.group_id,
            generation_id=identity.generation,
            member_id=identity.member_id,
            group_instance_id=self._config.instance_id,
        )

    def leave(self, identity: Identity, reason: str) -> pb.LeaveGroupRequest:
        """Build LeaveGroup."""
        leaving = pb.LeavingMember(
            member_id=identity.member_id,
            group_instance_id=self._config.instance_id,
            reason=reason[:REASON_LENGTH_MAX],
        )
        return pb.LeaveGroupRequest(group_id=self._config.group_id, members=[leaving])

    def commit(self, identity: Identity, offsets: Mapping[Partition, Offset]) -> pb.CommitOffsetsRequest:
        """Build CommitOffsets for the member's generation."""
        topics = [
            pb.TopicOffsets(
                name=topic,
                partitions=[
                    pb.PartitionOffset(
                        index=number,
                        offset=offset.offset,
                        leader_epoch=offset.leader_epoch,
                        metadata=offset.metadata,
                    )
                    for number in numbers
                    for offset in [offsets[Partition(topic, number)]]
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ]
        return pb.CommitOffsetsRequest(
            group_id=self._config.group_id,
            generation_id=identity.generation,
            member_id=identity.member_id,
            group_instance_id=self._config.instance_id,
            topics=topics,
        )

    def fetch(self, partitions: Sequence[Partition]) -> pb.FetchOffsetsRequest:
        """Build FetchOffsets. `require_stable`: offsets in open transactions are refused as unstable."""
        topics = [
            pb.TopicPartitions(name=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
        return pb.FetchOffsetsRequest(group_id=self._config.group_id, topics=topics, require_stable=True)
